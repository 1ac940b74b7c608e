"""The public plan of a training run: ownership, shards, cut counts and constraints.

A column with few values has fewer cuts than the buckets allow. If cut counts are disclosed, a level
has fewer candidates; the disclosure reveals approximately how many values the column has.
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
"""What all participants learn about a column: its cut count; that count rounded up to 1, 3, 7, 15
and so on, at most B - 1; or nothing, and the column is given B - 1 cuts."""


def disclose_cut_counts(
    cut_counts: Sequence[int], disclosure: CutDisclosure, max_count: int
) -> tuple[int, ...] | None:
    """Return the disclosed cut counts of columns; None if they are hidden."""
    if disclosure == "hidden":
        return None
    if disclosure == "exact":
        return tuple(cut_counts)
    return tuple(
        next(rounded for rounded in _list_rounded_counts(max_count) if rounded >= count)
        for count in cut_counts
    )


def check_disclosed_cut_counts(
    disclosed: Sequence[int], disclosure: CutDisclosure, max_count: int
) -> None:
    """Raise DataError unless the disclosure allows these cut counts."""
    allowed = [*range(max_count + 1)] if disclosure == "exact" else _list_rounded_counts(max_count)
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
    """Raise DataError if disclosed counts show that no feature has a cut."""
    if counts is not None and not any(counts):
        raise DataError("every column of all participants is constant: there is nothing to test")


def _list_rounded_counts(max_count: int) -> list[int]:
    """Return 1, 3, 7, ... and `max_count`.

    0 is not among them, since it would reveal that a column is constant. A constant column has one
    cut, which sends every sample left.
    """
    return [
        *((2 << k) - 1 for k in range(max_count.bit_length()) if (2 << k) - 1 < max_count),
        max_count,
    ]


MonotoneConstraints = tuple[int, ...]
"""For each feature 1 if scores never fall as it grows, -1 if they never rise, 0 without constraint.
Empty if no feature has a constraint."""


def _reject_bool(sign: object) -> object:
    """Refuse True and False, which are integers in Python."""
    if isinstance(sign, bool):
        raise ValueError("is neither 1 nor -1")  # as pydantic takes it
    return sign


NamedConstraints = dict[str, Annotated[Literal[1, -1], BeforeValidator(_reject_bool)]]
"""Constraints by column name."""


def normalise_constraints(
    monotone: Sequence[int], n_features: int, objective: Objective
) -> MonotoneConstraints:
    """Return the constraints of a plan; raise ParameterError if they cannot be enforced.

    Several classes have one score each, and only the order of these scores matters: a class gains
    as much when the scores of the other classes fall.
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
    """Raise ParameterError if the objective has more than one score."""
    if objective.n_outputs > 1:
        raise ParameterError(
            f"monotone: {objective.n_outputs} classes have no score that could rise or fall alone; "
            "leave it out, or learn one of two classes or a number"
        )


def list_constraints_by_feature(
    features: Sequence[tuple[str, str]], wanted: Mapping[str, Mapping[str, int]]
) -> list[int]:
    """Return the constraint of every feature (owner, name) from constraints by owner and name.

    Raise ParameterError if an owner has no feature of a given name.
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
    """A contiguous range of training rows and one of validation rows.

    All participants have the same row order: that of the input, or of the sample alignment.
    """

    number: int
    """The shard number, from 0."""
    training_rows: range
    """The positions of its training rows among all training rows."""
    validation_rows: range
    """The positions of its validation rows among all validation rows."""

    @property
    def n_samples(self) -> int:
        """The number of training rows."""
        return len(self.training_rows)

    @property
    def n_validation(self) -> int:
        """The number of validation rows."""
        return len(self.validation_rows)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.n_samples + self.n_validation

    def positions(self, n_samples: int) -> IndexArray:
        """Return the positions of its rows among all rows, with `n_samples` training rows."""
        training, validation = (
            np.array(r, dtype=np.intp) for r in (self.training_rows, self.validation_rows)
        )
        return np.concatenate([training, n_samples + validation])

    def select_sampled(self, rows: IndexSelection) -> IndexSelection:
        """Return those rows of a table's sample that are in the shard, as positions within it."""
        if isinstance(rows, slice):
            return slice(self.n_samples)
        start, stop = np.searchsorted(rows, [self.training_rows.start, self.training_rows.stop])
        selected: IndexArray = rows[start:stop] - self.training_rows.start
        return selected


