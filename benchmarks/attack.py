"""An attack on the views of two participants: a random forest predicts the third one's data.

    python -m benchmarks.attack            run everything, write docs/figures/attack.csv, the figure
                                           docs/figures/attack.svg and the table in docs/privacy.md
    python -m benchmarks.attack --one masked     one session, as JSON: also run on mutants

Three participants train, of whom the first two collude. All that they see of each row is a column
of a table: opened values, the third one's shares of them, their shares of correlated randomness,
published values, and shares received. A random forest is fitted on half of the rows to the third
one's features and labels, and predicts them for the other half. Controls are copies of the package
that leak in one place (tests/privacy/mutants).
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.privacy.mutants.run import load
from tests.privacy.stage import run_threads

from privet.arithmetic.rings import BIT_RING, Z36, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.model import Feature
from privet.boosting.training import TrainingData, TrainingSpec, train
from privet.objectives.regression import OBJECTIVES
from privet.protocols.paper.gates import packed_length, unpack_bits
from privet.runtime.correlations.source import LiveReceiver
from privet.runtime.party import Party
from privet.runtime.run import DEALER_NAME, run_dealer
from privet.runtime.runtime import Runtime
from privet.spec.params import Params
from privet.transport.memory import create_memory_channels

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "docs" / "figures" / "attack.csv"
FIGURE = ROOT / "docs" / "figures" / "attack.svg"
PAGE = ROOT / "docs" / "privacy.md"
START, END = "<!-- attack: begin -->\n", "<!-- attack: end -->\n"
CONTROLS = {
    "masked": (
        "indicators-unmasked",
        "outcomes-unmasked",
        "label-sent",
        "gradients-opened",
    ),
    "paper": ("factors-unmasked", "truncation-unmasked", "label-sent"),
}
SAMPLES = 4000
SESSIONS = 4
NORMAL_99 = 2.576
Results = dict[str, dict[str, list[float]]]
"""By task and secret: the attack AUC, and its 99 percent interval."""
TREES = 200
HONEST = 2


@dataclass
class Column:
    """A value for each row that a participant saw or held."""

    ring: Ring
    values: RingArray


class Spy(Party):
    """Participant that records all that it sees."""

    def __init__(self, *arguments: Any) -> None:
        self.kept: dict[str, list[Column]] = {"drawn": [], "opened": [], "shown": []}
        self.published: list[RingArray] = []
        super().__init__(*arguments)

    def _keep(self, kind: str, ring: Ring, values: RingArray) -> None:
        self.kept[kind].append(Column(ring, np.array(values)))

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Record the local share of a mask."""
        share = super().uniform(shape, ring)
        self._keep("drawn", ring, share.part)
        return share

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Record the local share of derived randomness."""
        share = super().derived(shape, ring)
        self._keep("drawn", ring, share.part)
        return share

    def share_arrays(self, *arguments: Any) -> Share:
        """Record received shares."""
        share = super().share_arrays(*arguments)
        self._keep("drawn", share.ring, share.part)
        return share

    def open(self, *masked: Share) -> tuple[RingArray, ...]:
        """Record opened values and the local shares."""
        found = super().open(*masked)
        for share, value in zip(masked, found, strict=True):
            self._keep("shown", share.ring, share.part)
            self._keep("opened", share.ring, value)
        return found

    def open_with_wraps(self, masked: Share) -> tuple[RingArray, RingArray]:
        """Record opened values and the local shares."""
        found = super().open_with_wraps(masked)
        self._keep("shown", masked.ring, masked.part)
        self._keep("opened", masked.ring, found[0])
        return found

    def publish(self, *arguments: Any) -> Any:
        """Record the values that the honest participant publishes."""
        for k, position, array in super().publish(*arguments):
            if k == HONEST:
                self.published.append(np.array(array))
            yield k, position, array


@dataclass
class Staged:
    """A training run with spies, and the true data of the honest participant."""

    spies: list[Spy]
    truth: dict[str, FloatArray] = field(default_factory=dict)


def stage(protocol: str, task: str, seed: int) -> Staged:
    """Train two tables on independent features."""
    rng = np.random.default_rng(seed)
    names = ("party1", "party2", "party3")
    columns = [rng.normal(size=(2, SAMPLES)) for _ in names]
    score = columns[0][0] + columns[1][0] + 1.5 * columns[2][0] + columns[2][1]
    label = score if task == "regression" else (score > 0).astype(float)
    params = Params(task=task, tables=2, depth=2, buckets=8)
    parties = [
        bucket_columns(name, ["a", "b"], part, 8) for name, part in zip(names, columns, strict=True)
    ]
    features = tuple(Feature(f, name) for name in names for f in ("a", "b"))
    bits = params.objective.prediction_bits
    training_spec = TrainingSpec(protocol, params, names, features, HONEST, bits)
    plan = training_spec.make_plan(SAMPLES)
    inputs = [TrainingData(part, label if k == HONEST else None) for k, part in enumerate(parties)]

    def program(runtime: Runtime, data: TrainingData | None) -> Any:
        return train(runtime, training_spec, plan, data)

    channels = create_memory_channels([*names, DEALER_NAME], peer_timeout=600)
    spies: list[Spy | None] = [None] * len(names)

    def party(index: int) -> None:
        with channels[names[index]] as channel:
            spy = Spy(index, names, channel, LiveReceiver(channel, [DEALER_NAME]))
            spies[index] = spy
            program(spy, inputs[index])
            spy.finish()

    def dealer() -> None:
        run_dealer(program, names, channels[DEALER_NAME])

    run_threads({**{name: partial(party, k) for k, name in enumerate(names)}, DEALER_NAME: dealer})
    truth = {
        "feature a": (columns[2][0] > 0).astype(float),
        "feature b": (columns[2][1] > 0).astype(float),
        "label": (label > np.median(label)).astype(float) if task == "regression" else label,
    }
    return Staged([spy for spy in spies if spy is not None], truth)


def view(spies: Sequence[Spy]) -> FloatArray:
    """Return the view of all participants except the honest one: (N, columns)."""
    others = [spy for k, spy in enumerate(spies) if k != HONEST]
    found: list[FloatArray] = []
    for pair in zip(*(spy.kept["drawn"] for spy in others), strict=True):
        for column in pair:
            found += _numbers(column)
        found += _numbers(_sum(pair))
    for opened, *shown in zip(
        others[0].kept["opened"], *(spy.kept["shown"] for spy in others), strict=True
    ):
        found += _numbers(opened)
        rest = opened.ring.subtract(opened.values, _sum(shown).values)
        found += _numbers(Column(opened.ring, rest))
    for values in others[0].published:
        found += _numbers(Column(Z36, values))
    return np.stack(found, axis=1)


def _sum(columns: Sequence[Column]) -> Column:
    ring = columns[0].ring
    total = columns[0].values
    for column in columns[1:]:
        total = ring.add(total, column.values)
    return Column(ring, total)


def _numbers(column: Column) -> list[FloatArray]:
    """Return the values of all samples as ranks, and their last bits.

    Trees only compare, and treat values as equal that differ by less than 1e-7.
    """
    ring, values = column.ring, column.values
    if ring is BIT_RING and values.shape[-1:] == (packed_length(SAMPLES),):
        return [row.astype(float) for row in unpack_bits(values, SAMPLES).reshape(-1, SAMPLES)]
    if values.shape[-1:] != (SAMPLES,):
        return []
    rows = ring.reduce_modulus(values).reshape(-1, SAMPLES)
    ranks = [np.unique(row, return_inverse=True)[1].astype(float) for row in rows]
    last = [(row & row.dtype.type(0xFF)).astype(float) for row in rows]
    return ranks + last


def attack(staged: Staged, seed: int) -> dict[str, tuple[float, float]]:
    """Return the attack AUC of each secret and its standard error."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score

    views = view(staged.spies)
    rng = np.random.default_rng(seed)
    order = rng.permutation(SAMPLES)
    known, unknown = order[: SAMPLES // 2], order[SAMPLES // 2 :]
    found = {}
    for secret, truth in staged.truth.items():
        forest = RandomForestClassifier(TREES, n_jobs=-1, random_state=seed)
        forest.fit(views[known], truth[known])
        predicted, expected = forest.predict_proba(views[unknown])[:, 1], truth[unknown]
        bootstrapped = [
            roc_auc_score(expected[rows], predicted[rows])
            for rows in rng.integers(0, len(expected), (500, len(expected)))
        ]
        found[secret] = float(roc_auc_score(expected, predicted)), float(np.std(bootstrapped))
    return found


def one(protocol: str, sessions: int) -> Results:
    """Attack sessions of a protocol with both tasks; return means and intervals."""
    results: Results = {}
    for task in OBJECTIVES:
        found = [attack(stage(protocol, task, seed), seed) for seed in range(sessions)]
        results[task] = {}
        for secret in found[0]:
            values = np.array([each[secret] for each in found])
            mean = values[:, 0].mean()
            width = NORMAL_99 * np.sqrt((values[:, 1] ** 2).sum()) / sessions
            low, high = max(0.0, mean - width), min(1.0, mean + width)
            results[task][secret] = [float(mean), float(low), float(high)]
    return results


def control(protocol: str, name: str) -> Results:
    """Attack a copy of the package with a mutant in it."""
    mutant = next(m for m in load() if m.name == name)
    with tempfile.TemporaryDirectory(prefix="privet-attack-") as folder:
        shutil.copytree(ROOT / "src" / "privet", Path(folder) / "privet")
        mutant.apply(Path(folder) / "privet")
        process = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "benchmarks.attack", "--one", protocol],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    results: Results = json.loads(process.stdout)
    return results


