"""What a job says of ids: what they are made of, how they are compared, how they are aligned.

    align = true

    [ids]
    parts = ["name", "born"]
    minimum = 1000

    [ids.normalise]
    name = ["strip", "casefold"]

Each participant says in its own file which columns the parts are, in this order.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.config import Config, printable
from privet.data.ids import Rule

MOST_ROWS = 60_000_000
"""A participant can align so many: what it keeps of an alignment fits a file that is read."""
_PARTS = ("id",)
_Count = Annotated[int, Field(ge=1, le=MOST_ROWS)]


class IdTerms(Config):
    """Ids, as all participants compare them."""

    parts: Annotated[list[str], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: list(_PARTS)
    )
    """What an id is composed of."""
    normalise: dict[str, list[Rule]] = Field(default_factory=dict)
    """How the parts are written where they are compared; a list of rules is for all of them."""
    minimum: _Count = 100
    """With fewer rows that all have, an alignment is an error."""
    padded: _Count | None = None
    """Everybody seems to have so many rows, to the dealer."""
    most_alignments: Annotated[int, Field(ge=1)] | None = None
    """How often a job may be aligned, predictions and services included."""

    @model_validator(mode="before")
    @classmethod
    def _for_all_parts(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("normalise"), list):
            parts = values.get("parts", _PARTS)
            return {**values, "normalise": dict.fromkeys(parts, values["normalise"])}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.parts)) < len(self.parts) or not all(map(printable, self.parts)):
            raise ValueError(f"parts: {self.parts} are not names that all differ")
        for part in self.normalise:
            if part not in self.parts:
                raise ValueError(
                    f"normalise: {part!r} is no part of an id; there are {', '.join(self.parts)}"
                )
        if self.padded is not None and self.padded < self.minimum:
            raise ValueError(f"padded: {self.padded} rows are fewer than the minimum")
        return self

    @property
    def rules(self) -> list[list[Rule]]:
        """The rules of each part."""
        return [self.normalise.get(part, []) for part in self.parts]

    @property
    def only_aligned(self) -> list[str]:
        """What is said here that is of no use without an alignment."""
        keys = ("minimum", "padded", "most_alignments")
        fields = type(self).model_fields
        return [key for key in keys if getattr(self, key) != fields[key].default]

    def work(self) -> dict[str, Any]:
        """Return what it depends on which rows are whose."""
        rules = dict(zip(self.parts, self.rules, strict=True))
        return {"ids.parts": self.parts, "ids.normalise": rules}

    def limits(self) -> dict[str, Any]:
        """Return the rest, which may change on the way."""
        keys = ("minimum", "padded", "most_alignments")
        return {f"ids.{key}": getattr(self, key) for key in keys}
