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

from privet.arrays import IndexArray, IndexSelection
from privet.errors import DataError, ParameterError
from privet.objectives.base import Objective
from privet.schema import quote_untrusted
from privet.spec.params import Params
from privet.spec.sampling import (
    TableSample,
    check_patience,
    count_sampled_rows,
    sample_features,
    sample_table,
)

CutDisclosure = Literal["exact", "rounded", "hidden"]
"""What all learn of a column: how many cuts it fills; that number rounded up to 1, 3, 7, 15 and so
on, B - 1 at most; or nothing, so that it is given B - 1."""


def disclose_cut_counts(
    cut_counts: Sequence[int], disclosure: CutDisclosure, max_count: int
) -> tuple[int, ...] | None:
    """Return what is told of columns that fill so many cuts, of `max_count`; None if nothing is."""
    if disclosure == "hidden":
        return None
    if disclosure == "exact":
        return tuple(cut_counts)
    return tuple(
        next(told for told in _rounded(max_count) if told >= count) for count in cut_counts
    )


def check_disclosed_cut_counts(
    disclosed: Sequence[int], disclosure: CutDisclosure, max_count: int
) -> None:
    """Raise DataError unless these are numbers that may be told."""
    allowed = [*range(max_count + 1)] if disclosure == "exact" else _rounded(max_count)
    for count in disclosed:
        if disclosure == "hidden" or count not in allowed:
            words = (
                f"0 to {max_count}" if disclosure == "exact" else ", ".join(str(n) for n in allowed)
            )
            raise DataError(
                f"cuts: {quote_untrusted(count)} is no number of cuts that may be told: "
                + (
                    "they are hidden"
                    if disclosure == "hidden"
                    else f"{disclosure}, it is one of {words}"
                )
            )


def require_some_cut(counts: Sequence[int] | None) -> None:
    """Raise DataError if all know that no feature has a cut."""
    if counts is not None and not any(counts):
        raise DataError("every column of all participants is constant: there is nothing to test")


def _rounded(max_count: int) -> list[int]:
    """Return 1, 3, 7, ... and `max_count`.

    Not 0: that would tell exactly that a column is constant. Its one cut is a test that every
    sample passes.
    """
    return [
        *((2 << k) - 1 for k in range(max_count.bit_length()) if (2 << k) - 1 < max_count),
        max_count,
    ]


MonotoneConstraints = tuple[int, ...]
"""Of every feature: 1 where scores never fall as it grows, -1 where they never rise, 0 if they may
do both. Empty, if all may."""


def _reject_bool(sign: object) -> object:
    """Refuse what Python takes for 1 and is not."""
    if isinstance(sign, bool):
        raise ValueError("is neither 1 nor -1")  # as pydantic takes it
    return sign


NamedConstraints = dict[str, Annotated[Literal[1, -1], BeforeValidator(_reject_bool)]]
"""Of some columns, by name."""


def normalise_constraints(
    monotone: Sequence[int], n_features: int, objective: Objective
) -> MonotoneConstraints:
    """Return constraints as plans have them; raise ParameterError if they cannot be kept.

    Several classes have scores of their own each, and it is their order that counts: one rises as
    much when others fall.
    """
    if not any(monotone):
        return ()
    require_single_output(objective)
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


def require_single_output(objective: Objective) -> None:
    """Raise ParameterError if there is more than one score."""
    if objective.n_outputs > 1:
        raise ParameterError(
            f"monotone: {objective.n_outputs} classes have no score that could rise or fall alone; "
            "leave it out, or learn one of two classes or a number"
        )


