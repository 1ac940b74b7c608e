"""Several classes: accuracy and log-loss compared with CatBoost, and their cost.

    python -m benchmarks.multiclass [--quick]

CatBoost grows the same number of symmetric trees of the same depth and learning rate, with its
other defaults: once by softmax (`MultiClass`), once by one class against the rest, as Privet does
(`MultiClassOneVsAll`). Means are over several splits. On the first split, `masked` trains a few
tables, compared with the reference. Rounds and bytes are estimated without training.

Writes docs/results/multiclass.json (a quick run: build/quick). Returns 1 if the reference is more
than a percentage point less accurate than the better CatBoost model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.model import counted
from benchmarks.public_data import load
from privet import DataSet, Frame, Params
from privet.arrays import FloatArray
from privet.data.partition import PartyFrame, split_by_ownership, split_rows, spread_columns_evenly
from privet.experiments.experiment import TrainedModel, encode_parties, train_and_predict
from privet.runtime.opening import DEFAULT_ALL_TO_ALL_BYTES

NAME = "multiclass"
DATA = ("digits-10", "dry-bean-7", "made-5")
CATBOOST = ("MultiClass", "MultiClassOneVsAll")
CLASSES = (2, 3, 7, 10, 32)
SIZES = {"samples": 10_000, "features": 16, "buckets": 32, "depth": 4, "tables": 10, "parties": 4}
WORST = 0.01
"""Maximum loss of accuracy compared with CatBoost."""
_QUICK_ROWS = 300


def our_params(data: DataSet, quick: bool, *, few: bool = False) -> Params:
    """Return the parameters for CatBoost's comparison, or with `few` those for `masked`."""
    tables, depth = (10, 4) if few else (100, 6)
    return Params(
        task=data.task,
        classes=len(data.classes),
        tables=2 if quick else tables,
        depth=2 if quick else depth,
        learning_rate=0.3,
    )


def trained(rows: Frame, test: Frame, params: Params, protocol: str) -> TrainedModel:
    """Return Privet's model, and its predictions of the test rows."""
    return train_and_predict(_parties(rows), _parties(test), params, protocol)


def _parties(rows: Frame) -> list[PartyFrame]:
    return split_by_ownership(rows, spread_columns_evenly(rows.names, SIZES["parties"]))


def catboost(rows: Frame, test: Frame, params: Params, loss: str, seed: int) -> FloatArray:
    """Return CatBoost's predictions: (K, N)."""
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(
        loss_function=loss,
        iterations=params.tables,
        depth=params.depth,
        learning_rate=params.learning_rate,
        random_seed=seed,
        thread_count=2,
        allow_writing_files=False,
        logging_level="Silent",
    )
    model.fit(rows.columns.T, rows.label)
    found: FloatArray = model.predict_proba(test.columns.T).T
    found /= found.sum(axis=0)
    return found


def compare(data: DataSet, splits: int, quick: bool) -> Figures:
    """Return the metrics of all learners for each split, and of `masked` on the first split."""
    params, few = our_params(data, quick), our_params(data, quick, few=True)
    metrics: dict[str, list[dict[str, float | None]]] = {}
    masked: Figures = {}
    for seed in range(splits):
        rows, test = split_rows(data.frame, seed=seed, stratify=True, classes=data.classes)
        if quick:
            rows = rows.take(np.arange(_QUICK_ROWS))
        assert test.label is not None
        predicted = {"ours": trained(rows, test, params, "plain").predictions}
        for loss in CATBOOST:
            predicted[loss] = catboost(rows, test, params, loss, seed)
        for name, found in predicted.items():
            metrics.setdefault(name, []).append(params.objective.compute_metrics(test.label, found))
        if not seed:
            masked = beside_plain(rows, test, few)
    return {
        "data": data.name,
        "rows": data.frame.n_samples,
        "columns": len(data.frame.names),
        "classes": len(data.classes),
        "metrics": metrics,
        "masked": masked,
    }


def beside_plain(rows: Frame, test: Frame, params: Params) -> Figures:
    """Compare a few tables trained by `masked` with the same in plaintext."""
    assert test.label is not None
    clear, ours = (trained(rows, test, params, protocol) for protocol in ("plain", "masked"))
    return {
        "tables": params.tables,
        "depth": params.depth,
        "same_tests": ours.model.compare_splits(
            clear.model, np.concatenate(encode_parties(_parties(rows), clear.encoders))
        ),
        "plain": params.objective.compute_metrics(test.label, clear.predictions),
        "masked": params.objective.compute_metrics(test.label, ours.predictions),
    }


