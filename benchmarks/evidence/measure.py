"""Run of one measurement, and its row in a CSV."""

from __future__ import annotations

import csv
import datetime
import os
import platform
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence.rows import Row
from privet import Params, load_dataset
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model import Feature, Model
from privet.boosting.simulation import FederatedResult, train_federated, train_locally
from privet.boosting.training import TrainingSpec
from privet.data.datasets import DataSet
from privet.data.frame import Frame
from privet.data.partition import split_frame, split_rows
from privet.experiments import experiment
from privet.experiments.experiment import compute_metrics
from privet.runtime.local.network import Network
from privet.version import __version__

Figures = dict[str, Any]


def measure(row: Row) -> list[Figures]:
    """Measure a row; return one result, or one for each table count."""
    loaded = _load(row)
    rows, test = split_rows(loaded.frame, 0.2, 0)
    rows = _cut(rows, row.samples, row.features)
    test = _cut(test, 0, row.features)
    params = Params(
        task=loaded.task,
        tables=row.trained,
        depth=row.depth,
        buckets=row.buckets,
        learning_rate=1.0,
        # In the paper, the base score of classifications is 0.
        base_score=None if loaded.task == "regression" else 0.0,
    )
    metadata = {**asdict(row), **environment(), "command": row.command}
    metadata |= {"samples": rows.n_samples, "features": len(rows.names), "task": loaded.task}
    metadata["delay_ms"] = Network.parse(row.network).delay_ms
    if row.section == "learning":
        return [{**metadata, **figures} for figures in _learn(row, rows, test, params)]
    return [{**metadata, **figures} for figures in _time(row, rows, params)]


def _load(row: Row) -> DataSet:
    if row.data not in ("wide", "long"):
        return load_dataset(row.data)
    from sklearn.datasets import make_regression

    count = row.samples * 5 // 4
    data, target = make_regression(
        n_samples=count, n_features=row.features, n_informative=4, noise=10.0, random_state=4
    )
    names = tuple(f"x{number}" for number in range(row.features))
    return DataSet(row.data, "regression", Frame(names, data.T.copy(), label=target))


def _cut(frame: Frame, samples: int, features: int) -> Frame:
    if samples:
        frame = frame.take(np.arange(min(samples, frame.n_samples)))
    return frame.select(frame.names[:features]) if features else frame


def _learn(row: Row, rows: Frame, test: Frame, params: Params) -> list[Figures]:
    """Return the metrics on the test rows after every table."""
    assert rows.label is not None
    if row.protocol == "catboost":
        return list(_catboost(rows, test, params))
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in split_frame(rows, row.parties)
    ]
    model = train_locally(parties, rows.label, params, row.protocol)
    objective = params.objective
    return [
        {
            "table": count,
            **compute_metrics(objective, _first(model, count).predict(test.columns), test),
        }
        for count in range(1, params.tables + 1)
    ]


def _first(model: Model, count: int) -> Model:
    """Return the model with only its first tables."""
    cut = {name: getattr(model, name)[:count] for name in ("feature", "bucket", "threshold")}
    return Model(
        task=model.task,
        features=model.features,
        base_score=model.base_score,
        leaf_values=model.leaf_values[:count],
        **cut,
    )


def _catboost(rows: Frame, test: Frame, params: Params) -> list[Figures]:
    from catboost import CatBoost, Pool

    regression = params.task == "regression"
    model = CatBoost(
        {
            "loss_function": "RMSE" if regression else "Logloss",
            "iterations": params.tables,
            "depth": params.depth,
            "border_count": params.max_cut_count,
            "l2_leaf_reg": params.l2,
            "learning_rate": params.learning_rate,
            "leaf_estimation_iterations": 1,
            "boosting_type": "Plain",
            "bootstrap_type": "No",
            "random_strength": 0,
            "model_shrink_rate": 0,
            "thread_count": 1,
            "allow_writing_files": False,
            "verbose": False,
        }
    )
    model.fit(Pool(rows.columns.T, rows.label))
    kind = "RawFormulaVal" if regression else "Probability"
    found = []
    for count in range(1, params.tables + 1):
        predicted = model.predict(test.columns.T, prediction_type=kind, ntree_end=count)
        values = np.asarray(predicted if regression else predicted[:, 1], dtype=np.float64)
        found.append({"table": count, **compute_metrics(params.objective, values, test)})
    return found


