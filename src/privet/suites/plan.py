"""What the participants and the dealer of one training agree on beforehand, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from privet.arithmetic.shares import Share
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.config import Task


@dataclass(frozen=True)
class Plan:
    """The public parameters of a training: all that its control flow may depend on."""

    task: Task
    n_samples: int
    owners: tuple[int, ...]
    """The participant that holds each feature, by its index."""
    active: int
    """The participant that holds the label."""
    tables: int
    depth: int
    buckets: int
    l2: float
    learning_rate: float
    initial_score: float = 0.0
    """The score that every sample starts from."""
    reveal_loss: bool = False
    """Whether all learn the loss that every table starts from."""

    @property
    def n_features(self) -> int:
        """How many features all participants have together."""
        return len(self.owners)

    @property
    def leaves(self) -> int:
        """2^D: how many leaf values a table has."""
        return 1 << self.depth

    @property
    def candidates(self) -> int:
        """B - 1: how many tests of one feature a level chooses among."""
        return self.buckets - 1

    @property
    def largest_weight(self) -> int:
        """No G / (H + l2) of a leaf is larger in size: protocols compute rightly up to it.

        A regression's label is at most 4 in size. A classification's stay below 64 unless more than
        64 samples of a leaf are wrong and all but certain.
        """
        return 8 if self.task == "regression" else 64

    @property
    def largest_leaf(self) -> Fraction:
        """The leaf value of the largest weight; one beyond ends a training."""
        return Fraction(self.learning_rate) * self.largest_weight

    def features_of(self, participant: int) -> list[int]:
        """Return which features a participant holds, in the order of its own columns."""
        return [j for j, owner in enumerate(self.owners) if owner == participant]


@dataclass(frozen=True, repr=False)
class OwnData:
    """What one participant brings to a training."""

    buckets: BucketArray
    """The bucket of every sample in its own features: (own features, n_samples)."""
    label: FloatArray | None
    """At the active participant: in a regression centred, and at most 1 in size."""


@dataclass(frozen=True)
class TrainedTable:
    """What one participant has of a trained table. The dealer has its shapes."""

    features: IndexArray
    """Which feature each level tests: (depth,)."""
    buckets: IndexArray
    """The last bucket that passes, for tests of our own features; -1 for the others: (depth,)."""
    leaf_values: Share
    """Our share of the leaf values: (2^depth,)."""
    loss: Share | None = None
    """Our share of the mean squared residual before this table, if all agreed to reveal it."""


@dataclass(frozen=True)
class AppliedTests:
    """The tests of some tables, as one participant knows them, applied to some samples."""

    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    owners: IndexArray | None
    """Who owns each test, (tables, depth); None at the dealer, which does not know."""
    fails: BucketArray | None
    """1 where a sample fails one of our own tests, (tables, depth, n_samples); None at the
    dealer."""