def main() -> None:
    """Attack both protocols and all controls; write rows, figure and table."""
    rows: list[dict[str, Any]] = []
    for protocol, controls in CONTROLS.items():
        for name in ("", *controls):
            results = control(protocol, name) if name else one(protocol, SESSIONS)
            for task, secrets in results.items():
                for secret, (auc, low, high) in secrets.items():
                    row = {"protocol": protocol, "control": name, "task": task, "secret": secret}
                    figures = {"auc": auc, "low": low, "high": high}
                    row |= {key: f"{value:.3f}" for key, value in figures.items()}
                    rows.append(row)
                    print(*row.values(), flush=True)
    with ROWS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows)
    page = PAGE.read_text()
    before, after = page.index(START) + len(START), page.index(END)
    PAGE.write_text(page[:before] + table(rows) + page[after:])


def best(rows: Sequence[dict[str, Any]], protocol: str, control: str) -> list[dict[str, Any]]:
    """Return all rows of a protocol, or the row with the highest AUC of a control."""
    found = [r for r in rows if r["protocol"] == protocol and r["control"] == control]
    return found if not control else [max(found, key=lambda row: float(row["auc"]))]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| what is attacked | task | secret | AUC | 99 % interval |",
        "| --- | --- | --- | --- | --- |",
    ]
    for protocol, controls in CONTROLS.items():
        for name in ("", *controls):
            for row in best(rows, protocol, name):
                what = f"`{protocol}`" + (f", control {name}" if name else "")
                interval = f"{row['low']} to {row['high']}"
                lines.append(
                    f"| {what} | {row['task']} | {row['secret']} | {row['auc']} | {interval} |"
                )
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[dict[str, Any]]) -> None:
    """Plot every AUC with its interval: full marks for protocols, hollow ones for controls."""
    from matplotlib.figure import Figure

    from privet.experiments.plots import DARK_INK, PROTOCOL_COLOURS, apply_style, render_figure

    shown = [
        (row, not name)
        for protocol, controls in CONTROLS.items()
        for name in ("", *controls)
        for row in best(rows, protocol, name)
    ]
    with apply_style():
        figure = Figure(figsize=(7.5, 0.28 * len(shown) + 1.2), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="x")
        for y, (row, real) in enumerate(reversed(shown)):
            auc, low, high = (float(row[key]) for key in ("auc", "low", "high"))
            colour = PROTOCOL_COLOURS[row["protocol"]]
            axes.errorbar(
                auc,
                y,
                xerr=[[auc - low], [high - auc]],
                fmt="o" if real else "s",
                color=colour,
                fillstyle="full" if real else "none",
                capsize=3,
            )
        labels = [
            f"{row['protocol']}, {row['control'] or 'as it is'}: {row['secret']}, {row['task']}"
            for row, _ in reversed(shown)
        ]
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.axvline(0.5, color=DARK_INK, linewidth=0.8)
        axes.set_xlim(0.4, 1.02)
        axes.set_xlabel("AUC of a forest's guess and its 99 % interval; a coin's is 0.5")
        axes.set_title("full: the protocols as they are; hollow: with a leak put in", fontsize=9)
        FIGURE.write_bytes(render_figure(figure))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2], sessions=1)))
    else:
        main()
