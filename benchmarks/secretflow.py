"""The homomorphic work of one California tree by SecretFlow's SGB, compared with a Privet table.

    make bench-secretflow

or, with an environment for `sf-heu`, whose newest wheels are for Python 3.10:

    python3.10 -m venv .venv-heu; .venv-heu/bin/pip install sf-heu==0.6.0b0
    python -m benchmarks.secretflow --heu .venv-heu/bin/python [--quick]

Both sides have the same rows, buckets and participants. `benchmarks/homomorphic.py` performs only
SGB's encryption, addition and decryption, without Ray, messages and splitting. Privet runs the
complete protocol with five processes over TLS on loopback; the result is the processor time of all
processes for one more table. Writes docs/results/secretflow.json (a quick run writes to
build/quick).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import homomorphic
from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.processor import train_timed
from privet import Params, load_dataset
from privet.arrays import FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.reference import find_best_split, round_for_exact_sums, sum_by_bucket
from privet.data.partition import split_frame, split_rows
from privet.experiments import experiment

PARTIES = 4
NAME = "secretflow"


def main() -> int:
    """Measure both sides, write the results, and print the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--heu", default=".venv-heu/bin/python", help="a Python that has sf-heu")
    parser.add_argument("--tables", type=int, default=10, help="of ours, to average over")
    parser.add_argument("--quick", action="store_true", help="1,000 rows, 2 tables")
    arguments = parser.parse_args()
    samples, tables = (1000, 2) if arguments.quick else (0, arguments.tables)
    parties, label, params = _california(samples)
    sgb = _sgb(arguments.heu, parties, label, params)
    if sgb is None:
        return 1
    sizes = {"samples": len(label), "features": sum(len(party.names) for party in parties)}
    sizes |= {"parties": PARTIES, "buckets": params.buckets, "depth": params.depth}
    figures = {**sizes, "sgb": sgb, "ours": _ours(parties, label, params, tables)}
    command = "make bench-secretflow"
    path = results(arguments.quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, command))))
    print(f"in {path}; `python -m benchmarks.evidence show` puts it into the page")
    return 0


def _california(samples: int) -> tuple[list[BucketedColumns], FloatArray, Params]:
    """Return the training rows of four participants, the label, and the paper's parameters."""
    rows, _ = split_rows(load_dataset("california").frame, 0.2, 0)
    if samples:
        rows = rows.take(np.arange(samples))
    params = Params(task="regression", tables=1, depth=5, buckets=32, learning_rate=1.0)
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in split_frame(rows, PARTIES)
    ]
    assert rows.label is not None
    return parties, rows.label, params