def list_constraints_by_feature(
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


MAX_SHARDS = 1000


@dataclass(frozen=True)
class Shard:
    """One part of the rows."""

    number: int
    """Which one it is, from 0."""
    training_rows: range
    """Where its rows to train on are, among all of these."""
    validation_rows: range
    """Where its rows to validate with are, among all of these."""

    @property
    def n_samples(self) -> int:
        """How many rows it has to train on."""
        return len(self.training_rows)

    @property
    def n_validation(self) -> int:
        """How many rows it has to validate with."""
        return len(self.validation_rows)

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return self.n_samples + self.n_validation

    def positions(self, n_samples: int) -> IndexArray:
        """Return where its rows are among all, if there are so many to train on."""
        trained, validated = (
            np.array(r, dtype=np.intp) for r in (self.training_rows, self.validation_rows)
        )
        return np.concatenate([trained, n_samples + validated])

    def select_sampled(self, rows: IndexSelection) -> IndexSelection:
        """Return its own among the rows that a table draws, counted within the shard."""
        if isinstance(rows, slice):
            return slice(self.n_samples)
        start, stop = np.searchsorted(rows, [self.training_rows.start, self.training_rows.stop])
        found: IndexArray = rows[start:stop] - self.training_rows.start
        return found


def split_into_shards(n_samples: int, n_validation: int, count: int) -> list[Shard]:
    """Return shards whose sizes differ by a row at most; raise DataError if one would be empty."""
    for what, rows in (("train on", n_samples), ("validate with", n_validation)):
        if rows < count and (rows or what == "train on"):
            raise DataError(f"shards: {count}, and there are {rows} rows to {what}: use fewer")
    return [
        Shard(
            number,
            _make_even_range(n_samples, number, count),
            _make_even_range(n_validation, number, count),
        )
        for number in range(count)
    ]


def _make_even_range(rows: int, number: int, count: int) -> range:
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

    def list_features(self, party_index: int) -> list[int]:
        """Return which features a participant holds, in the order of its own columns."""
        return [j for j, owner in enumerate(self.features) if owner == party_index]

    def map_by_feature(self, party_index: int, rows: Sequence[_Row]) -> dict[int, _Row]:
        """Return what a participant has for each of its own columns, by feature."""
        return dict(zip(self.list_features(party_index), rows, strict=True))


@dataclass(frozen=True)
class Plan:
    """The public parameters of a training: all that its control flow may depend on."""

    params: Params
    ownership: Ownership
    n_samples: int
    """How many rows are trained on."""
    reveal_loss: bool = False
    """Whether all learn the loss that every table starts from."""
    has_explanations: bool = False
    """Whether participants derive what features contribute to scores, after the last table."""
    announced_cut_counts: tuple[int, ...] | None = None
    """How many cuts each feature has, where all know; otherwise as many as it may have."""
    cached_owners: tuple[int, ...] | None = None
    """The participants whose masked indicators all have from an earlier training. None: masks are
    drawn for this training alone, and nothing is kept."""
    is_weighted: bool = False
    """Whether samples have weights, which the active participant alone knows."""
    n_validation: int = 0
    """How many rows come after them: they get scores, and are in no sum."""
    reveal_validation: bool = False
    """Whether the label's holder receives the predictions of validation rows at the end."""
    monotone: MonotoneConstraints = ()
    """Which way scores may move as features grow, if some may not move both ways."""
    reveal_gain: bool = False
    """Whether the label's holder learns what each level gains."""
    n_lattice_errors: int = 0
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
    def cut_counts(self) -> tuple[int, ...]:
        """How many cuts each feature is given: what a level chooses among."""
        if self.announced_cut_counts is not None:
            return self.announced_cut_counts
        return (self.params.max_cut_count,) * self.n_features

    @property
    def n_sampled(self) -> int:
        """How many rows every table is trained on."""
        return count_sampled_rows(self.params, self.n_samples)

    @property
    def is_sampled(self) -> bool:
        """Whether tables are trained on a part of the rows or features."""
        return min(self.params.subsample, self.params.colsample) < 1

    @property
    def must_check_residuals(self) -> bool:
        """Whether every table must check the squares of its rows' first derivatives."""
        return self.residual_check_reason is not None

    @property
    def residual_check_reason(self) -> str | None:
        """The term because of which a table may raise squares that must stay small, if any.

        Those of rows that it leaves out, or whose leaves it puts in order.
        """
        if self.objective.max_squared_gradients(self.n_samples) is None:
            return None
        if self.n_sampled < self.n_samples:
            return "subsample"
        return "monotone" if any(self.monotone) else None

    def split_into_shards(self) -> list[Shard]:
        """Return the parts that rows are worked on in."""
        return split_into_shards(self.n_samples, self.n_validation, self.shards)

    def sample_table(self, table: int) -> TableSample:
        """Return the rows and features that a table is trained on."""
        return sample_table(self.params, self.n_samples, self.cut_counts, table)

    def list_sampled_cut_counts(self, table: int) -> tuple[tuple[int, int], ...]:
        """Return how many cuts each feature has that a table may test, and its constraint."""
        features = sample_features(self.params, self.cut_counts, table)
        signs = self.monotone or (0,) * self.n_features
        found = np.array([self.cut_counts, signs])[:, features].tolist()
        return tuple(zip(*found, strict=True))
