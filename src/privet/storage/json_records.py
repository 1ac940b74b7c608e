"""Versioned JSON records from untrusted files, and the record of a fitted table encoding.

Reading runs no code, takes no size on trust beyond one limit on the whole file, and checks every
field. JSON numbers are written with the digits that read back to the same double; the two infinite
thresholds are the strings "-Infinity" and "Infinity".

Nobody else's: there are thresholds in it, and the names of categories and classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from privet.boosting.preparation import Learned
from privet.data.encoding import Encoder
from privet.errors import DataError, ModelError
from privet.objectives.regression import MOST_CLASSES
from privet.schema import Checked, explain
from privet.spec.column_types import Kind, KindName
from privet.spec.sampling import Mean, Weighting

MAX_BYTES = 256 * 2**20

Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Infinity = Literal["-Infinity", "Infinity"]
Name = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=100_000)]
PER_LEVEL = Field(min_length=1, max_length=10)


class FeatureRecord(Checked):
    """A column of the federation."""

    name: Name
    owner: Name


class EncoderRecord(Checked):
    """What its owner learned of a column."""

    column: Name
    kind: KindName
    form: Name | None
    one_hot: bool
    categories: Annotated[list[Text], Field(max_length=255)]

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderRecord:
        """Return what is written of one."""
        kind = encoder.kind
        return cls(
            column=encoder.column,
            kind=kind.name,
            form=kind.form,
            one_hot=kind.one_hot,
            categories=list(encoder.categories),
        )

    def encoder(self) -> Encoder:
        """Return the one that was written."""
        kind = Kind(self.kind, self.form, self.one_hot)
        return Encoder(self.column, kind, tuple(self.categories))


class Preamble(BaseModel):
    """What tells a file of another version from something else."""

    model_config = ConfigDict(strict=True)

    format: str
    version: int


_Kind = TypeVar("_Kind", bound=Checked)


class OtherVersionError(ModelError):
    """A sound file, of a version that is not read here."""


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file; raise ModelError if that cannot be, or it is too large."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ModelError(f"{path}: larger than the {MAX_BYTES} bytes that a model may take")
    return content


def read_preamble(content: bytes) -> Preamble | None:
    """Return what a record says that it is; None if it is none."""
    try:
        return Preamble.model_validate_json(content)
    except ValidationError:
        return None


def read_record(path: str | Path, form: str, kinds: Mapping[int, type[_Kind]]) -> _Kind:
    """Read a record of one format, in one of some versions; raise ModelError if it is none."""
    content = read_bytes(path)
    preamble = read_preamble(content)
    if preamble is None or preamble.format != form:
        raise ModelError(f"{path}: {not_ours(form)}")
    if preamble.version not in kinds:
        raise OtherVersionError(f"{path}: {other_version(form, preamble.version, *kinds)}")
    try:
        return kinds[preamble.version].model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{path}: damaged: {explain(error)}") from None


def not_ours(form: str) -> str:
    """Say that a file is something else."""
    return f"not a {form.removeprefix('privet-')} file of this software"


def other_version(form: str, found: int, *known: int) -> str:
    """Say that a file is of a version that is not known here."""
    noun, reads = form.removeprefix("privet-"), " and ".join(str(version) for version in known)
    return (
        f"{noun} file version {found}; this software reads version {reads}: use the release that "
        "wrote it, or train again"
    )


def threshold_to_json(threshold: float) -> float | Infinity:
    """Return a threshold as JSON can hold it."""
    if math.isinf(threshold):
        return "Infinity" if threshold > 0 else "-Infinity"
    return threshold


_Positive = Annotated[float, Field(gt=0)]
_Cuts = Annotated[list[float | Infinity], Field(max_length=255), FailFast()]


class _KindRecord(Checked):
    name: KindName
    form: Name | None
    one_hot: bool


class _WeightingRecord(Checked):
    largest: _Positive
    of_largest: _Positive
    by_class: Annotated[list[Annotated[float, Field(ge=0)]], Field(max_length=MOST_CLASSES)]


class LearnedRecord(Checked):
    """What was learned of a table. All its numbers are read back as the same doubles."""

    owner: Name
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    candidates: Annotated[int, Field(ge=1, le=255)]
    """How many thresholds a feature may have."""
    thresholds: Annotated[list[_Cuts], FailFast()]
    """Those that each feature has."""
    classes: Annotated[list[Text], Field(max_length=MOST_CLASSES)]
    label: _KindRecord | None
    weighting: _WeightingRecord | None

    @classmethod
    def of(cls, learned: Learned) -> LearnedRecord:
        """Return what is written of it."""
        kind, weighting = learned.label_kind, learned.weighting
        return cls(
            owner=learned.owner,
            encoders=[EncoderRecord.of(encoder) for encoder in learned.encoders],
            candidates=learned.thresholds.shape[1],
            thresholds=[
                [threshold_to_json(cut) for cut in cuts[cuts < np.inf].tolist()]
                for cuts in learned.thresholds
            ],
            classes=list(learned.classes),
            label=None
            if kind is None
            else _KindRecord(name=kind.name, form=kind.form, one_hot=kind.one_hot),
            weighting=None
            if weighting is None
            else _WeightingRecord(
                largest=weighting.mean.largest,
                of_largest=weighting.mean.of_largest,
                by_class=list(weighting.by_class),
            ),
        )

    @classmethod
    def read(cls, content: bytes) -> Learned:
        """Return what was written; raise ModelError if it is not sound."""
        try:
            return cls.model_validate_json(content).learned()
        except ValidationError as error:
            raise ModelError(f"what was learned of a table is damaged: {explain(error)}") from None
        except DataError as error:
            raise ModelError(f"what was learned of a table is damaged: {error}") from None

    def learned(self) -> Learned:
        """Return what was written."""
        thresholds = np.full((len(self.thresholds), self.candidates), np.inf)
        for row, cuts in zip(thresholds, self.thresholds, strict=True):
            if len(cuts) > self.candidates:
                raise DataError(f"{len(cuts)} thresholds of {self.candidates}")
            row[: len(cuts)] = [float(cut) for cut in cuts]
        kind, weighting = self.label, self.weighting
        return Learned(
            owner=self.owner,
            encoders=tuple(record.encoder() for record in self.encoders),
            thresholds=thresholds,
            classes=tuple(self.classes),
            label_kind=None if kind is None else Kind(kind.name, kind.form, kind.one_hot),
            weighting=None
            if weighting is None
            else Weighting(
                Mean(weighting.largest, weighting.of_largest), tuple(weighting.by_class)
            ),
        )
