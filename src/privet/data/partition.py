"""Cutting one table the way experiments need it: rows into train and test, columns over parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.data.frame import Frame
from privet.errors import DataError, ParameterError


@dataclass(frozen=True)
class PartyFrame:
    """A participant's name and what it holds. The active one's frame has a label."""

    name: str
    frame: Frame


def split_rows(frame: Frame, test_size: float = 0.2, seed: int = 0) -> tuple[Frame, Frame]:
    """Return training and test rows, shuffled by `seed`; the paper's split is 80:20."""
    from sklearn.model_selection import train_test_split

    if not 0 < test_size < 1:
        raise ParameterError(f"test-size: must be between 0 and 1, got {test_size:g}")
    if frame.n_samples < 4:
        raise DataError(f"{frame.n_samples} rows are too few to set some aside for testing")
    try:
        train, test = train_test_split(
            np.arange(frame.n_samples), test_size=test_size, random_state=seed
        )
    except ValueError as error:
        raise ParameterError(f"test-size: {error}") from None
    return frame.take(train), frame.take(test)


def split_columns(frame: Frame, n_parties: int) -> list[PartyFrame]:
    """Spread the columns evenly over party1 to partyN; the label goes to the last, as active."""
    if n_parties < 2:
        raise ParameterError(f"parties: a federation has at least 2, got {n_parties}")
    if len(frame.names) < n_parties - 1:
        raise ParameterError(
            f"parties: {len(frame.names)} columns do not go round {n_parties - 1} passive parties"
        )
    parts = np.array_split(np.arange(len(frame.names)), n_parties)
    return [
        PartyFrame(
            name=f"party{number}",
            frame=replace(
                frame,
                names=tuple(frame.names[i] for i in part),
                columns=frame.columns[part],
                label=frame.label if number == n_parties else None,
            ),
        )
        for number, part in enumerate(parts, start=1)
    ]


def check_aligned(parties: Sequence[PartyFrame]) -> None:
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
        differs = first.frame.ids.differ(other.frame.ids)
        if len(differs):
            row = int(differs[0])
            raise DataError(
                f"row {row + 1} has another id at {other.name} than at {first.name} "
                f"({len(differs)} rows differ): sort both by id and drop what is not in both"
            )