def _sgb(
    heu: str, parties: list[BucketedColumns], label: FloatArray, params: Params
) -> Figures | None:
    """Return the cost of a tree's homomorphic work, or print the error and return None."""
    target = params.objective.make_targets(label)
    g, h = params.objective.compute_gradients(
        np.repeat(params.compute_initial_scores(label)[:, None], target.shape[1], axis=1), target
    )
    # Numbers in a ciphertext are bounded: the label holder scales both vectors, as SGB does.
    g /= np.abs(g).max()
    arrays: dict[str, Any] = {"n_buckets": params.buckets, "depth": params.depth}
    arrays["derivatives"] = np.stack((g[0], h[0]), axis=1)
    arrays["nodes"] = _tree(np.concatenate([party.buckets for party in parties]), g, h, params)
    for number, passive in enumerate(parties[:-1]):
        columns = np.ascontiguousarray(passive.buckets.T, dtype=np.int8)
        arrays[f"buckets{number}"] = columns
    with tempfile.TemporaryDirectory(prefix="privet-") as folder:
        path = Path(folder) / "tree.npz"
        np.savez(path, **arrays)
        script = Path(homomorphic.__file__)
        try:
            process = subprocess.run(  # noqa: S603
                [heu, str(script), str(path)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            print(f"{heu} does not start: {error}. {_ADVICE}", file=sys.stderr)
            return None
    if process.returncode:
        advice = f". {_ADVICE}" if process.returncode == homomorphic.MISSING else ""
        print(f"{process.stderr.strip()}{advice}", file=sys.stderr)
        return None
    found: Figures = json.loads(process.stdout.splitlines()[-1])
    return found


_ADVICE = (
    "This benchmark needs the package sf-heu in an environment of its own: "
    "`make bench-secretflow`, or "
    "`python3.10 -m venv .venv-heu; .venv-heu/bin/pip install sf-heu==0.6.0b0`"
)


def _tree(buckets: np.ndarray, g: FloatArray, h: FloatArray, params: Params) -> IndexArray:
    """Return every row's node at each level of a tree with a split at each node."""
    node = np.zeros(g.shape[1], dtype=np.intp)
    everything = np.ones(len(node), dtype=np.bool_)
    levels = []
    for level in range(params.depth):
        levels.append(node)
        nodes = 1 << level
        sums = sum_by_bucket(
            buckets,
            everything,
            node,
            nodes,
            round_for_exact_sums(g),
            round_for_exact_sums(h),
            params.buckets,
        )
        tests = [find_best_split(sums[:, :, :, [k]], params) for k in range(nodes)]
        feature, bucket = np.array(tests).T
        node = 2 * node + (buckets[feature[node], np.arange(len(node))] > bucket[node])
    return np.stack(levels)


def _ours(
    parties: list[BucketedColumns], label: FloatArray, params: Params, tables: int
) -> Figures:
    """Return the cost of one more table by `masked`, and of the setup."""
    found = []
    for count in (1, 1 + tables):
        changed_params = params.model_copy(update={"tables": count})
        federated, seconds = train_timed(
            parties, label, changed_params, "masked", network="loopback"
        )
        assert len(seconds) == PARTIES + 1
        meters = federated.program_result.meters
        traffic, rounds = (
            experiment.measure_traffic(federated.program_result),
            experiment.measure_rounds(meters[0], count * params.depth),
        )
        online = experiment.measure_seconds(federated.program_result, 0.0).online
        found.append(
            {
                "processor_seconds": sum(seconds),
                "wall_seconds": online,
                "bytes": traffic.online_total,
                "dealt_bytes": traffic.offline_total,
                "rounds": rounds.total,
            }
        )
    first, last = found
    per_table = {name: (last[name] - first[name]) / tables for name in first}
    return {"tables": tables, "per_table": per_table, "setup_bytes": traffic.setup_total}


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    sgb, ours = figures["sgb"], figures["ours"]
    passive = figures["parties"] - 1
    yield "## Beside SecretFlow's SGB\n"
    yield (
        f"One tree of depth {figures['depth']} on California ({figures['samples']:,} rows, "
        f"{figures['features']} features over {figures['parties']} participants, "
        f"{figures['buckets']} buckets). SGB is SecretFlow's boosting on homomorphic encryption, "
        "and what many would pick instead. Of it only the homomorphic work is done, by its own "
        f"package: sf-heu {sgb['sf_heu']}, Okamoto and Uchiyama's scheme, {sgb['key_bits']}-bit "
        f"keys, at {passive} passive participants; its messages, its scheduler and all work on "
        "plain numbers would come on top. Ours is everything that five processes do on loopback "
        f"for one more table, TLS included. Figures are means of {sgb['trees']} trees and "
        f"{ours['tables']} tables. Processor seconds are those of all participants together, on "
        f"all cores. {where(figures)}\n"
    )
    yield from table(
        ("one more tree or table", "processor s", "MB sent", "MB from a dealer", "rounds"),
        [*_sgb_rows(sgb), _our_row("`masked`", ours["per_table"])],
    )
    yield (
        f"Before the first table, `masked` sends {ours['setup_bytes'] / 1e6:.1f} MB, once for all "
        f"tables, and SGB makes a pair of keys in {sgb['keys_seconds']:.1f} s. SGB's encrypted "
        "derivatives and sums are counted as sf-heu serialises them; decrypted, its sums are those "
        "of plain numbers with "
        f"{sgb['fraction_bits']} fraction bits.\n"
    )
    yield (
        "What SGB tells: the label holder decrypts, for every node, the sums of g and h left of "
        "every cut of every passive feature, in an order that their owner shuffled; and everybody "
        "learns which rows reach which node. SecretFlow's guide says that it is not provably "
        "secure and names attacks. `masked` tells all which feature a test is on and its owner the "
        "bucket; it tells nobody any sum, nor where rows go.\n"
    )
    yield (
        "What SGB does better: it needs no dealer, so nobody whom all must trust not to collude; "
        "it waits for a few messages a level, so long delays hardly slow it down; most of "
        "its traffic is the rows' encrypted g and h, so more features add little; its trees have a "
        "test of their own at every node; and it comes with much around it, such as sampling of "
        "rows and columns.\n"
    )


def _sgb_rows(sgb: Figures) -> Iterator[list[str]]:
    names = {"together": "SGB, g and h in one ciphertext (its default)", "apart": "SGB, in two"}
    for way, name in names.items():
        found = sgb["ways"][way]
        seconds = found["processor_seconds"]
        steps = ", ".join(f"{step} {value:.1f}" for step, value in seconds.items())
        sent = sum(found["bytes"].values()) / 1e6
        yield [
            name,
            f"{sum(seconds.values()):.1f} ({steps})",
            f"{sent:.1f}",
            "none",
            "not measured",
        ]


def _our_row(name: str, found: Figures) -> list[str]:
    megabytes = [f"{found[key] / 1e6:.1f}" for key in ("bytes", "dealt_bytes")]
    return [name, f"{found['processor_seconds']:.1f}", *megabytes, f"{found['rounds']:.0f}"]


if __name__ == "__main__":
    sys.exit(main())
