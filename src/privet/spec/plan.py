"""The public plan of a training run: ownership, shards, cut counts and constraints.

A column with few values has fewer cuts than buckets allow, and a federation that knows computes on
fewer candidates. What it knows by that is about how many values the column has.

A missing value counts as smaller than everything else: it passes every test.

Rows have an order that all share: as they stand, or as they were aligned. A shard is a stretch of
those to train on, and one of those to validate with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator

from privet.arrays import IndexArray, Indices
from privet.errors import DataError, ParameterError
from privet.objectives.base import Objective
from privet.schema import quoted
from privet.spec.params import Params
from privet.spec.sampling import Draw, check_patience, draw, draw_features, drawn_rows

Cuts = Literal["exact", "rounded", "hidden"]
"""What all learn of a column: how many cuts it fills; that number rounded up to 1, 3, 7, 15 and so
on, B - 1 at most; or nothing, so that it is given B - 1."""


def told_cuts(filled: Sequence[int], cuts: Cuts, most: int) -> tuple[int, ...] | None:
    """Return what is told of columns that fill so many cuts, of `most`; None if nothing is."""
    if cuts == "hidden":
        return None
    if cuts == "exact":
        return tuple(filled)
    return tuple(next(told for told in _rounded(most) if told >= count) for count in filled)


def check_told(told: Sequence[int], cuts: Cuts, most: int) -> None:
    """Raise DataError unless these are numbers that may be told."""
    allowed = [*range(most + 1)] if cuts == "exact" else _rounded(most)
    for count in told:
        if cuts == "hidden" or count not in allowed:
            words = f"0 to {most}" if cuts == "exact" else ", ".join(str(n) for n in allowed)
            raise DataError(
                f"cuts: {quoted(count)} is no number of cuts that may be told: "
                + ("they are hidden" if cuts == "hidden" else f"{cuts}, it is one of {words}")
            )


def check_some(counts: Sequence[int] | None) -> None:
    """Raise DataError if all know that no feature has a cut."""
    if counts is not None and not any(counts):
        raise DataError("every column of all participants is constant: there is nothing to test")


def _rounded(most: int) -> list[int]:
    """Return 1, 3, 7, ... and `most`.

    Not 0: that would tell exactly that a column is constant. Its one cut is a test that every
    sample passes.
    """
    return [*((2 << k) - 1 for k in range(most.bit_length()) if (2 << k) - 1 < most), most]


Monotone = tuple[int, ...]
"""Of every feature: 1 where scores never fall as it grows, -1 where they never rise, 0 if they may
do both. Empty, if all may."""


def _no_truth(sign: object) -> object:
    """Refuse what Python takes for 1 and is not."""
    if isinstance(sign, bool):
        raise ValueError("is neither 1 nor -1")  # as pydantic takes it
    return sign


Constraints = dict[str, Annotated[Literal[1, -1], BeforeValidator(_no_truth)]]
"""Of some columns, by name."""


def settled(monotone: Sequence[int], n_features: int, objective: Objective) -> Monotone:
    """Return constraints as plans have them; raise ParameterError if they cannot be kept.

    Several classes have scores of their own each, and it is their order that counts: one rises as
    much when others fall.
    """
    if not any(monotone):
        return ()
    refuse_several(objective)
    if len(monotone) != n_features:
        raise ParameterError(
            f"monotone: {len(monotone)} constraints for {n_features} features: each needs one, 0 "
            "where there is none"
        )
    wrong = next((sign for sign in monotone if sign not in (-1, 0, 1)), None)
    if wrong is not None:
        raise ParameterError(
            f"monotone: {wrong!r} is none of 1 (scores never fall as a feature grows), -1 (they "
            "never rise) and 0"
        )
    return tuple(int(sign) for sign in monotone)


def refuse_several(objective: Objective) -> None:
    """Raise ParameterError if there is more than one score."""
    if objective.outputs > 1:
        raise ParameterError(
            f"monotone: {objective.outputs} classes have no score that could rise or fall alone; "
            "leave it out, or learn one of two classes or a number"
        )


def by_feature(
    features: Sequence[tuple[str, str]], wanted: Mapping[str, Mapping[str, int]]
) -> list[int]:
    """Return the constraint of every feature, an owner and a name, as its owner's are wanted.

    Raise ParameterError if somebody has no feature of such a name.
    """
    for owner, constraints in wanted.items():
        for name in constraints:
            if (owner, name) in features:
                continue
            others = [other for other, feature in features if feature == name]
            where = f"it is {others[0]}'s" if others else "it is nobody's"
            raise ParameterError(
                f"monotone: {owner} has no feature {name!r}, {where}: name a column of numbers "
                f"that {owner} has"
            )
    return [wanted.get(owner, {}).get(name, 0) for owner, name in features]


MOST_SHARDS = 1000


@dataclass(frozen=True)
class Shard:
    """One part of the rows."""

    number: int
    """Which one it is, from 0."""
    trained: range
    """Where its rows to train on are, among all of these."""
    validated: range
    """Where its rows to validate with are, among all of these."""

    @property
    def n_samples(self) -> int:
        """How many rows it has to train on."""
        return len(self.trained)

    @property
    def n_validation(self) -> int:
        """How many rows it has to validate with."""
        return len(self.validated)

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return self.n_samples + self.n_validation

    def positions(self, n_samples: int) -> IndexArray:
        """Return where its rows are among all, if there are so many to train on."""
        trained, validated = (np.array(r, dtype=np.intp) for r in (self.trained, self.validated))
        return np.concatenate([trained, n_samples + validated])

    def drawn(self, rows: Indices) -> Indices:
        """Return its own among the rows that a table draws, counted within the shard."""
        if isinstance(rows, slice):
            return slice(self.n_samples)
        start, stop = np.searchsorted(rows, [self.trained.start, self.trained.stop])
        found: IndexArray = rows[start:stop] - self.trained.start
        return found


def cut_rows(n_samples: int, n_validation: int, count: int) -> list[Shard]:
    """Return shards whose sizes differ by a row at most; raise DataError if one would be empty."""
    for what, rows in (("train on", n_samples), ("validate with", n_validation)):
        if rows < count and (rows or what == "train on"):
            raise DataError(f"shards: {count}, and there are {rows} rows to {what}: use fewer")
    return [
        Shard(number, _stretch(n_samples, number, count), _stretch(n_validation, number, count))
        for number in range(count)
    ]


def _stretch(rows: int, number: int, count: int) -> range:
    return range(rows * number // count, rows * (number + 1) // count)


_Row = TypeVar("_Row")
ExplainBy = Literal["feature", "participant"]
"""What contributions are told of: each feature, or all features of a participant together."""


@dataclass(frozen=True)
class Ownership:
    """Who has what, by position among the participants."""

    features: tuple[int, ...]
    """The participant that holds each feature."""
    active: int
    """The participant that holds the label."""

    def of(self, participant: int) -> list[int]:
        """Return which features a participant holds, in the order of its own columns."""
        return [j for j, owner in enumerate(self.features) if owner == participant]

    def by_feature(self, participant: int, rows: Sequence[_Row]) -> dict[int, _Row]:
        """Return what a participant has for each of its own columns, by feature."""
        return dict(zip(self.of(participant), rows, strict=True))


@dataclass(frozen=True)
class Plan:
    """The public parameters of a training: all that its control flow may depend on."""

    params: Params
    ownership: Ownership
    n_samples: int
    """How many rows are trained on."""
    reveal_loss: bool = False
    """Whether all learn the loss that every table starts from."""
    explains: bool = False
    """Whether participants derive what features contribute to scores, after the last table."""
    cut_counts: tuple[int, ...] | None = None
    """How many cuts each feature has, where all know; otherwise as many as it may have."""
    kept: tuple[int, ...] | None = None
    """The participants whose masked indicators all have from an earlier training. None: masks are
    drawn for this training alone, and nothing is kept."""
    weighted: bool = False
    """Whether samples have weights, which the active participant alone knows."""
    n_validation: int = 0
    """How many rows come after them: they get scores, and are in no sum."""
    reveal_validation: bool = False
    """Whether the label's holder receives the predictions of validation rows at the end."""
    monotone: Monotone = ()
    """Which way scores may move as features grow, if some may not move both ways."""
    reveal_gain: bool = False
    """Whether the label's holder learns what each level gains."""
    errors: int = 0
    """How many errors add up in every lattice mask of a row's derivatives; 0: masks are uniform."""
    importances_by: ExplainBy | None = None
    """By what the label's holder learns how much scores of validation rows owe to features, if it
    does."""
    shards: int = 1
    """In how many parts rows are worked on, each by a group of workers of its own."""

    def __post_init__(self) -> None:
        check_patience(self.params, self.n_validation)

    @property
    def objective(self) -> Objective:
        """What is learned."""
        return self.params.objective

    @property
    def n_rows(self) -> int:
        """How many rows have scores: those to train on, then those to validate with."""
        return self.n_samples + self.n_validation

    @property
    def n_features(self) -> int:
        """How many features all participants have together."""
        return len(self.ownership.features)

    @property
    def cuts(self) -> tuple[int, ...]:
        """How many cuts each feature is given: what a level chooses among."""
        if self.cut_counts is not None:
            return self.cut_counts
        return (self.params.candidates,) * self.n_features

    @property
    def n_drawn(self) -> int:
        """How many rows every table is trained on."""
        return drawn_rows(self.params, self.n_samples)

    @property
    def draws(self) -> bool:
        """Whether tables are trained on a part of the rows or features."""
        return min(self.params.subsample, self.params.colsample) < 1

    @property
    def checks_squares(self) -> bool:
        """Whether every table must check the squares of its rows' first derivatives."""
        return self.raises_squares is not None

    @property
    def raises_squares(self) -> str | None:
        """The term because of which a table may raise squares that must stay small, if any.

        Those of rows that it leaves out, or whose leaves it puts in order.
        """
        if self.objective.largest_squares(self.n_samples) is None:
            return None
        if self.n_drawn < self.n_samples:
            return "subsample"
        return "monotone" if any(self.monotone) else None

    def cut(self) -> list[Shard]:
        """Return the parts that rows are worked on in."""
        return cut_rows(self.n_samples, self.n_validation, self.shards)

    def draw(self, table: int) -> Draw:
        """Return the rows and features that a table is trained on."""
        return draw(self.params, self.n_samples, self.cuts, table)

    def drawn_cuts(self, table: int) -> tuple[tuple[int, int], ...]:
        """Return how many cuts each feature has that a table may test, and its constraint."""
        features = draw_features(self.params, self.cuts, table)
        signs = self.monotone or (0,) * self.n_features
        found = np.array([self.cuts, signs])[:, features].tolist()
        return tuple(zip(*found, strict=True))
