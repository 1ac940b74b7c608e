"""Cost of each training option: rounds, bytes and processor time compared with no options.

    python -m benchmarks.options [--quick]

California and Credit with the paper's parameters, four participants, by `masked`. Rounds and bytes
of complete training runs are estimated exactly. Processor seconds are those of all participants and
the dealer, as processes on loopback, for a few tables; there the estimates must equal the metered
values. Also a prediction of 1,000 rows, with and without feature attributions.

Writes docs/results/options.json (a quick run: build/quick).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.processor import train_timed
from benchmarks.evidence.rows import PAPER
from benchmarks.predicting import count_prediction, predict_timed
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.simulation import collect_cut_counts, train_federated
from privet.boosting.training import TrainingSpec, resolve_cut_disclosure
from privet.data.datasets import load_dataset
from privet.data.partition import split_frame, split_rows
from privet.runtime.accounting import Meter
from privet.runtime.cost import Cost
from privet.spec.params import Params
from privet.spec.plan import ExplainBy

NAME = "options"
DATA = ("california", "credit")
PROTOCOL = "masked"
PARTIES = 4
TABLES = 3
"""Tables of the timed training runs."""
TIMES = 3
"""Repeats of all options in turn, since other work can slow down some of them."""
NEW_ROWS = 1000
REPEATED = 10
"""Predictions by the same processes; the reported processor time is the mean."""


@dataclass(frozen=True)
class Option:
    """A training option that can change the cost."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    """Changed hyper-parameters."""
    weighted: bool = False
    explains: bool = False
    constrained: float = 0.0
    """Fraction of features with a monotone constraint."""


BASE = Option("none")
OPTIONS = (
    BASE,
    Option("a public start, `base_score = 0`", {"base_score": 0.0}),
    Option("weights", weighted=True),
    Option("`subsample = 0.5`", {"subsample": 0.5}),
    Option("`colsample = 0.5`", {"colsample": 0.5}),
    Option("both", {"subsample": 0.5, "colsample": 0.5}),
    Option("`min_child_weight = 5`", {"min_child_weight": 5.0}),
    Option("`min_gain = 1`", {"min_gain": 1.0}),
    Option("`explain`: reasons derived", explains=True),
    Option("`validation = 0.1`", {"validation": 0.1}),
    Option("the same, `patience = 5`", {"validation": 0.1, "patience": 5}),
    Option("`monotone`, a quarter of the features", constrained=0.25),
    Option("`monotone`, all features", constrained=1.0),
)
"""All options in the order of the page; each is compared with the first."""
QUERIES: dict[str, ExplainBy | None] = {
    "prediction": None,
    "explained, by feature": "feature",
    "explained, by participant": "participant",
}


@dataclass(frozen=True)
class Task:
    """A data set, bucketed and spread over participants, and the paper's parameters for it."""

    data: str
    params: Params
    parties: list[BucketedColumns]
    label: FloatArray
    new_columns: list[FloatArray]

    def with_option(self, option: Option, tables: int | None) -> tuple[Params, FloatArray | None]:
        """Return the parameters, with another number of tables, and the sample weights."""
        changes = {} if tables is None else {"tables": tables}
        params = Params.parse({**self.params.model_dump(), **option.params, **changes})
        rng = np.random.default_rng(0)
        weight = rng.uniform(0.5, 1.5, len(self.label)) if option.weighted else None
        return params, weight

    def monotone(self, option: Option) -> tuple[int, ...]:
        """Return constraints on evenly spread features."""
        count = sum(len(party.names) for party in self.parties)
        every = round(1 / option.constrained) if option.constrained else count + 1
        return tuple(int(j % every == every - 1) for j in range(count))

    def make_training_spec(self, option: Option, tables: int | None) -> TrainingSpec:
        """Return the training specification of all participants."""
        params, _ = self.with_option(option, tables)
        return TrainingSpec(
            protocol=PROTOCOL,
            params=params,
            parties=tuple(party.owner for party in self.parties),
            features=tuple(Feature(n, party.owner) for party in self.parties for n in party.names),
            active=PARTIES - 1,
            prediction_bits=params.objective.prediction_bits,
            is_weighted=option.weighted,
            has_explanations=option.explains,
            monotone=self.monotone(option) if option.constrained else (),
            announced_cut_counts=collect_cut_counts(
                self.parties, params, resolve_cut_disclosure(PROTOCOL, None)
            ),
        )


def task_of(data: str, rows: int | None = None) -> Task:
    """Return a data set with the paper's parameters, or a few of its rows and two tables."""
    loaded, printed = load_dataset(data), PAPER[data]
    train_rows, test = split_rows(loaded.frame)
    tables, depth = printed.tables, printed.depth
    if rows is not None:
        train_rows, tables, depth = train_rows.take(np.arange(rows)), 2, 2
    assert train_rows.label is not None
    params = Params(task=loaded.task, tables=tables, depth=depth, learning_rate=1.0)
    new = test.take(np.arange(NEW_ROWS) % test.n_samples)
    return Task(
        data,
        params,
        [
            bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
            for party in split_frame(train_rows, PARTIES)
        ],
        train_rows.label,
        [party.frame.columns for party in split_frame(new, PARTIES)],
    )


def count(task: Task, option: Option, tables: int | None = None) -> Figures:
    """Return the estimated rounds and bytes of a training run."""
    training_spec = task.make_training_spec(option, tables)
    return _counts(estimate_cost(training_spec, training_spec.make_plan(len(task.label))))


