"""A whole model as a file, in the clear: what `plain` trains, and what joined parts give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import FailFast, Field

from privet.boosting.model import Feature, Model
from privet.config import Checked, Task
from privet.errors import InputError, ModelError
from privet.files.atomic import write_atomically
from privet.files.records import (
    PER_LEVEL,
    FeatureRecord,
    Index,
    Infinity,
    read_record,
    threshold_to_json,
)

FORMAT = "privet-model"
VERSION = 1


class _TableRecord(Checked):
    feature: Annotated[list[Index], PER_LEVEL, FailFast()]
    bucket: Annotated[list[Annotated[int, Field(ge=0, le=254)]], PER_LEVEL, FailFast()]
    threshold: Annotated[list[float | Infinity], PER_LEVEL, FailFast()]
    leaf_values: Annotated[list[float], Field(max_length=1 << 10), FailFast()]


class _ModelRecord(Checked):
    format: Literal["privet-model"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    task: Task
    base_score: float
    features: Annotated[list[FeatureRecord], FailFast()]
    tables: Annotated[list[_TableRecord], Field(max_length=10_000), FailFast()]


def save_model(model: Model, path: str | Path) -> None:
    """Write a model to a file, atomically."""
    record = _ModelRecord(
        format="privet-model",
        version=VERSION,
        task=model.task,
        base_score=model.base_score,
        features=[FeatureRecord(name=f.name, owner=f.owner) for f in model.features],
        tables=[
            _TableRecord(
                feature=model.feature[table].tolist(),
                bucket=model.bucket[table].tolist(),
                threshold=[threshold_to_json(t) for t in model.threshold[table].tolist()],
                leaf_values=model.leaf_values[table].tolist(),
            )
            for table in range(model.n_tables)
        ],
    )
    write_atomically(path, record.model_dump_json().encode())


def load_model(path: str | Path) -> Model:
    """Read a model from a file; raise ModelError if it is not one, or not a sound one."""
    record = read_record(path, FORMAT, {VERSION: _ModelRecord})
    try:
        return _to_model(record)
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None


def _to_model(record: _ModelRecord) -> Model:
    depths = {len(table.feature) for table in record.tables}
    if len(depths) != 1:
        raise ModelError("all tables must have the same number of tests, and there must be one")
    depth = depths.pop()
    for table in record.tables:
        if (len(table.bucket), len(table.threshold)) != (depth, depth):
            raise ModelError("features, buckets and thresholds differ in number")
        if len(table.leaf_values) != 1 << depth:
            raise ModelError(f"{depth} tests need {1 << depth} leaf values in every table")
    return Model(
        task=record.task,
        features=tuple(Feature(f.name, f.owner) for f in record.features),
        base_score=record.base_score,
        feature=np.array([table.feature for table in record.tables], dtype=np.intp),
        bucket=np.array([table.bucket for table in record.tables], dtype=np.intp),
        threshold=np.array([[float(t) for t in table.threshold] for table in record.tables]),
        leaf_values=np.array([table.leaf_values for table in record.tables]),
    )
