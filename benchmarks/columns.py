"""Accuracy on raw input tables, and the cost of one-hot columns.

    python -m benchmarks.columns [--splits 5]

Adult and Bank without preparation, compared with CatBoost with native categories and the same
number, depth and learning rate of tables (other settings are its defaults). Then the bytes of a
training run on Adult by four participants, 50 tables of depth 5: with its 14 columns, or with
one-hot columns, and with hidden and rounded cut counts.

Reads `raw/` of the folder in PRIVET_DATA. Writes docs/results/columns.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model import Feature
from privet.boosting.preparation import prepare_data
from privet.boosting.simulation import PLAINTEXT, train_locally
from privet.boosting.training import TrainingSpec
from privet.data.encoding import encode_frame, prepare_label
from privet.data.frame import Frame
from privet.data.partition import split_rows
from privet.data.reader import read_frame
from privet.spec.params import Params
from privet.spec.plan import disclose_cut_counts

NAME = "columns"
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "adult": ("adult.data.gz", {"names": ADULT_COLUMNS, "label": "income"}),
    "bank": ("bank.csv.gz", {"label": "y"}),
}
SETTINGS = ((50, 5, 0.3), (100, 6, 0.1))
"""Tables, depth, learning rate."""
PARTIES = 4


def main() -> None:
    """Measure, write the results, and print the section of the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--splits", type=int, default=5)
    splits = parser.parse_args().splits
    started = time.perf_counter()
    frames = {name: read_raw(name) for name in TABLES}
    rows = [
        _compare(name, frame, *setting, splits)
        for name, frame in frames.items()
        for setting in SETTINGS
    ]
    figures = {
        "splits": splits,
        "seconds": time.perf_counter() - started,
        "auc": rows,
        "bytes": _bytes(frames["adult"]),
    }
    kept = keep(results(quick=False) / f"{NAME}.json", figures, "make bench-columns")
    print(wrapped(section(kept)))


def read_raw(name: str) -> Frame:
    """Return a raw input table with a label of two classes."""
    folder = Path(os.environ.get("PRIVET_DATA", "")) / "raw"
    if not folder.is_dir():
        sys.exit(f"there is no {folder}: set PRIVET_DATA to the folder that has raw/")
    file, options = TABLES[name]
    frame, _ = prepare_label(read_frame(folder / file, **options), "classification")
    return frame


def _compare(
    name: str, frame: Frame, tables: int, depth: int, rate: float, splits: int
) -> dict[str, Any]:
    """Return the AUC of Privet and CatBoost on the same rows for each split."""
    from catboost import CatBoostClassifier
    from sklearn.metrics import roc_auc_score

    params = Params(task="classification", tables=tables, depth=depth, learning_rate=rate)
    found: dict[str, list[float]] = {"ours": [], "catboost": []}
    for seed in range(splits):
        train_rows, test_rows = split_rows(frame, 0.2, seed, stratify=True)
        prepared = prepare_data("all", train_rows.to_lazy(), params)
        assert prepared.label is not None
        model = train_locally([prepared.columns], prepared.label, params, PLAINTEXT)
        ours = model.predict(encode_frame(test_rows, prepared.encoders).columns)
        categories = category_columns(train_rows)
        cells, new = for_catboost(train_rows), for_catboost(test_rows)
        other = CatBoostClassifier(
            iterations=tables,
            depth=depth,
            learning_rate=rate,
            cat_features=categories,
            verbose=0,
            allow_writing_files=False,
            random_seed=seed,
        )
        other.fit(cells, train_rows.label)
        theirs = other.predict_proba(new)[:, 1]
        for key, predicted in (("ours", ours), ("catboost", theirs)):
            found[key].append(float(roc_auc_score(test_rows.label, predicted)))
        print(f"{name} {tables} x {depth}, split {seed}: {found['ours'][-1]:.4f}", file=sys.stderr)
    return {"data": name, "tables": tables, "depth": depth, "learning_rate": rate, **found}


def category_columns(frame: Frame) -> list[int]:
    """Return the indices of categorical columns."""
    return [k for k, content in enumerate(frame.schemas) if content.column_type.name == "category"]


