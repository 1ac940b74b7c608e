"""What the participants and the dealer of one training agree on beforehand, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from privet.terms.draws import Draw, draw, draw_features, drawn_rows
from privet.terms.monotone import Monotone
from privet.terms.objective import Objective
from privet.terms.params import Params
from privet.terms.shards import Shard, cut_rows
from privet.terms.validation import check_patience

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
