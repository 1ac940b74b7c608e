"""One participant's part of a model as a file: its own, to be kept from the others.

It holds the participant's thresholds and its shares of the leaf values. Whoever has all parts has
the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import FailFast, Field

from privet.boosting.model import Feature
from privet.boosting.part import LabelUnit, ModelPart
from privet.config import Checked, Task
from privet.errors import InputError, ModelError
from privet.files.atomic import write_atomically
from privet.files.job import Job
from privet.files.records import (
    PER_LEVEL,
    FeatureRecord,
    Index,
    Infinity,
    Name,
    Sealed,
    read_record,
    threshold_to_json,
)

FORMAT: Final = "privet-part"
VERSION = 2


class _TestRecord(Checked):
    """What a part knows of its own test: nothing of the others'."""

    bucket: Annotated[int, Field(ge=0, le=254)]
    threshold: float | Infinity


class _TableRecord(Checked):
    feature: Annotated[list[Index], PER_LEVEL, FailFast()]
    own: Annotated[list[_TestRecord | None], PER_LEVEL, FailFast()]
    leaf_shares: Annotated[
        list[Annotated[int, Field(ge=0, lt=1 << 32)]], Field(max_length=1 << 10), FailFast()
    ]


class _UnitRecord(Checked):
    centre: float
    scale: Annotated[float, Field(gt=0)]


class PartRecord(Checked):
    """What a participant has of a model, in training or after it."""

    protocol: Name
    task: Task
    party: Name
    features: Annotated[list[FeatureRecord], Field(min_length=1), FailFast()]
    fraction_bits: Annotated[int, Field(ge=1, le=28)]
    unit: _UnitRecord | None
    tables: Annotated[list[_TableRecord], Field(min_length=1, max_length=10_000), FailFast()]


class _FileRecord(Sealed):
    format: Literal["privet-part"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    model: Name
    job: dict[str, Any]
    data: Name
    run: Name
    part: PartRecord


@dataclass(frozen=True)
class PartFile:
    """A participant's part of a model, and what it belongs to."""

    part: ModelPart
    job: Job
    """The job that trained it, and whose participants predict with it."""
    data: str
    """The digest of the data that the participant trained it on."""
    run: str
    """The run of the job that trained its last table."""

    @property
    def model(self) -> str:
        """The name of the model: the same in all its parts, and in no other's."""
        digest = hashlib.sha256(f"{self.job.digest} {self.run}".encode())
        digest.update(self.part.feature.astype("<i8").tobytes())
        return digest.hexdigest()


def save_part(file: PartFile, path: str | Path) -> None:
    """Write a part to a file, atomically."""
    record = _FileRecord(
        format=FORMAT,
        version=VERSION,
        model=file.model,
        job=file.job.model_dump(),
        data=file.data,
        run=file.run,
        part=to_record(file.part),
    )
    write_atomically(path, record.sealed().model_dump_json().encode(), private=True)


def load_part(path: str | Path) -> PartFile:
    """Read a part from a file; raise ModelError if it is not one, or not a sound one."""
    record = read_record(path, _FileRecord, FORMAT, VERSION)
    try:
        file = PartFile(to_part(record.part), Job.parse(record.job), record.data, record.run)
        if file.model != record.model:
            raise ModelError("its name is not that of its content")
        if [f.owner for f in file.part.features if f.owner not in file.job.names]:
            raise ModelError("features of somebody who takes no part in the job")
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    return file


def to_record(part: ModelPart) -> PartRecord:
    """Return a part as it is written to files."""
    unit = part.unit
    return PartRecord(
        protocol=part.protocol,
        task=part.task,
        party=part.party,
        features=[FeatureRecord(name=f.name, owner=f.owner) for f in part.features],
        fraction_bits=part.fraction_bits,
        unit=None if unit is None else _UnitRecord(centre=unit.centre, scale=unit.scale),
        tables=[
            _TableRecord(
                feature=part.feature[table].tolist(),
                own=[
                    _TestRecord(bucket=bucket, threshold=threshold_to_json(threshold))
                    if bucket >= 0
                    else None
                    for bucket, threshold in zip(
                        part.bucket[table].tolist(), part.threshold[table].tolist(), strict=True
                    )
                ],
                leaf_shares=part.leaf_shares[table].tolist(),
            )
            for table in range(part.n_tables)
        ],
    )


def to_part(record: PartRecord) -> ModelPart:
    """Return what a record describes; raise ModelError if that cannot be."""
    depth = len(record.tables[0].feature)
    for table in record.tables:
        sizes = len(table.feature), len(table.own), len(table.leaf_shares)
        if sizes != (depth, depth, 1 << depth):
            raise ModelError("tables differ in their numbers of tests or leaf values")
    features = tuple(Feature(f.name, f.owner) for f in record.features)
    feature = np.array([table.feature for table in record.tables], dtype=np.intp)
    if feature.max() >= len(features):
        raise ModelError(f"a test names a feature that is not one of the {len(features)}")
    ours = np.array([f.owner == record.party for f in features])
    own = [test for table in record.tables for test in table.own]
    if [test is not None for test in own] != ours[feature].reshape(-1).tolist():
        raise ModelError(f"thresholds of other tests than {record.party}'s")
    bucket = [-1 if test is None else test.bucket for test in own]
    threshold = [np.nan if test is None else float(test.threshold) for test in own]
    unit = record.unit
    return ModelPart(
        protocol=record.protocol,
        task=record.task,
        features=features,
        party=record.party,
        feature=feature,
        bucket=np.array(bucket, dtype=np.intp).reshape(feature.shape),
        threshold=np.array(threshold).reshape(feature.shape),
        leaf_shares=np.array([table.leaf_shares for table in record.tables], dtype=np.uint32),
        fraction_bits=record.fraction_bits,
        unit=None if unit is None else LabelUnit(unit.centre, unit.scale),
    )