def for_catboost(frame: Frame) -> list[list[Any]]:
    """Return the rows of a frame for CatBoost, with categories by name."""
    columns: list[list[Any]] = [values.tolist() for values in frame.columns]
    for k in category_columns(frame):
        texts = frame.schemas[k].categories
        columns[k] = ["" if isnan(v) else texts[int(v)] for v in columns[k]]
    return [list(row) for row in zip(*columns, strict=True)]


def _bytes(adult: Frame) -> list[dict[str, Any]]:
    """Return the cost of training on Adult for each preparation and cut disclosure."""
    from dataclasses import replace

    from privet.spec.column_types import ColumnSchema, ColumnType

    hot = ColumnType.parse("one-hot")
    one_hot = replace(
        adult,
        schemas=tuple(
            ColumnSchema(hot, c.categories) if c.column_type.name == "category" else c
            for c in adult.schemas
        ),
    )
    params = Params(task="classification", tables=50, depth=5, buckets=44)
    wide = prepare_data("all", one_hot.to_lazy(), params).columns
    params = Params(task="classification", tables=50, depth=5)
    raw = prepare_data("all", adult.to_lazy(), params).columns
    rows = []
    for preparation, columns, cuts in (
        ("one-hot", wide, "hidden"),
        ("one-hot", wide, "rounded"),
        ("raw", raw, "hidden"),
        ("raw", raw, "rounded"),
    ):
        filled = [min(count, params.max_cut_count) for count in columns.cut_counts]
        disclosed = disclose_cut_counts(filled, cuts, params.max_cut_count)  # type: ignore[arg-type]
        owners = np.array_split(np.arange(len(columns.names)), PARTIES)
        training_spec = TrainingSpec(
            protocol="masked",
            params=params,
            parties=tuple(f"party{k + 1}" for k in range(PARTIES)),
            features=tuple(
                Feature(columns.names[j], f"party{k + 1}")
                for k, indices in enumerate(owners)
                for j in indices
            ),
            active=PARTIES - 1,
            prediction_bits=10,
            announced_cut_counts=disclosed,
        )
        cost = estimate_cost(training_spec, training_spec.make_plan(int(0.8 * adult.n_samples)))
        rows.append(
            {
                "columns": preparation,
                "features": len(columns.names),
                "cuts": cuts,
                "rounds": cost.rounds,
                "online": cost.online_bytes,
                "offline": cost.offline_bytes,
            }
        )
    return rows


def section(figures: Figures) -> Iterator[str]:
    """Yield this part of the results page."""
    yield "## Raw columns, beside CatBoost"
    yield ""
    yield (
        "Adult and Bank as the files are: text, no header, other separators. Categories become "
        "ranks by frequency, 32 buckets a column. CatBoost has its native categories and as many "
        "tables of the same depth and learning rate. AUC on a fifth of the rows, mean over "
        f"{figures['splits']} stratified splits, the same for both; `worst`: the least of ours "
        f"less CatBoost's. {where(figures)}"
    )
    yield ""
    yield from table(
        ("", "tables", "depth", "rate", "ours", "CatBoost", "worst"),
        [
            (
                row["data"],
                str(row["tables"]),
                str(row["depth"]),
                str(row["learning_rate"]),
                f"{np.mean(row['ours']):.4f}",
                f"{np.mean(row['catboost']):.4f}",
                f"{min(np.subtract(row['ours'], row['catboost'])):+.4f}",
            )
            for row in figures["auc"]
        ],
    )
    yield (
        "What Adult takes by four participants, 50 tables of depth 5, 26,048 rows, as counted: "
        "with its 14 columns as they are, or with a column for each category, as people prepare it."
    )
    yield ""
    yield from table(
        ("columns", "features", "numbers of cuts", "rounds", "MB between", "MB dealt"),
        [
            (
                row["columns"],
                str(row["features"]),
                row["cuts"],
                f"{row['rounds']:,}",
                f"{row['online'] / 1e6:,.0f}",
                f"{row['offline'] / 1e6:,.0f}",
            )
            for row in figures["bytes"]
        ],
    )


if __name__ == "__main__":
    main()
