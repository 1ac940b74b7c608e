"""Accuracy of Privet, CatBoost and LightGBM on eight public data sets.

    python -m benchmarks.boosters [DATA ...] [--splits 10] [--quick]

All models have the same number, depth and learning rate of tables or trees: Privet's defaults.
CatBoost grows symmetric trees, as Privet does; LightGBM grows trees with a split at every node and
the same number of leaves. Other settings are the libraries' defaults; both get categorical columns
as such. Privet trains in plaintext; on the first split, `masked` also trains some tables, which
should have the same splits.

Needs catboost and lightgbm. Reads `raw/` of the folder in PRIVET_DATA, too. Writes
docs/results/boosters.json (a quick run: build/quick).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.columns import TABLES, category_columns, for_catboost, read_raw
from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.multiclass import beside_plain, trained
from benchmarks.public_data import load
from privet import DataSet, Frame, Params
from privet.arrays import FloatArray
from privet.data.partition import split_rows
from privet.experiments.comparison import compute_interval
from privet.objectives.metrics import list_class_probabilities

NAME = "boosters"
CHECKED = {
    "california": 5,
    "diabetes": 50,
    "credit": 5,
    "breast-cancer": 50,
    "adult": 5,
    "bank": 5,
    "dry-bean-7": 5,
    "digits-10": 3,
}
"""The data sets, and the number of tables that `masked` trains: all tables for few rows."""
OTHERS = ("CatBoost", "LightGBM")
METRICS = {"rmse": "RMSE", "auc": "AUC", "accuracy": "accuracy", "log_loss": "log-loss"}
ERRORS = ("rmse", "log_loss")
"""Metrics of which smaller values are better."""
_THREADS = 2
_QUICK_ROWS = 300

Learner = Callable[[Frame, Frame, Params, int], FloatArray]
"""Function of training rows, test rows, parameters and a seed, which returns values or (N, K)."""


def our_params(data: DataSet, tables: int | None = None) -> Params:
    """Return Privet's defaults, optionally with another number of tables."""
    settings: dict[str, Any] = {"classes": len(data.classes)} if data.classes else {}
    if tables is not None:
        settings["tables"] = tables
    return Params(task=data.task, **settings)


def ours(rows: Frame, test: Frame, params: Params, _: int) -> FloatArray:
    """Train Privet's model in plaintext."""
    found = trained(rows, test, params, "plain").predictions
    return found if params.task == "regression" else list_class_probabilities(found)


def catboost(rows: Frame, test: Frame, params: Params, seed: int) -> FloatArray:
    """Train CatBoost's symmetric trees."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    categories = category_columns(rows)
    cells, new = (for_catboost(frame) if categories else frame.columns.T for frame in (rows, test))
    return _fitted(
        CatBoostRegressor if params.task == "regression" else CatBoostClassifier,
        {
            "iterations": params.tables,
            "depth": params.depth,
            "learning_rate": params.learning_rate,
            "cat_features": categories,
            "random_seed": seed,
            "thread_count": _THREADS,
            "allow_writing_files": False,
            "logging_level": "Silent",
        },
        cells,
        new,
        rows.label,
    )


def lightgbm(rows: Frame, test: Frame, params: Params, seed: int) -> FloatArray:
    """Train LightGBM's trees with the same number of leaves."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    return _fitted(
        LGBMRegressor if params.task == "regression" else LGBMClassifier,
        {
            "n_estimators": params.tables,
            "max_depth": params.depth,
            "num_leaves": params.n_leaves,
            "learning_rate": params.learning_rate,
            "random_state": seed,
            "n_jobs": _THREADS,
            "verbosity": -1,
        },
        rows.columns.T,
        test.columns.T,
        rows.label,
        categorical_feature=category_columns(rows) or "auto",
    )


def _fitted(
    kind: Any, options: Figures, cells: Any, new: Any, label: Any, **fitting: Any
) -> FloatArray:
    model = kind(**options)
    model.fit(cells, label, **fitting)
    predict = getattr(model, "predict_proba", model.predict)
    return np.asarray(predict(new), dtype=np.float64)


LEARNERS: dict[str, Learner] = {"ours": ours, "CatBoost": catboost, "LightGBM": lightgbm}


def metrics(data: DataSet, label: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """Return the metrics of predictions; RMSE in standard deviations of all labels."""
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    if data.task == "regression":
        assert data.frame.label is not None
        error = np.sqrt(np.mean((label - predicted) ** 2))
        return {"rmse": float(error / np.std(data.frame.label))}
    loss = float(log_loss(label, predicted, labels=range(predicted.shape[1])))
    if len(data.classes) > 2:
        return {"accuracy": float(accuracy_score(label, predicted.argmax(1))), "log_loss": loss}
    return {"auc": float(roc_auc_score(label, predicted[:, 1])), "log_loss": loss}


def compare(data: DataSet, splits: int, checked: int, quick: bool = False) -> Figures:
    """Return the metrics of all learners for each split, and of `masked` on the first split."""
    params = our_params(data, 2 if quick else None)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in LEARNERS}
    masked: Figures = {}
    for seed in range(splits):
        stratify = data.task == "classification"
        rows, test = split_rows(data.frame, seed=seed, stratify=stratify, classes=data.classes)
        share = test.n_samples / rows.n_samples
        if quick:
            rows = rows.take(np.arange(_QUICK_ROWS))
        assert test.label is not None
        for name, learner in LEARNERS.items():
            predicted = learner(rows, test, params, seed)
            found[name].append(metrics(data, test.label, predicted))
        if not seed:
            masked = beside_plain(rows, test, our_params(data, checked))
    return {
        "data": data.name,
        "rows": data.frame.n_samples,
        "columns": len(data.frame.names),
        "test_per_train": share,
        "params": params.model_dump(include={"tables", "depth", "learning_rate"}),
        "metrics": found,
        "masked": masked,
    }


