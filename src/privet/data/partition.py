"""Partitions of one table for experiments: rows into train and test, columns over parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.arrays import FloatArray
from privet.data.frame import Frame, format_names
from privet.errors import DataError, ParameterError
from privet.runtime.run import DEALER_NAME
from privet.schema import Config, check_name
from privet.spec.column_types import is_match

DEFAULT_TEST_SIZE = 0.2
"""The fraction of rows for testing: the paper splits 80:20."""
DEFAULT_N_PARTIES = 4
"""The default number of parties, as in the paper."""
UNASSIGNED = "nobody"
"""The owner of columns that no participant receives."""

ColumnOwnership = dict[str, tuple[str, ...]]
"""The columns of each participant, in table order; the last participant has the label."""


class ColumnPartition(Config):
    """An ownership map of columns, as written in a TOML file."""

    columns: dict[str, list[str]]
    """Names of columns, or patterns of them, by participant: see `assign_columns`."""
    active: str | None = None
    """Who has the label: the last one, if this does not say."""


@dataclass(frozen=True)
class PartyFrame:
    """The name and the data of a participant. Only the label holder's frame has a label."""

    name: str
    frame: Frame


def split_rows(
    frame: Frame,
    test_size: float = DEFAULT_TEST_SIZE,
    seed: int = 0,
    *,
    stratify: bool = False,
    classes: Sequence[str] = (),
) -> tuple[Frame, Frame]:
    """Return training and test rows, shuffled by `seed`.

    With `stratify`, both parts have nearly the same fraction of each class. If `classes` is set,
    every class must have training rows.
    """
    from sklearn.model_selection import train_test_split

    if not 0 < test_size < 1:
        raise ParameterError(f"test-size: must be between 0 and 1, got {test_size:g}")
    if frame.n_samples < 4:
        raise DataError(f"{frame.n_samples} rows are too few to set some aside for testing")
    label = frame.label
    if stratify:
        if label is None:
            raise DataError("there is no label to stratify by")
        _check_classes(label, classes)
    by = label if stratify else None
    try:
        train, test = train_test_split(
            np.arange(frame.n_samples), test_size=test_size, random_state=seed, stratify=by
        )
    except ValueError as error:
        raise ParameterError(f"test-size: {error}") from None
    for k, name in enumerate(classes):
        if label is not None and not (label[train] == k).any():
            raise DataError(
                f"all rows with the label {name!r} were set aside for testing: get more such rows, "
                "or stratify"
            )
    return frame.take(train), frame.take(test)


def _check_classes(label: FloatArray, classes: Sequence[str]) -> None:
    """Raise DataError unless every class has a row for each part."""
    values, counts = np.unique(label, return_counts=True)
    rarest = int(np.argmin(counts))
    if counts[rarest] < 2:
        value = values[rarest]
        named = repr(classes[int(value)]) if classes else f"{value:g}"
        raise DataError(
            f"the label {named} is that of row {np.argmax(label == value) + 1} alone, which cannot "
            "be in training and test alike: get more such rows, or do not stratify"
        )


def split_frame(frame: Frame, n_parties: int) -> list[PartyFrame]:
    """Spread the columns evenly over party1 to partyN; the last is the label holder."""
    return split_by_ownership(frame, spread_columns_evenly(frame.names, n_parties))


def spread_columns_evenly(
    names: Sequence[str], n_parties: int, active: str | None = None
) -> ColumnOwnership:
    """Spread columns evenly over party1 to partyN; `active`, by default the last, has the label."""
    if n_parties < 2:
        raise ParameterError(f"parties: a federation has at least 2, got {n_parties}")
    if len(names) < n_parties - 1:
        raise ParameterError(
            f"parties: {len(names)} columns do not go round {n_parties - 1} passive parties"
        )
    parts = np.array_split(np.arange(len(names)), n_parties)
    spread = {
        f"party{number}": tuple(names[i] for i in part) for number, part in enumerate(parts, 1)
    }
    return _put_label_holder_last(spread, active)


