"""Versioned JSON records from untrusted files, and the record of a fitted table encoding.

Reading runs no code, limits the size of the whole file, trusts no other size, and checks every
field. JSON numbers have enough digits to be read back as the same double; the two infinite
thresholds are the strings "-Infinity" and "Infinity".

The record of a table encoding is private to its participant: it contains thresholds, and the names
of categories and classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from privet.boosting.preparation import TableEncoding
from privet.data.encoding import Encoder
from privet.errors import DataError, ModelError
from privet.objectives.regression import MAX_CLASSES
from privet.schema import StrictSchema, format_validation_error
from privet.spec.column_types import ColumnType, ColumnTypeName
from privet.spec.sampling import WeightMean, WeightNormaliser

MAX_FILE_BYTES = 256 * 2**20

Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Infinity = Literal["-Infinity", "Infinity"]
Name = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=100_000)]
PerLevel = Field(min_length=1, max_length=10)


class FeatureRecord(StrictSchema):
    """A column of the federation."""

    name: Name
    owner: Name


class EncoderRecord(StrictSchema):
    """The fitted encoder of a column."""

    column: Name
    kind: ColumnTypeName
    form: Name | None
    one_hot: bool
    categories: Annotated[list[Text], Field(max_length=255)]

    @classmethod
    def from_encoder(cls, encoder: Encoder) -> EncoderRecord:
        """Return the record of an encoder."""
        column_type = encoder.column_type
        return cls(
            column=encoder.column,
            kind=column_type.name,
            form=column_type.date_format,
            one_hot=column_type.one_hot,
            categories=list(encoder.categories),
        )

    def to_encoder(self) -> Encoder:
        """Return the encoder of the record."""
        column_type = ColumnType(self.kind, self.form, self.one_hot)
        return Encoder(self.column, column_type, tuple(self.categories))


class FormatHeader(BaseModel):
    """The format and the version of a file."""

    model_config = ConfigDict(strict=True)

    format: str
    version: int


_RecordType = TypeVar("_RecordType", bound=StrictSchema)


class UnsupportedVersionError(ModelError):
    """A file has the right format, but an unsupported version."""


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file; raise ModelError if that fails or the file is too large."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ModelError(f"{path}: larger than the {MAX_FILE_BYTES} bytes that a model may take")
    return content


def parse_format_header(content: bytes) -> FormatHeader | None:
    """Return the format header of a record; None if there is none."""
    try:
        return FormatHeader.model_validate_json(content)
    except ValidationError:
        return None


def read_record(
    path: str | Path, format_name: str, record_types: Mapping[int, type[_RecordType]]
) -> _RecordType:
    """Read a record of one format and a supported version; raise ModelError if it is not one."""
    content = read_bytes(path)
    header = parse_format_header(content)
    if header is None or header.format != format_name:
        raise ModelError(f"{path}: {format_wrong_format(format_name)}")
    if header.version not in record_types:
        raise UnsupportedVersionError(
            f"{path}: {format_unsupported_version(format_name, header.version, *record_types)}"
        )
    try:
        return record_types[header.version].model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{path}: damaged: {format_validation_error(error)}") from None


def format_wrong_format(format_name: str) -> str:
    """Return the error text for a file of another format."""
    return f"not a {format_name.removeprefix('privet-')} file of this software"


def format_unsupported_version(format_name: str, found: int, *supported: int) -> str:
    """Return the error text for an unsupported file version."""
    noun, versions = (
        format_name.removeprefix("privet-"),
        " and ".join(str(version) for version in supported),
    )
    return (
        f"{noun} file version {found}; this software reads version {versions}: use the release "
        "that wrote it, or train again"
    )


def encode_threshold(threshold: float) -> float | Infinity:
    """Return a threshold as a JSON value."""
    if math.isinf(threshold):
        return "Infinity" if threshold > 0 else "-Infinity"
    return threshold


_Positive = Annotated[float, Field(gt=0)]
_Thresholds = Annotated[list[float | Infinity], Field(max_length=255), FailFast()]


class _ColumnTypeRecord(StrictSchema):
    name: ColumnTypeName
    form: Name | None
    one_hot: bool


class _ClassWeightRecord(StrictSchema):
    largest: _Positive
    of_largest: _Positive
    by_class: Annotated[list[Annotated[float, Field(ge=0)]], Field(max_length=MAX_CLASSES)]


class TableEncodingRecord(StrictSchema):
    """A fitted table encoding. All its numbers are read back as the same doubles."""

    owner: Name
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    candidates: Annotated[int, Field(ge=1, le=255)]
    """The maximum number of thresholds of a feature."""
    thresholds: Annotated[list[_Thresholds], FailFast()]
    """The thresholds of each feature."""
    classes: Annotated[list[Text], Field(max_length=MAX_CLASSES)]
    label: _ColumnTypeRecord | None
    weighting: _ClassWeightRecord | None

    @classmethod
    def from_encoding(cls, encoding: TableEncoding) -> TableEncodingRecord:
        """Return the record of a table encoding."""
        label_type, weighting = encoding.label_type, encoding.weighting
        return cls(
            owner=encoding.owner,
            encoders=[EncoderRecord.from_encoder(encoder) for encoder in encoding.encoders],
            candidates=encoding.thresholds.shape[1],
            thresholds=[
                [encode_threshold(cut) for cut in cuts[cuts < np.inf].tolist()]
                for cuts in encoding.thresholds
            ],
            classes=list(encoding.classes),
            label=None
            if label_type is None
            else _ColumnTypeRecord(
                name=label_type.name, form=label_type.date_format, one_hot=label_type.one_hot
            ),
            weighting=None
            if weighting is None
            else _ClassWeightRecord(
                largest=weighting.mean.max_weight,
                of_largest=weighting.mean.relative_mean,
                by_class=list(weighting.class_weights),
            ),
        )

    @classmethod
    def from_json(cls, content: bytes) -> TableEncoding:
        """Parse a table encoding; raise ModelError if it is not valid."""
        try:
            return cls.model_validate_json(content).to_encoding()
        except ValidationError as error:
            raise ModelError(
                f"what was learned of a table is damaged: {format_validation_error(error)}"
            ) from None
        except DataError as error:
            raise ModelError(f"what was learned of a table is damaged: {error}") from None

    def to_encoding(self) -> TableEncoding:
        """Return the table encoding of the record."""
        thresholds = np.full((len(self.thresholds), self.candidates), np.inf)
        for row, cuts in zip(thresholds, self.thresholds, strict=True):
            if len(cuts) > self.candidates:
                raise DataError(f"{len(cuts)} thresholds of {self.candidates}")
            row[: len(cuts)] = [float(cut) for cut in cuts]
        label_type, weighting = self.label, self.weighting
        return TableEncoding(
            owner=self.owner,
            encoders=tuple(record.to_encoder() for record in self.encoders),
            thresholds=thresholds,
            classes=tuple(self.classes),
            label_type=None
            if label_type is None
            else ColumnType(label_type.name, label_type.form, label_type.one_hot),
            weighting=None
            if weighting is None
            else WeightNormaliser(
                WeightMean(weighting.largest, weighting.of_largest), tuple(weighting.by_class)
            ),
        )