def _time(row: Row, rows: Frame, params: Params) -> list[Figures]:
    """Return time and traffic for all tables of the row, and the predicted cost."""
    assert rows.label is not None
    started = time.perf_counter()
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in split_frame(rows, row.parties)
    ]
    done_at: list[float] = []
    federated = train_federated(
        parties,
        rows.label,
        params,
        row.protocol,
        network=row.network,
        dealer_link="none",  # as with offline preprocessing
        on_table=lambda *_: done_at.append(time.perf_counter() - started),
    )
    wall = time.perf_counter() - started
    if row.section != "tables":
        figures = _scaled(row, federated, wall)
        return [{**figures, **_predicted(row, parties, params), "wall_seconds": wall}]
    return [
        {
            "tables": count,
            "seconds": done_at[count - 1],
            **_predicted(replace(row, tables=count), parties, params),
            "wall_seconds": wall,
        }
        for count in range(5, row.tables + 1, 5)
    ]


def _scaled(row: Row, federated: FederatedResult, wall: float) -> Figures:
    meters = federated.program_result.meters
    seconds = experiment.measure_seconds(federated.program_result, wall)
    traffic = experiment.measure_traffic(federated.program_result)
    rounds = experiment.measure_rounds(meters[0], row.trained * row.depth)
    factor = row.tables / row.trained
    setup_rounds = meters[0].sum_traffic("online", "setup").rounds
    before = wall - seconds.online  # starting, bucketing, setting up
    return {
        "seconds": before + factor * seconds.online,
        "setup_seconds": seconds.setup,
        "online_seconds": factor * seconds.online,
        "offline_seconds": factor * seconds.offline,
        "rounds": setup_rounds + round(factor * (rounds.total - setup_rounds)),
        "online_bytes": round(factor * traffic.online_total),
        "setup_bytes": traffic.setup_total,
        "offline_bytes": round(factor * traffic.offline_total),
        "peak_rss_mb": federated.program_result.peak_rss_mb,
    }


def _predicted(row: Row, parties: list[Any], params: Params) -> Figures:
    """Return the predicted cost of a row; `model.py` converts it to seconds."""
    cost = cost_of(row, parties, params)
    return {
        "predicted_rounds": cost.rounds,
        "predicted_bytes": cost.online_bytes,
        "predicted_offline_bytes": cost.offline_bytes,
        "products": cost.n_multiplications,
    }


def cost_of(row: Row, parties: list[Any], params: Params) -> CostEstimate:
    """Return the cost estimate of all tables of a row."""
    training_spec = TrainingSpec(
        protocol=row.protocol,
        params=params.model_copy(update={"tables": row.tables}),
        parties=tuple(party.owner for party in parties),
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=len(parties) - 1,
        prediction_bits=params.objective.prediction_bits,
    )
    return estimate_cost(training_spec, training_spec.make_plan(parties[0].n_samples))


def environment() -> Figures:
    """Return the environment of results: versions, machine, date."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "version": f"{__version__} ({git.stdout.strip() or 'no commit'})",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{os.cpu_count()} cores, {_processor()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def save(path: Path, figures: list[Figures]) -> None:
    """Write rows to a CSV; replace rows with the same key."""
    kept = [old for old in load(path) if old["key"] != figures[0]["key"]] if path.exists() else []
    names = list(dict.fromkeys(name for entry in [*figures, *kept] for name in entry))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *({k: _short(v) for k, v in e.items()} for e in figures)])


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def load(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def constants(values: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the non-negative weights with the least relative error of predicted seconds."""
    from scipy.optimize import nnls

    found: FloatArray = nnls(values / seconds[:, None], np.ones(len(seconds)))[0]
    return found
