"""Records in files: versioned JSON that can be read from a stranger.

Reading runs no code, takes no size on trust beyond one limit on the whole file, and checks every
field. JSON numbers are written with the digits that read back to the same double; the two infinite
thresholds are the strings "-Infinity" and "Infinity". A *sealed* record holds a digest of itself,
which shows that no bit of it was changed by accident; that is no protection against whoever can
write it.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Self

from privet.config import Checked, explain
from privet.errors import ModelError

MAX_BYTES = 256 * 2**20

Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Infinity = Literal["-Infinity", "Infinity"]
Name = Annotated[str, Field(max_length=1000)]
PER_LEVEL = Field(min_length=1, max_length=10)


class FeatureRecord(Checked):
    """A column of the federation."""

    name: Name
    owner: Name


class Sealed(Checked):
    """Something in a file that is useless if a single bit of it is wrong."""

    seal: Annotated[str, Field(max_length=64)] = ""

    def sealed(self) -> Self:
        """Return the same with its seal."""
        return self.model_copy(update={"seal": self._digest()})

    def is_intact(self) -> bool:
        """Tell whether the seal is this record's."""
        return self.seal == self._digest()

    def _digest(self) -> str:
        content = self.model_copy(update={"seal": ""}).model_dump_json()
        return hashlib.sha256(content.encode()).hexdigest()


class _Header(BaseModel):
    """What tells a file of another version from something else."""

    model_config = ConfigDict(strict=True)

    format: str
    version: int


_Kind = TypeVar("_Kind", bound=Checked)


def read_record(path: str | Path, kind: type[_Kind], form: str, version: int) -> _Kind:
    """Read a record of one format and version; raise ModelError if the file is not one."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ModelError(f"{path}: larger than the {MAX_BYTES} bytes that a model may take")
    try:
        record = kind.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{path}: {_diagnose(content, error, form, version)}") from None
    if isinstance(record, Sealed) and not record.is_intact():
        raise ModelError(f"{path}: damaged: its content does not fit its seal")
    return record


def _diagnose(content: bytes, error: ValidationError, form: str, version: int) -> str:
    noun = form.removeprefix("privet-")
    try:
        header = _Header.model_validate_json(content)
    except ValidationError:
        return f"not a {noun} file of this software"
    if header.format != form:
        return f"not a {noun} file of this software"
    if header.version != version:
        return (
            f"{noun} file version {header.version}; this software reads version {version}: use the "
            "release that wrote it, or train again"
        )
    return f"damaged: {explain(error)}"


def threshold_to_json(threshold: float) -> float | Infinity:
    """Return a threshold as JSON can hold it."""
    if math.isinf(threshold):
        return "Infinity" if threshold > 0 else "-Infinity"
    return threshold