def _counts(cost: CostEstimate | Cost) -> Figures:
    return {"rounds": cost.rounds, "online": cost.online_bytes, "offline": cost.offline_bytes}


def clock(task: Task, option: Option, tables: int) -> float:
    """Return the processor seconds of a training; raise where counts and meters differ."""
    params, weight = task.with_option(option, tables)
    federated, seconds = train_timed(
        task.parties,
        task.label,
        params,
        PROTOCOL,
        sample_weight=weight,
        network="loopback",
        explain="feature" if option.explains else None,
        monotone=task.monotone(option) if option.constrained else (),
    )
    _check(
        f"{task.data}, {option.name}", count(task, option, tables), federated.program_result.meters
    )
    return sum(seconds)


def _check(what: str, counted: Figures, meters: Sequence[Meter], times: int = 1) -> None:
    metered = {
        "rounds": meters[0].sum_traffic("online").rounds,
        "online": sum(meter.sum_traffic("online").sent for meter in meters),
        "offline": sum(meter.sum_traffic("offline").received for meter in meters),
    }
    if metered != {name: times * number for name, number in counted.items()}:
        raise ArithmeticError(f"{what}: counted {counted}, {times} times; found {metered}")


def train_options(task: Task, tables: int, times: int) -> list[Figures]:
    """Return the cost of every option."""
    seconds: dict[str, list[float]] = {option.name: [] for option in OPTIONS}
    for _ in range(times):
        for option in OPTIONS:
            seconds[option.name].append(clock(task, option, tables))
    return [
        {"option": option.name, **count(task, option), "seconds": min(seconds[option.name])}
        for option in OPTIONS
    ]


def predict_options(task: Task, tables: int, times: int) -> list[Figures]:
    """Return the cost of predictions with and without explanations; time a model of few tables."""
    option = next(option for option in OPTIONS if option.explains)
    params, _ = task.with_option(option, tables)
    parts = train_federated(task.parties, task.label, params, PROTOCOL, explain="feature").parts
    full_spec, timed_spec = (task.make_training_spec(option, number) for number in (None, tables))
    found = []
    for name, explain in QUERIES.items():
        counted = _counts(count_prediction(timed_spec, explain, NEW_ROWS))
        seconds = []
        for _ in range(times):
            outcome, process_seconds = predict_timed(
                timed_spec, parts, task.new_columns, explain, REPEATED
            )
            _check(f"{task.data}, {name}", counted, outcome.meters, REPEATED)
            seconds.append(sum(process_seconds) / REPEATED)
        counted = _counts(count_prediction(full_spec, explain, NEW_ROWS))
        found.append({"option": name, **counted, "seconds": min(seconds)})
    return found


def measure(task: Task, tables: int, times: int) -> Figures:
    """Return all results of a data set."""
    return {
        "data": task.data,
        "samples": len(task.label),
        "features": len(task.make_training_spec(BASE, None).features),
        "tables": task.params.tables,
        "depth": task.params.depth,
        "training": train_options(task, tables, times),
        "prediction": predict_options(task, tables, times),
    }


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="300 rows, 2 tables")
    quick = parser.parse_args().quick
    rows, tables, times = (300, 1, 1) if quick else (None, TABLES, TIMES)
    sets = []
    for data in DATA:
        sets.append(measure(task_of(data, rows), tables, times))
        print(sets[-1], flush=True)
    figures: Figures = {
        "sets": sets,
        "timed_tables": tables,
        "times": times,
        "new_rows": NEW_ROWS,
        "run_seconds": time.perf_counter() - started,
    }
    path = results(quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-options"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    sizes = "; ".join(
        f"{found['data']}: {found['samples']:,} rows, {found['features']} features, "
        f"{found['tables']} tables of depth {found['depth']}"
        for found in figures["sets"]
    )
    yield "## What options cost\n"
    yield (
        f"Trainings by `masked`, four participants ({sizes}), beside one without options, whose "
        "start is already private. Rounds and bytes of whole trainings are counted; the meters "
        "found the same wherever something was timed. Processor seconds are those of all "
        "participants and the dealer, as processes on loopback, the least of "
        f"{figures['times']}, in trainings of {figures['timed_tables']} tables; other work on the "
        "machine moves them, too, as a public start of Credit shows, which does the same work. "
        f"{where(figures)}\n"
    )
    yield from table(_HEAD, [row for found in figures["sets"] for row in _rows(found, "training")])
    yield (
        f"A prediction of {figures['new_rows']:,} rows with these models, and with what "
        f"contributes to each; processor seconds with models of {figures['timed_tables']} tables. "
        f"All of it took {figures['run_seconds'] / 60:.1f} minutes.\n"
    )
    rows = [row for found in figures["sets"] for row in _rows(found, "prediction")]
    yield from table(_HEAD, rows)


_HEAD = ("", "", "rounds", "MB between", "", "MB dealt", "", "processor s", "")


def _rows(found: Figures, what: str) -> Iterator[list[str]]:
    base, *_ = found[what]
    for row in found[what]:
        cells = [found["data"] if row is base else "", row["option"], f"{row['rounds']:,}"]
        for name, unit in (("online", 1e6), ("offline", 1e6), ("seconds", 1.0)):
            ratio = "" if row is base else f"{row[name] / base[name]:.2f} times"
            cells += [f"{row[name] / unit:,.2f}", ratio]
        yield cells


if __name__ == "__main__":
    sys.exit(main())