def cost(classes: int) -> Figures:
    """Return the estimated cost of training with a number of classes."""
    row = {**{name: str(size) for name, size in SIZES.items()}, "task": "classification"}
    found = counted(row, "masked", classes)
    return {
        "classes": classes,
        "rounds": found.rounds,
        "online": found.online_bytes,
        "offline": found.offline_bytes,
        "memory": found.memory_bytes,
    }


def mean(found: Figures, learner: str, metric: str) -> float:
    """Return the mean of a metric over the splits."""
    return float(np.mean([split[metric] for split in found["metrics"][learner]]))


def behind(found: Figures) -> float:
    """Return the loss of accuracy compared with the better CatBoost model."""
    best = max(mean(found, learner, "accuracy") for learner in CATBOOST)
    return best - mean(found, "ours", "accuracy")


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="300 rows, 2 tables, one split")
    arguments = parser.parse_args()
    sets = []
    for name in DATA:
        splits = 1 if arguments.quick else arguments.splits
        sets.append(compare(load(name), splits, arguments.quick))
        print(sets[-1], flush=True)
    figures = {
        "sets": sets,
        "costs": [cost(classes) for classes in CLASSES],
        "run_seconds": time.perf_counter() - started,
    }
    path = results(arguments.quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-multiclass"))))
    return int(not arguments.quick and max(map(behind, sets)) > WORST)


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Several classes\n"
    yield (
        "One class against the rest, with a table for all of them, beside CatBoost's symmetric "
        "trees: 100 tables of depth 6, learning rate 0.3; CatBoost with its own defaults for all "
        "else, by softmax (`MultiClass`) and by one class against the rest "
        "(`MultiClassOneVsAll`). Means over "
        f"{len(figures['sets'][0]['metrics']['ours'])} stratified splits; accuracy, and log-loss. "
        f"{where(figures)}\n"
    )
    yield from table(("", "rows", "K", "ours", *CATBOOST), [_row(s) for s in figures["sets"]])
    yield (
        "On the first split, `masked` trains fewer tables beside the reference: the share of "
        "levels with the same tests, and both accuracies and log-losses.\n"
    )
    head = ("", "tables, depth", "same tests", "plain", "masked")
    yield from table(head, [_masked_row(found) for found in figures["sets"]])
    sizes = SIZES
    yield (
        f"What classes cost, counted: {sizes['samples']:,} rows, {sizes['features']} columns of "
        f"{sizes['parties']} participants, {sizes['tables']} tables of depth {sizes['depth']}. "
        "There are as many openings as with two classes; those longer than "
        f"{DEFAULT_ALL_TO_ALL_BYTES:,} bytes take two delays.\n"
    )
    two = figures["costs"][0]
    yield from table(
        ("K", "rounds", "MB between participants", "MB from the dealer", "memory, MB", "bytes"),
        [
            [
                f"{found['classes']}",
                f"{found['rounds']:,}",
                *(f"{found[what] / 1e6:,.1f}" for what in ("online", "offline", "memory")),
                f"{_bytes(found) / _bytes(two):.1f} times",
            ]
            for found in figures["costs"]
        ],
    )


def _bytes(found: Figures) -> int:
    return int(found["online"] + found["offline"])


def _row(found: Figures) -> list[str]:
    cells = [
        f"{mean(found, learner, 'accuracy'):.4f}, {mean(found, learner, 'log_loss'):.3f}"
        for learner in ("ours", *CATBOOST)
    ]
    return [found["data"], f"{found['rows']:,}", f"{found['classes']}", *cells]


def _masked_row(found: Figures) -> Sequence[str]:
    masked = found["masked"]
    cells = [
        f"{masked[name]['accuracy']:.4f}, {masked[name]['log_loss']:.4f}"
        for name in ("plain", "masked")
    ]
    return [
        found["data"],
        f"{masked['tables']}, {masked['depth']}",
        f"{masked['same_tests']:.3f}",
        *cells,
    ]


if __name__ == "__main__":
    sys.exit(main())
