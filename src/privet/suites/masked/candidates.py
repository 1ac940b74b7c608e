"""The cuts that a table chooses among, and which of equal ones it prefers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privet.arrays import IndexArray, Indices
from privet.gates.reciprocal_series import HIGH
from privet.runtime.runtime import Things
from privet.suites.masked.scales import Scales
from privet.suites.masked.tournament import Sizes, stages
from privet.terms.plan import Plan

HANDICAP_BITS = 20
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding makes about as much of
equal ones; a larger handicap would be wrong more often where scores nearly agree."""
FIRST_HANDICAP_BITS = 19
MOST_HANDICAP_BITS = 15
"""But where an objective starts even, many candidates of the first table are equal rather than
nearly so: 2^-19 for every feature before, which rounding rarely makes up for, and 2^-15 in all, at
most."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The cuts that a table chooses among."""

    feature: IndexArray
    """The feature of every cut: (C,)."""
    bucket: IndexArray
    """The last bucket that passes: (C,)."""
    stages: tuple[Sizes, ...]
    """Of their tournament."""
    carried: npt.NDArray[np.int64]
    """What they carry through it: for all, a feature; for its owner, the bucket."""
    constrained: IndexArray
    """Which of the cuts are of constrained features: (M,)."""
    whole: IndexArray
    """The constrained features: each is scored once more, as if it did not split nodes."""

    @classmethod
    def of(cls, plan: Plan, features: Indices, n_parties: int) -> Candidates:
        """Return the cuts of some features, and to test nothing, if a test must gain something.

        To test nothing is the one cut of a feature beyond all, which goes to the first one's owner.
        """
        cuts, owners = candidate_features(plan)
        chosen = np.arange(plan.n_features)[features]
        chosen = np.concatenate([chosen, np.arange(plan.n_features, len(cuts))])
        counts = tuple(cuts[j] for j in chosen)
        feature = np.repeat(chosen, counts)
        bucket = np.concatenate([np.arange(count) for count in counts])
        # Plus one, since zero is nothing.
        carried = np.zeros((1 + n_parties, len(feature)), dtype=np.int64)
        carried[0] = feature + 1
        owner = np.array(owners)[feature]
        carried[1 + owner, np.arange(len(owner))] = bucket + 1
        signs = np.array([*(plan.monotone or [0] * plan.n_features), 0])
        constrained = np.flatnonzero(signs[feature])
        whole = np.unique(feature[constrained])
        return cls(feature, bucket, stages(counts), carried, constrained, whole)

    @property
    def scored(self) -> IndexArray:
        """The feature of everything that is scored: of all cuts, and of what does not split."""
        return np.concatenate([self.feature, self.whole])

    @property
    def whole_of(self) -> IndexArray:
        """Where constrained cuts find what is scored of nodes that they do not split: (M,)."""
        found = np.searchsorted(self.whole, self.feature[self.constrained])
        return len(self.feature) + found


def candidate_features(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many cuts features have, and who owns them: also of what tests nothing."""
    owners = plan.ownership.features
    if not plan.params.min_gain:
        return plan.cuts, owners
    return (*plan.cuts, 1), (*owners, owners[0])


def things_to_test(plan: Plan) -> Things:
    """Return what is chosen among at a level, and who learns what of the choice."""
    cuts, owners = candidate_features(plan)
    receiver = plan.ownership.active if plan.reveal_gain else None
    return Things(owners, cuts, ("split feature", "split bucket"), receiver, "gain of a test")


def handicaps(plan: Plan, *, first: bool) -> list[Fraction]:
    """Return what the scores of each feature are multiplied with: a little less than 1.

    Lowered in proportion to its number, so that equal scores tend to go to the lowest, as in the
    reference.
    """
    last = plan.n_features << HANDICAP_BITS
    if first and plan.objective.even_start:
        last = max(1 << FIRST_HANDICAP_BITS, plan.n_features << MOST_HANDICAP_BITS)
    found = [1 - Fraction(j, last) for j in range(plan.n_features)]
    return [*found, Fraction(1)] if plan.params.min_gain else found


def raised_by(scales: Scales, gain: float) -> int:
    """Return what raises a score by twice a gain, or by more than any score has."""
    _, ring = scales.compared
    return min(int(2 * Fraction(gain) * units_of_score(scales)), 1 << (ring.bits - 2))


def units_of_score(scales: Scales) -> Fraction:
    """Return what a sum of G^2 / y of 1 is among scores that are compared.

    Their unit is one of what y P is below, P being the largest factor's.
    """
    drop, _ = scales.compared
    bits = scales.square_bits - scales.square_drop + scales.z_bits - drop
    return (scales.product_limit / HIGH) * Fraction(2) ** bits