def better(found: Figures, other: str, metric: str) -> list[float]:
    """Return Privet's advantage over another learner for each split."""
    sign = -1 if metric in ERRORS else 1
    pairs = zip(found["metrics"]["ours"], found["metrics"][other], strict=True)
    return [sign * (privet[metric] - others[metric]) for privet, others in pairs]


def data_set(name: str) -> DataSet:
    """Return a data set, with categorical columns if its file has them."""
    if name in TABLES:
        return DataSet(name, "classification", read_raw(name))
    return load(name)


def missing() -> list[str]:
    """Return the required packages that are not installed."""
    from importlib.util import find_spec

    return [name for name in ("catboost", "lightgbm") if find_spec(name) is None]


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", nargs="*", default=[*CHECKED])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="300 rows, 2 tables, two splits")
    arguments = parser.parse_args()
    if missing_packages := missing():
        print(
            f"this needs {' and '.join(missing_packages)}: pip install {' '.join(missing_packages)}"
        )
        return 1
    quick = arguments.quick
    sets = []
    for name in arguments.data:
        set_started = time.perf_counter()
        splits, checked = (2, 2) if quick else (arguments.splits, CHECKED[name])
        sets.append(compare(data_set(name), splits, checked, quick))
        print(f"{name}: {time.perf_counter() - set_started:.0f} s", *_rows(sets[-1]), sep="\n  ")
        sys.stdout.flush()
    figures = {"sets": sets, "run_seconds": time.perf_counter() - started}
    path = results(quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-boosters"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    first = figures["sets"][0]
    params, splits = first["params"], len(first["metrics"]["ours"])
    yield "## Accuracy beside CatBoost and LightGBM\n"
    yield (
        f"All have {params['tables']} tables or trees of depth {params['depth']} and a learning "
        f"rate of {params['learning_rate']:g}, our defaults; CatBoost symmetric trees, LightGBM "
        "trees with a test of their own at every node and as many leaves; all else are their own "
        "defaults. Adult and Bank are as the files are; CatBoost and LightGBM are told which "
        f"columns are categories. Means over {splits} splits, stratified by class, the same for "
        "all, with 95 percent t intervals; differences are paired, split by split, and positive "
        "where ours is better. As splits share rows, the variance is Nadeau and Bengio's, as in "
        "`privet simulate --compare`. RMSE is in standard deviations of the label. "
        f"{where(figures)}\n"
    )
    head = ("", "rows", "columns", "", "ours", *OTHERS, *(f"ours, over {o}" for o in OTHERS))
    yield from table(head, [row for found in figures["sets"] for row in _rows(found)])
    yield (
        "Ours are trained in the clear (`plain`), since `masked` has its tests. On the first split "
        "`masked` trains that many tables, by four participants: the share of levels with the "
        "same tests, and a metric of both (RMSE in the label's unit).\n"
    )
    head = ("", "tables", "same tests", "", "plain", "masked")
    yield from table(head, [_masked_row(found) for found in figures["sets"]])
    yield f"All of it took {figures['run_seconds'] / 60:.1f} minutes.\n"


def _rows(found: Figures) -> Iterator[list[str]]:
    about = [found["data"], f"{found['rows']:,}", f"{found['columns']}"]
    share = found["test_per_train"]
    for metric in found["metrics"]["ours"][0]:
        means = [
            _mean([split[metric] for split in found["metrics"][name]], share) for name in LEARNERS
        ]
        gains = [_mean(better(found, other, metric), share, "+") for other in OTHERS]
        yield [*about, METRICS[metric], *means, *gains]
        about = ["", "", ""]


def _mean(values: Sequence[float], test_per_train: float, sign: str = "") -> str:
    mean, _, high = compute_interval(values, test_per_train)
    return f"{mean:{sign}.4f} ± {high - mean:.4f}"


def _masked_row(found: Figures) -> list[str]:
    masked = found["masked"]
    metric = next(name for name in ("rmse", "auc") if name in masked["plain"])
    return [
        found["data"],
        f"{masked['tables']}",
        f"{masked['same_tests']:.3f}",
        METRICS[metric],
        *(f"{masked[protocol][metric]:.4f}" for protocol in ("plain", "masked")),
    ]


if __name__ == "__main__":
    sys.exit(main())