def assign_columns(
    names: Sequence[str], patterns_by_party: Mapping[str, Sequence[str]], active: str | None = None
) -> ColumnOwnership:
    """Assign every column to a participant, by its name or by a pattern.

    In a pattern, * matches any characters and ? matches one. Every column must be assigned exactly
    once; columns to leave out are assigned to `nobody`. `active`, by default the last participant,
    has the label; only the label holder can have no columns.
    """
    assigned: dict[str, tuple[str, str]] = {}
    for party, patterns in patterns_by_party.items():
        check_name(party)
        if party == DEALER_NAME:
            raise ParameterError(
                f"columns: {DEALER_NAME!r} is the dealer's name, and it has no columns"
            )
        for pattern in patterns:
            for name in _match_columns(names, party, pattern):
                if name in assigned:
                    other, by = assigned[name]
                    raise ParameterError(
                        f"columns: {name!r} is given twice, to {other} by {by!r} and to {party} by "
                        f"{pattern!r}: every column belongs to one participant"
                    )
                assigned[name] = party, pattern
    unassigned = [name for name in names if name not in assigned]
    if unassigned:
        raise ParameterError(
            f"columns: {format_names(unassigned)} left over: give each to a participant, or drop "
            f"it by giving it to {UNASSIGNED!r}"
        )
    ownership = {
        party: tuple(name for name in names if assigned[name][0] == party)
        for party in patterns_by_party
        if party != UNASSIGNED
    }
    return _put_label_holder_last(ownership, active)


def _match_columns(names: Sequence[str], party: str, pattern: str) -> list[str]:
    """Return the columns that a name or a pattern matches."""
    if pattern in names:
        return [pattern]
    found = [name for name in names if is_match(name, pattern)]
    if not found:
        raise ParameterError(
            f"columns: {pattern!r} of {party} stands for no column; there are "
            f"{format_names(names)} (the label and the id are not among them)"
        )
    return found


def _put_label_holder_last(ownership: ColumnOwnership, active: str | None) -> ColumnOwnership:
    """Move the label holder to the end; raise ParameterError if another one has no column."""
    if len(ownership) < 2:
        raise ParameterError(
            "columns: a federation has at least 2 participants, here it has "
            f"{format_names([*ownership])}"
        )
    active = [*ownership][-1] if active is None else active
    if active not in ownership:
        raise ParameterError(f"active: {active!r} is none of {', '.join(ownership)}")
    for party, columns in ownership.items():
        if not columns and party != active:
            raise ParameterError(
                f"columns: {party} has neither a column nor the label: leave it out"
            )
    return {
        **{party: ownership[party] for party in ownership if party != active},
        active: ownership[active],
    }


def split_by_ownership(frame: Frame, ownership: ColumnOwnership) -> list[PartyFrame]:
    """Return the part of a table that each participant holds; the last one has the label."""
    *passive, active = (
        PartyFrame(party, frame.select(names)) for party, names in ownership.items()
    )
    return [
        *(
            PartyFrame(party.name, replace(party.frame, label=None, weight=None))
            for party in passive
        ),
        active,
    ]


def check_same_rows(parties: Sequence[PartyFrame]) -> None:
    """Raise DataError unless all parties hold the same samples in the same order."""
    first, *others = parties
    for other in others:
        if other.frame.n_samples != first.frame.n_samples:
            raise DataError(
                f"{first.name} has {first.frame.n_samples} rows, {other.name} "
                f"{other.frame.n_samples}: all participants need the same samples"
            )
        if first.frame.ids is None or other.frame.ids is None:
            continue
        mismatches = first.frame.ids.find_mismatches(other.frame.ids)
        if len(mismatches):
            row = int(mismatches[0])
            raise DataError(
                f"row {row + 1} has another id at {other.name} than at {first.name} "
                f"({len(mismatches)} rows differ): sort both by id and drop what is not in both"
            )
