"""The specification of an input table, and guesses of its id and label columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.data.frame import format_names
from privet.data.sources.base import CSV_OPTION_NAMES, TableFormatOptions, is_url
from privet.data.sources.postgres import QUERY_DISPLAY_NAME, PostgresQuery
from privet.errors import DataError
from privet.spec.column_types import CATEGORY, ColumnType, is_match
from privet.spec.sampling import ClassWeight

_DEFAULT_OPTIONS = TableFormatOptions()


class TableSpec(TableFormatOptions):
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
    def _check_consistency(self) -> Self:
        if (self.path is None) == (self.query is None):
            raise ValueError("path, query: give one of them")
        for text in self.types.values():
            ColumnType.parse(text)
        _ = self.location  # creating a query validates it
        return self

    @property
    def location(self) -> str | PostgresQuery:
        """The path, or the query."""
        if self.query is not None:
            return PostgresQuery(sql=self.query, database=self.database)
        assert self.path is not None
        return self.path

    @property
    def display_name(self) -> str:
        """The name of the table in messages."""
        return self.path if self.path is not None else QUERY_DISPLAY_NAME

    @property
    def id_columns(self) -> list[str]:
        """The id columns."""
        if self.id is None:
            return []
        return [self.id] if isinstance(self.id, str) else list(self.id)

    @property
    def target_columns(self) -> list[str]:
        """The columns of the label and the weights, if any."""
        return [name for name in (self.label, self.weight) if name is not None]

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights."""
        return self.weight is not None or self.class_weight is not None

    def resolve_paths(self, home: Path) -> TableSpec:
        """Return the specification with a local path resolved against `home`."""
        if self.path is None or is_url(self.path):
            return self
        return self.with_path(home / self.path)

    def with_path(self, path: str | Path) -> TableSpec:
        """Return the specification of another table with the same columns."""
        return self.model_copy(update={"path": str(path), "query": None})

    def with_query(self, query: str) -> TableSpec:
        """Return the specification of the result of another query."""
        return self.model_copy(update={"path": None, "query": query})

    def for_rewritten_table(self, path: str | Path, names: Sequence[str]) -> TableSpec:
        """Return the specification of a rewritten copy with only these columns, not in CSV."""
        updates: dict[str, Any] = {key: getattr(_DEFAULT_OPTIONS, key) for key in CSV_OPTION_NAMES}
        for key in ("columns", "drop", "categorical", "types", "missing"):
            value = getattr(self, key)
            if isinstance(value, dict):
                updates[key] = {pattern: value[pattern] for pattern in _keep_matching(value, names)}
            elif value is not None and key != "missing":
                updates[key] = _keep_matching(value, names)
        updates["database"] = type(self).model_fields["database"].default
        return self.with_path(path).model_copy(update=updates)

    def select_features(self, names: Sequence[str]) -> list[str]:
        """Return the feature columns of a table."""
        special = [*self.id_columns, *self.target_columns]
        for name in special:
            if name not in names:
                raise DataError(f"there is no column {name!r}; there are {format_names(names)}")
            if special.count(name) > 1:
                raise DataError(f"column {name!r} is asked for twice: as id, label or weight")
        for key, patterns in (
            ("columns", self.columns or []),
            ("drop", self.drop),
            ("categorical", self.categorical),
            ("types", self.types),
            ("missing", self.missing if isinstance(self.missing, dict) else ()),
        ):
            _check_patterns_match(key, patterns, names)
        both = [name for name in special if name in (self.columns or ())]
        if both:
            raise DataError(
                f"column {both[0]!r} is asked for twice: as id, label or weight, and as feature"
            )
        chosen = names if self.columns is None else _select_in_order(self.columns, names)
        return [name for name in chosen if name not in special and not self.is_dropped(name)]

    def is_dropped(self, name: str) -> bool:
        """Tell whether `drop` contains a column."""
        return _is_any_match(name, self.drop)

    def get_declared_type(self, name: str) -> ColumnType | None:
        """Return the declared type of a column, if any."""
        # An exact name takes precedence over a pattern.
        for pattern, text in sorted(self.types.items(), key=lambda item: item[0] != name):
            if is_match(name, pattern):
                return ColumnType.parse(text)
        return CATEGORY if _is_any_match(name, self.categorical) else None

    def get_missing_texts(self, name: str) -> list[str]:
        """Return the declared texts for missing values in a column, besides the default ones."""
        if isinstance(self.missing, list):
            return self.missing
        return [
            text
            for pattern, texts in self.missing.items()
            if is_match(name, pattern)
            for text in texts
        ]


def _is_any_match(name: str, patterns: Iterable[str]) -> bool:
    return any(is_match(name, pattern) for pattern in patterns)


def _select_in_order(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that match patterns, in the order of the patterns, each once."""
    found = [name for pattern in patterns for name in names if is_match(name, pattern)]
    return list(dict.fromkeys(found))


def _check_patterns_match(key: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    fitting = _keep_matching(patterns, names)
    for pattern in patterns:
        if pattern not in fitting:
            raise DataError(
                f"{key}: there is no column {pattern!r}; there are {format_names(names)}"
            )


def _keep_matching(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the patterns that match a column."""
    return [pattern for pattern in patterns if any(is_match(name, pattern) for name in names)]


_LABELS = ("label", "target", "class", "outcome", "y")


def guess_id_column(names: Sequence[str]) -> str | None:
    """Guess the id column: one named `id`, or the only one whose name ends in `id`."""
    exact = [name for name in names if name.strip().casefold() == "id"]
    similar = [name for name in names if re.search(r"(^|[ _.-])id$", name.strip(), re.IGNORECASE)]
    return next((matches[0] for matches in (exact, similar) if len(matches) == 1), None)


def guess_label_column(names: Sequence[str]) -> str | None:
    """Guess the label column: the only one with a usual name such as `label` or `target`."""
    matches = [name for name in names if name.strip().casefold() in _LABELS]
    return matches[0] if len(matches) == 1 else None
