"""The specification of an input table, and a guess of it for a table without one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.data.frame import listing
from privet.data.sources.base import ABOUT_CSV, SourceOptions, is_address
from privet.data.sources.postgres import WHERE, Query
from privet.errors import DataError
from privet.spec.column_types import CATEGORY, Kind, fits
from privet.spec.sampling import ClassWeight

_DEFAULTS = SourceOptions()


class DataDescription(SourceOptions):
    """A table, as its owner describes it: `[data]` in party.toml.

    Wherever columns are listed, a name may be a pattern: `zip*`, `income_20??`.
    """

    path: str | None = None
    """A file or a folder of files, here or in a store: CSV, Parquet, Arrow."""
    query: str | None = None
    """A query to PostgreSQL, in place of a path."""
    database: str = "postgresql://"
    """Whom to ask: a service of libpq's service file, or an address without a password. What is
    left open, libpq takes from the environment."""
    id: str | list[str] | None = None
    """The column that says which sample a row is, or the columns that say it together."""
    label: str | None = None
    """The label's column, at the active participant."""
    positive: str | None = None
    """The label's value that is the positive class of a classification."""
    weight: str | None = None
    """The column of weights, there too: how much a row counts, relative to the others."""
    class_weight: ClassWeight | None = None
    """There too: "balanced", for the same total in every class, or weights by class; 1 for those
    that are not named."""
    columns: list[str] | None = None
    """The features: by default all other columns."""
    drop: list[str] = Field(default_factory=list)
    """Columns that are no features."""
    categorical: list[str] = Field(default_factory=list)
    """Columns of categories, though they hold numbers, or text that looks like something else."""
    types: dict[str, str] = Field(default_factory=dict)
    """What columns are, where that does not show: see `spec.column_types`."""
    missing: list[str] | dict[str, list[str]] = Field(default_factory=list)
    """What stands for a missing value, in all columns or by column: ["?"]."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.path is None) == (self.query is None):
            raise ValueError("path, query: give one of them")
        for text in self.types.values():
            Kind.parse(text)
        _ = self.table  # a query is checked as it is made
        return self

    @property
    def table(self) -> str | Query:
        """The path, or the query."""
        if self.query is not None:
            return Query(sql=self.query, database=self.database)
        assert self.path is not None
        return self.path

    @property
    def where(self) -> str:
        """How the table is called in messages."""
        return self.path if self.path is not None else WHERE

    @property
    def id_columns(self) -> list[str]:
        """The columns that say which sample a row is."""
        if self.id is None:
            return []
        return [self.id] if isinstance(self.id, str) else list(self.id)

    @property
    def answers(self) -> list[str]:
        """The columns of the label and of weights, as far as there are any."""
        return [name for name in (self.label, self.weight) if name is not None]

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.weight is not None or self.class_weight is not None

    def starting_from(self, home: Path) -> DataDescription:
        """Return the same with a path of this machine that does not depend on where we are."""
        if self.path is None or is_address(self.path):
            return self
        return self.at(home / self.path)

    def at(self, path: str | Path) -> DataDescription:
        """Return the description of another table like this one."""
        return self.model_copy(update={"path": str(path), "query": None})

    def asking(self, query: str) -> DataDescription:
        """Return the description of what another query returns."""
        return self.model_copy(update={"path": None, "query": query})

    def rewritten(self, path: str | Path, names: Sequence[str]) -> DataDescription:
        """Return the description of a table like this one, with these columns alone and no CSV."""
        left: dict[str, Any] = {key: getattr(_DEFAULTS, key) for key in ABOUT_CSV}
        for key in ("columns", "drop", "categorical", "types", "missing"):
            said = getattr(self, key)
            if isinstance(said, dict):
                left[key] = {pattern: said[pattern] for pattern in _fitting(said, names)}
            elif said is not None and key != "missing":
                left[key] = _fitting(said, names)
        left["database"] = type(self).model_fields["database"].default
        return self.at(path).model_copy(update=left)

    def features(self, names: Sequence[str]) -> list[str]:
        """Return which of a table's columns are features."""
        special = [*self.id_columns, *self.answers]
        for name in special:
            if name not in names:
                raise DataError(f"there is no column {name!r}; there are {listing(names)}")
            if special.count(name) > 1:
                raise DataError(f"column {name!r} is asked for twice: as id, label or weight")
        for key, patterns in (
            ("columns", self.columns or []),
            ("drop", self.drop),
            ("categorical", self.categorical),
            ("types", self.types),
            ("missing", self.missing if isinstance(self.missing, dict) else ()),
        ):
            _refuse_idle(key, patterns, names)
        both = [name for name in special if name in (self.columns or ())]
        if both:
            raise DataError(
                f"column {both[0]!r} is asked for twice: as id, label or weight, and as feature"
            )
        chosen = names if self.columns is None else _in_order(self.columns, names)
        return [name for name in chosen if name not in special and not self.drops(name)]

    def drops(self, name: str) -> bool:
        """Tell whether a column is to be left out."""
        return _among(name, self.drop)

    def declared(self, name: str) -> Kind | None:
        """Return what a column is declared to be, if it is."""
        # A name says more than a pattern that fits it, too.
        for pattern, text in sorted(self.types.items(), key=lambda item: item[0] != name):
            if fits(name, pattern):
                return Kind.parse(text)
        return CATEGORY if _among(name, self.categorical) else None

    def missing_in(self, name: str) -> list[str]:
        """Return what stands for a missing value in a column, beside what does everywhere."""
        if isinstance(self.missing, list):
            return self.missing
        return [
            text for pattern, texts in self.missing.items() if fits(name, pattern) for text in texts
        ]


def _among(name: str, patterns: Iterable[str]) -> bool:
    return any(fits(name, pattern) for pattern in patterns)


def _in_order(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that patterns name, in their order, each once."""
    found = [name for pattern in patterns for name in names if fits(name, pattern)]
    return list(dict.fromkeys(found))


def _refuse_idle(key: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    fitting = _fitting(patterns, names)
    for pattern in patterns:
        if pattern not in fitting:
            raise DataError(f"{key}: there is no column {pattern!r}; there are {listing(names)}")


def _fitting(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the patterns that fit some column."""
    return [pattern for pattern in patterns if any(fits(name, pattern) for name in names)]


_LABELS = ("label", "target", "class", "outcome", "y")


def likely_id(names: Sequence[str]) -> str | None:
    """Return the column that seems to say which sample a row is: `id`, or the only one like it."""
    exact = [name for name in names if name.strip().casefold() == "id"]
    alike = [name for name in names if re.search(r"(^|[ _.-])id$", name.strip(), re.IGNORECASE)]
    return next((found[0] for found in (exact, alike) if len(found) == 1), None)


def likely_label(names: Sequence[str]) -> str | None:
    """Return the column that seems to be the label, if there is one and no other."""
    found = [name for name in names if name.strip().casefold() in _LABELS]
    return found[0] if len(found) == 1 else None
