"""Which columns of one table belong to which party, as `partition` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privet.errors import ParameterError


def resolve_partition(
    partition: Any, feature_names: Iterable[str], n_features: int
) -> dict[str, list[int]]:
    """Return the columns of each party by position: every column once."""
    parts: Mapping[str, Sequence[Any]]
    if isinstance(partition, (int, np.integer)) and not isinstance(partition, bool):
        even = np.array_split(range(n_features), max(1, partition))
        parts = {f"party{number}": part.tolist() for number, part in enumerate(even, start=1)}
    elif isinstance(partition, Mapping):
        parts = partition
    elif isinstance(partition, (list, tuple)):
        parts = {f"party{number}": part for number, part in enumerate(partition, start=1)}
    else:
        parts = {"": 0}  # type: ignore[dict-item]
    if any(isinstance(part, str) or np.ndim(part) != 1 for part in parts.values()):
        raise ParameterError(
            f"partition: give a number, or the columns of each party as a list, not {partition}"
        )
    if len(parts) < 2:
        raise ParameterError(f"partition: a federation has at least 2 parties, got {partition}")
    names = {name: i for i, name in enumerate(feature_names)}
    result = {
        str(party): [_position(column, names, n_features) for column in columns]
        for party, columns in parts.items()
    }
    given = Counter(position for part in result.values() for position in part)
    for position in range(n_features):
        if given[position] != 1:
            what = list(names)[position] if names else position
            raise ParameterError(
                f"partition: column {what!r} is given to {given[position]} parties; "
                "every column belongs to one"
            )
    return result


def _position(column: Any, names: dict[str, int], n_features: int) -> int:
    if column in names:
        return names[column]
    if isinstance(column, (int, np.integer)) and 0 <= column < n_features:
        return int(column)
    raise ParameterError(f"partition: there is no column {column!r}")
