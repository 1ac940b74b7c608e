"""A model as a file: versioned JSON that can be read from a stranger.

Reading runs no code, takes no size on trust beyond one limit on the whole file, and checks every
field. JSON numbers are written with the digits that read back to the same double; the two infinite
thresholds are the strings "-Infinity" and "Infinity".
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from privet.boosting.model import Feature, Model
from privet.config import Task, explain
from privet.errors import InputError, ModelError
from privet.service.files import write_atomically

VERSION = 1
MAX_BYTES = 256 * 2**20


_Index = Annotated[int, Field(ge=0, lt=1 << 31)]
_Infinity = Literal["-Infinity", "Infinity"]
_Name = Annotated[str, Field(max_length=1000)]
_PER_LEVEL = Field(min_length=1, max_length=10)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _FeatureRecord(_Record):
    name: _Name
    owner: _Name


class _TableRecord(_Record):
    feature: Annotated[list[_Index], _PER_LEVEL, FailFast()]
    bucket: Annotated[list[Annotated[int, Field(ge=0, le=254)]], _PER_LEVEL, FailFast()]
    threshold: Annotated[list[float | _Infinity], _PER_LEVEL, FailFast()]
    leaf_values: Annotated[list[float], Field(max_length=1 << 10), FailFast()]


class _ModelRecord(_Record):
    format: Literal["privet-model"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    task: Task
    base_score: float
    features: Annotated[list[_FeatureRecord], FailFast()]
    tables: Annotated[list[_TableRecord], Field(max_length=10_000), FailFast()]


class _Header(BaseModel):
    """What tells a model file of another version from something else."""

    model_config = ConfigDict(strict=True)

    format: Literal["privet-model"]
    version: int


def save_model(model: Model, path: str | Path) -> None:
    """Write a model to a file, atomically."""
    record = _ModelRecord(
        format="privet-model",
        version=VERSION,
        task=model.task,
        base_score=model.base_score,
        features=[_FeatureRecord(name=f.name, owner=f.owner) for f in model.features],
        tables=[
            _TableRecord(
                feature=model.feature[table].tolist(),
                bucket=model.bucket[table].tolist(),
                threshold=[_to_json(t) for t in model.threshold[table].tolist()],
                leaf_values=model.leaf_values[table].tolist(),
            )
            for table in range(model.n_tables)
        ],
    )
    write_atomically(path, record.model_dump_json().encode())


def load_model(path: str | Path) -> Model:
    """Read a model from a file; raise ModelError if it is not one, or not a sound one."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ModelError(f"{path}: larger than the {MAX_BYTES} bytes that a model may take")
    try:
        return _to_model(_ModelRecord.model_validate_json(content))
    except ValidationError as error:
        raise ModelError(f"{path}: {_diagnose(content, error)}") from None
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None


def _diagnose(content: bytes, error: ValidationError) -> str:
    try:
        header = _Header.model_validate_json(content)
    except ValidationError:
        return "not a model file of this software"
    if header.version != VERSION:
        return f"model file version {header.version}; this software reads version {VERSION}"
    return f"damaged: {explain(error)}"


def _to_json(threshold: float) -> float | _Infinity:
    if math.isinf(threshold):
        return "Infinity" if threshold > 0 else "-Infinity"
    return threshold


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