def split_into_shards(n_samples: int, n_validation: int, count: int) -> list[Shard]:
    """Return shards whose sizes differ by at most a row; raise DataError if one would be empty."""
    for purpose, rows in (("train on", n_samples), ("validate with", n_validation)):
        if rows < count and (rows or purpose == "train on"):
            raise DataError(f"shards: {count}, and there are {rows} rows to {purpose}: use fewer")
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
"""Whether contributions are revealed by feature, or summed over the features of a participant."""


@dataclass(frozen=True)
class Ownership:
    """The owners of features and label, as participant indices."""

    features: tuple[int, ...]
    """The owner of each feature."""
    active: int
    """The label holder."""

    def list_features(self, party_index: int) -> list[int]:
        """Return the features of a participant, in the order of its columns."""
        return [j for j, owner in enumerate(self.features) if owner == party_index]

    def map_by_feature(self, party_index: int, rows: Sequence[_Row]) -> dict[int, _Row]:
        """Return one entry for each column of a participant, by feature."""
        return dict(zip(self.list_features(party_index), rows, strict=True))


@dataclass(frozen=True)
class Plan:
    """The public parameters of a training run: its control flow depends on nothing else."""

    params: Params
    ownership: Ownership
    n_samples: int
    """The number of training rows."""
    reveal_loss: bool = False
    """Whether all participants learn the loss before each table."""
    has_explanations: bool = False
    """Whether participants derive feature contributions after the last table."""
    announced_cut_counts: tuple[int, ...] | None = None
    """The disclosed cut count of each feature; None if they are hidden."""
    cached_owners: tuple[int, ...] | None = None
    """The participants whose masked indicators all have from an earlier training. None: masks are
    drawn for this training alone, and nothing is kept."""
    is_weighted: bool = False
    """Whether samples have weights, which only the label holder knows."""
    n_validation: int = 0
    """The number of validation rows, which follow the training rows: they have scores, and are in
    no sum."""
    reveal_validation: bool = False
    """Whether the label holder receives the predictions of validation rows at the end."""
    monotone: MonotoneConstraints = ()
    """The direction in which scores can move as features grow, if some features are constrained."""
    reveal_gain: bool = False
    """Whether the label holder learns the gain of each level."""
    n_lattice_errors: int = 0
    """The number of errors that add up in every lattice mask; 0 if masks are uniform."""
    importances_by: ExplainBy | None = None
    """The grouping by which the label holder learns mean absolute contributions to the scores of
    validation rows; None if it learns none."""
    shards: int = 1
    """The number of shards, each computed by a worker group."""

    def __post_init__(self) -> None:
        check_patience(self.params, self.n_validation)

    @property
    def objective(self) -> Objective:
        """The objective that is learned."""
        return self.params.objective

    @property
    def n_rows(self) -> int:
        """The number of rows with scores: training rows, then validation rows."""
        return self.n_samples + self.n_validation

    @property
    def n_features(self) -> int:
        """The number of features of all participants."""
        return len(self.ownership.features)

    @property
    def cut_counts(self) -> tuple[int, ...]:
        """The cut count of each feature: the disclosed one, or B - 1."""
        if self.announced_cut_counts is not None:
            return self.announced_cut_counts
        return (self.params.max_cut_count,) * self.n_features

    @property
    def n_sampled(self) -> int:
        """The number of rows that every table is trained on."""
        return count_sampled_rows(self.params, self.n_samples)

    @property
    def is_sampled(self) -> bool:
        """Whether tables are trained on a sample of the rows or features."""
        return min(self.params.subsample, self.params.colsample) < 1

    @property
    def must_check_residuals(self) -> bool:
        """Whether every table must check the squared gradients of its rows."""
        return self.residual_check_reason is not None

    @property
    def residual_check_reason(self) -> str | None:
        """The setting because of which a table can raise squared gradients, if any.

        It can raise those of rows that it leaves out, or whose leaf values it puts in order.
        """
        if self.objective.max_squared_gradients(self.n_samples) is None:
            return None
        if self.n_sampled < self.n_samples:
            return "subsample"
        return "monotone" if any(self.monotone) else None

    def split_into_shards(self) -> list[Shard]:
        """Return the shards of all rows."""
        return split_into_shards(self.n_samples, self.n_validation, self.shards)

    def sample_table(self, table: int) -> TableSample:
        """Return the rows and features that a table is trained on."""
        return sample_table(self.params, self.n_samples, self.cut_counts, table)

    def list_sampled_cut_counts(self, table: int) -> tuple[tuple[int, int], ...]:
        """Return the cut count and the constraint of each feature that a table can split on."""
        features = sample_features(self.params, self.cut_counts, table)
        signs = self.monotone or (0,) * self.n_features
        selected = np.array([self.cut_counts, signs])[:, features].tolist()
        return tuple(zip(*selected, strict=True))
