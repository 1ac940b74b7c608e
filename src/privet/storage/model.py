"""Files of whole models in plaintext: of `plain` training, or joined from all parts.

The file can also contain the parameters of its scikit-learn estimator, to restore it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import FailFast, Field

from privet.boosting.model import Feature, Model
from privet.errors import InputError, ModelError
from privet.filesystem import write_atomically
from privet.schema import StrictSchema
from privet.spec.params import Task
from privet.storage.json_records import (
    EncoderRecord,
    FeatureRecord,
    Index,
    Infinity,
    Name,
    PerLevel,
    Text,
    encode_threshold,
    read_record,
)

MODEL_FORMAT = "privet-model"
MODEL_VERSION = 4
_LeafValues = Annotated[list[float], Field(max_length=1 << 10), FailFast()]
_PerOutput = Field(min_length=1, max_length=1000)


class _SplitsRecord(StrictSchema):
    feature: Annotated[list[Index], PerLevel, FailFast()]
    bucket: Annotated[list[Annotated[int, Field(ge=0, le=254)]], PerLevel, FailFast()]
    threshold: Annotated[list[float | Infinity], PerLevel, FailFast()]


class _DecisionTableRecord(_SplitsRecord):
    leaf_values: Annotated[list[_LeafValues], _PerOutput, FailFast()]
    """The leaf values of each output."""
    pass_share: Annotated[list[float], PerLevel] | None = None
    """The fraction of training rows that go left at each split, if known; not before version 4."""


class _HeaderRecord(StrictSchema):
    format: Literal["privet-model"]
    version: int
    task: Task
    features: Annotated[list[FeatureRecord], FailFast()]


class EstimatorRecord(StrictSchema):
    """The state of an estimator besides its model."""

    kind: Literal["classifier", "regressor"]
    parameters: dict[Name, Any]
    """The constructor parameters. A mapping is a list of pairs under the key "pairs"."""
    partition: dict[Name, list[Index]]
    """The columns of each party, by position."""
    feature_names: list[Name] | None
    """The column names, if any."""
    classes: list[bool | int | float | Text] = Field(default_factory=list)
    """The original classes of a classifier."""
    class_type: Annotated[str, Field(pattern=r"^[<>|=]?[biufUO][0-9]{0,6}$")] = "U"
    """The type of the classes, in numpy notation."""


class _ModelRecord(_HeaderRecord):
    base_score: Annotated[list[float], _PerOutput]
    """The base score of each output."""
    encoders: Annotated[list[EncoderRecord], FailFast()] = Field(default_factory=list)
    """Empty in version 2, in which all columns are numbers."""
    classes: Annotated[list[Text], Field(max_length=1000)] = Field(default_factory=list)
    """Empty in version 3, which has no class names and no estimator."""
    estimator: EstimatorRecord | None = None
    tables: Annotated[list[_DecisionTableRecord], Field(max_length=10_000), FailFast()]


class _DecisionTableRecordV1(_SplitsRecord):
    leaf_values: _LeafValues


class _ModelRecordV1(_HeaderRecord):
    """The record of version 1: a model with one output."""

    base_score: float
    tables: Annotated[list[_DecisionTableRecordV1], Field(max_length=10_000), FailFast()]

    def upgrade(self) -> _ModelRecord:
        """Convert the record to the current version."""
        tables = [
            _DecisionTableRecord(**{**vars(table), "leaf_values": [table.leaf_values]})
            for table in self.tables
        ]
        return _ModelRecord(**{**vars(self), "base_score": [self.base_score], "tables": tables})


def write_model_file(
    model: Model, path: str | Path, estimator: EstimatorRecord | None = None
) -> None:
    """Write a model, and the state of its estimator if set, to a file atomically."""
    record = _ModelRecord(
        format="privet-model",
        version=MODEL_VERSION,
        task=model.task,
        base_score=model.base_score.tolist(),
        features=[FeatureRecord(name=f.name, owner=f.owner) for f in model.features],
        encoders=[EncoderRecord.from_encoder(encoder) for encoder in model.encoders],
        classes=list(model.classes),
        estimator=estimator,
        tables=[
            _DecisionTableRecord(
                feature=model.feature[table].tolist(),
                bucket=model.bucket[table].tolist(),
                threshold=[encode_threshold(t) for t in model.threshold[table].tolist()],
                leaf_values=model.leaf_values[table].tolist(),
                pass_share=None
                if model.left_fraction is None
                else model.left_fraction[table].tolist(),
            )
            for table in range(model.n_tables)
        ],
    )
    write_atomically(path, record.model_dump_json().encode())


def read_model_file(path: str | Path) -> Model:
    """Read a model from a file; raise ModelError if it is not a valid one."""
    return read_model_and_estimator(path)[0]


def read_model_and_estimator(path: str | Path) -> tuple[Model, EstimatorRecord | None]:
    """Read a model from a file, and the state of its estimator, if any."""
    record_types: dict[int, type[_ModelRecordV1] | type[_ModelRecord]]
    record_types = {1: _ModelRecordV1, **dict.fromkeys(range(2, MODEL_VERSION + 1), _ModelRecord)}
    record = read_record(path, MODEL_FORMAT, record_types)
    if isinstance(record, _ModelRecordV1):
        record = record.upgrade()
    try:
        return _to_model(record), record.estimator
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None


def is_model_file(path: str | Path) -> bool:
    """Tell whether a file starts like a whole model, which is JSON, unlike a model part."""
    try:
        with Path(path).open("rb") as file:
            return file.read(1) == b"{"
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None


def _to_model(record: _ModelRecord) -> Model:
    depths = {len(table.feature) for table in record.tables}
    if len(depths) != 1:
        raise ModelError("all tables must have the same number of tests, and there must be one")
    depth = depths.pop()
    for table in record.tables:
        if (len(table.bucket), len(table.threshold)) != (depth, depth):
            raise ModelError("features, buckets and thresholds differ in number")
        if len(table.leaf_values) != len(record.base_score):
            raise ModelError("tables and base scores differ in the number of outputs")
        if any(len(values) != 1 << depth for values in table.leaf_values):
            raise ModelError(f"{depth} tests need {1 << depth} leaf values in every table")
    left_fractions = [table.pass_share for table in record.tables if table.pass_share is not None]
    if left_fractions and [len(each) for each in left_fractions] != [depth] * len(record.tables):
        raise ModelError("some tests have a share of rows that pass, and others have not")
    return Model(
        task=record.task,
        features=tuple(Feature(f.name, f.owner) for f in record.features),
        base_score=np.array(record.base_score),
        feature=np.array([table.feature for table in record.tables], dtype=np.intp),
        bucket=np.array([table.bucket for table in record.tables], dtype=np.intp),
        threshold=np.array([[float(t) for t in table.threshold] for table in record.tables]),
        leaf_values=np.array([table.leaf_values for table in record.tables]),
        encoders=tuple(encoder.to_encoder() for encoder in record.encoders),
        classes=tuple(record.classes),
        left_fraction=np.array(left_fractions) if left_fractions else None,
    )
