"""A whole model as a file, in the clear: what `plain` trains, and what joined parts give.

Such a file may say besides which estimator it belongs to, so that this can be made again.
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
    """For every output, its leaf values."""
    pass_share: Annotated[list[float], PerLevel] | None = None
    """Which share of the training rows passes each test, where that is known; versions before 4
    have none."""


class _HeaderRecord(StrictSchema):
    format: Literal["privet-model"]
    version: int
    task: Task
    features: Annotated[list[FeatureRecord], FailFast()]


class EstimatorRecord(StrictSchema):
    """What an estimator knows beside its model."""

    kind: Literal["classifier", "regressor"]
    parameters: dict[Name, Any]
    """Those of its constructor. A mapping is a list of pairs, by the key "pairs"."""
    partition: dict[Name, list[Index]]
    """The columns of each party, by position."""
    feature_names: list[Name] | None
    """The columns' names, where they have some."""
    classes: list[bool | int | float | Text] = Field(default_factory=list)
    """A classifier's classes as they were given."""
    class_type: Annotated[str, Field(pattern=r"^[<>|=]?[biufUO][0-9]{0,6}$")] = "U"
    """Their type, as numpy writes it."""


class _ModelRecord(_HeaderRecord):
    base_score: Annotated[list[float], _PerOutput]
    """For every output, its score before the first table."""
    encoders: Annotated[list[EncoderRecord], FailFast()] = Field(default_factory=list)
    """Version 2 has none: its columns are numbers."""
    classes: Annotated[list[Text], Field(max_length=1000)] = Field(default_factory=list)
    """Version 3 has no names of classes, and no estimator."""
    estimator: EstimatorRecord | None = None
    tables: Annotated[list[_DecisionTableRecord], Field(max_length=10_000), FailFast()]


class _DecisionTableRecordV1(_SplitsRecord):
    leaf_values: _LeafValues


class _ModelRecordV1(_HeaderRecord):
    """As version 1 has it: a model of one output."""

    base_score: float
    tables: Annotated[list[_DecisionTableRecordV1], Field(max_length=10_000), FailFast()]

    def upgrade(self) -> _ModelRecord:
        """Return the same as it is written now."""
        tables = [
            _DecisionTableRecord(**{**vars(table), "leaf_values": [table.leaf_values]})
            for table in self.tables
        ]
        return _ModelRecord(**{**vars(self), "base_score": [self.base_score], "tables": tables})


def write_model_file(
    model: Model, path: str | Path, estimator: EstimatorRecord | None = None
) -> None:
    """Write a model to a file, and what its estimator knows if it has one, atomically."""
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
    """Read a model from a file; raise ModelError if it is not one, or not a sound one."""
    return read_model_and_estimator(path)[0]


def read_model_and_estimator(path: str | Path) -> tuple[Model, EstimatorRecord | None]:
    """Read a model from a file, and what its estimator knew if it had one."""
    kinds: dict[int, type[_ModelRecordV1] | type[_ModelRecord]]
    kinds = {1: _ModelRecordV1, **dict.fromkeys(range(2, MODEL_VERSION + 1), _ModelRecord)}
    record = read_record(path, MODEL_FORMAT, kinds)
    if isinstance(record, _ModelRecordV1):
        record = record.upgrade()
    try:
        return _to_model(record), record.estimator
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None


def is_model_file(path: str | Path) -> bool:
    """Tell whether a file seems to be of a whole model: JSON, as opposed to a part."""
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
    shares = [table.pass_share for table in record.tables if table.pass_share is not None]
    if shares and [len(each) for each in shares] != [depth] * len(record.tables):
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
        left_fraction=np.array(shares) if shares else None,
    )
