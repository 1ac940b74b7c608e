"""How numbers are scaled: rings, fraction bits and bounds, all derived from the plan.

Sums of derivatives are in rings just wide enough for them. A sum of second derivatives plus l2, y,
falls into one of a few classes, whose bounds grow by a ratio R: l2 R^e <= y < l2 R^(e+1). Times
R^(E-e), it is between 1/R and 1 of what is public, and so its reciprocal is smooth
(docs/decisions/0024-reciprocals.md).

Everything here is computed in integers and fractions, and comes out the same at everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from privet.arithmetic.exact import ceil_log2, floor_log2
from privet.arithmetic.rings import Ring, integers_modulo
from privet.errors import ParameterError
from privet.gates.reciprocal_series import HIGH, LOW
from privet.gates.sigmoid_series import LARGEST_SCORE, SCORE_BITS
from privet.suites.masked.coarse import WORD, CoarseSum, coarse_sums
from privet.suites.masked.thresholds import Thresholds, l2_in_units, least_in_units
from privet.suites.masked.units import Units
from privet.terms.plan import Plan

MOST_RATIO = 7
SQUARE_BITS = 40
"""Bits of a square G^2 P that are opened; it is signed, so below 2^38."""
Z_BITS = 58
"""Fraction bits of a reciprocal before it is opened: of dealt waves and public coefficients."""
DEALT_BITS = 32
_PERIOD = Fraction(3, 2)
_FINE = 8  # multiples of y are integers; with at least so many the period is near the one wanted
_MOST_NORMALISED = 26
_JUST_BELOW = Fraction(255, 256)  # so that what is rounded up still fits


@dataclass(frozen=True)
class Scales:
    """The scales of one training."""

    units: Units
    y_bits: int
    """Fraction bits that y has beyond those of second derivatives."""
    l2: int
    """l2 in units of y."""
    ratio: int
    """R."""
    classes: int
    """E: how many bounds between classes there are."""
    least: int
    """Sums of second derivatives below this, in their units, count for nothing."""
    score_limit: Fraction
    """No sum of G^2 / y over outputs and a level's nodes is larger: as a fact, or a check ends the
    training."""
    proven: bool
    """Whether that is a fact."""
    largest_weight: Fraction
    """The largest G / y of a leaf that passes."""
    outputs: int
    """K."""
    sides: int
    """How many G^2 / y add up to the score of a cut, at most: over outputs, nodes and sides."""
    rate: Fraction

    @classmethod
    def of(cls, plan: Plan) -> Scales:
        """Choose scales for a plan; raise ParameterError if none will do.

        Sums are narrow wherever that is enough, and otherwise wide, if masks are lattice ones.
        """
        try:
            return cls._of(plan, Units.narrow(plan))
        except ParameterError:
            if not plan.errors:
                raise
        return cls._of(plan, Units.wide_ones(plan))

    @classmethod
    def _of(cls, plan: Plan, units: Units) -> Scales:
        objective, n_samples, params = plan.objective, plan.n_samples, plan.params
        l2_in_h = Fraction(params.l2) * (1 << units.h_bits)
        y_bits, l2 = l2_in_units(l2_in_h, units.h_limit, units.largest_y)
        largest = (units.h_limit << y_bits) + l2
        classes = 0
        while (ratio := _root_above(Fraction(largest, l2), classes + 1)) > MOST_RATIO:
            classes += 1
        proven = objective.unit_curvature
        # G^2 / y is at most the sum of g^2 / h. In a regression that is the squared error. In a
        # classification it is N an output for a model that knows what it does not know.
        each = units.stretch**2 / 4 if proven else Fraction(4)
        limit = each * n_samples * objective.outputs
        if plan.checks_squares:
            limit = units.stretch**2 * (objective.largest_squares(n_samples) or 0)
        rate = Fraction(params.learning_rate)
        weight = objective.largest_weight * units.stretch
        scales = cls(
            units=units,
            y_bits=y_bits,
            l2=l2,
            ratio=ratio,
            classes=classes,
            least=least_in_units(plan, units),
            score_limit=limit,
            proven=proven,
            largest_weight=weight if proven else min(weight, _JUST_BELOW * LARGEST_SCORE / rate),
            outputs=objective.outputs,
            sides=objective.outputs * params.leaves,
            rate=rate,
        )
        if largest >= 2 * units.largest_y or not scales._squares_fit(plan):
            several = f" and {objective.outputs} classes" if objective.outputs > 1 else ""
            raise ParameterError(
                f"l2: {params.l2:g} with {n_samples} samples{several} needs more bits than sums "
                "have; bring them closer together"
                + ("" if plan.errors else ", or use lattice masks")
            )
        return scales

    def _squares_fit(self, plan: Plan) -> bool:
        """Tell whether G keeps enough bits for G^2 P to tell scores apart.

        So that the largest is below 2^62, a unit of G is 2^-31 of the root of it. That is at most
        2^-9 with narrow sums, and 2^-27 of all samples with wide ones. Since all sums that matter
        are a part of the samples, scores are as near to what they should be with more of them.
        """
        largest = self.product_limit * self.score_limit
        if not self.units.wide:
            return largest <= 1 << 44 and self._coarse[0] <= WORD
        return largest <= (16 * plan.n_samples) ** 2 and (self.proven or self._coarse[0] <= WORD)

    # What y is compared with, and multiplied by.

    @cached_property
    def thresholds(self) -> Thresholds:
        """How y's class, and whether H counts, are found on as few bits of H as will do."""
        return Thresholds.of(
            h_limit=self.units.h_limit,
            counts=self.units.h_bits == 0,
            l2=self.l2,
            y_bits=self.y_bits,
            ratio=self.ratio,
            classes=self.classes,
            least=self.least,
            noisy=self.units.g_more > 0,
        )

    # The normalised y, m = multiple y P, below `top`.

    @cached_property
    def _normalised(self) -> tuple[int, int]:
        """The multiple, and the bits of a ring that is the period."""
        whole = self.l2 * self.ratio ** (self.classes + 1)
        bits = ceil_log2(_PERIOD * whole * _FINE)
        return round(Fraction(1 << bits) / (_PERIOD * whole)), bits

    @property
    def multiple(self) -> int:
        """What y P is multiplied with."""
        return self._normalised[0]

    @property
    def wide_ring(self) -> Ring:
        """The ring that m is computed in."""
        return integers_modulo(self._normalised[1])

    @property
    def narrow_ring(self) -> Ring:
        """The ring that m is opened in, without its lowest bits."""
        return integers_modulo(min(_MOST_NORMALISED, self._normalised[1]))

    @property
    def period(self) -> Fraction:
        """The ring in parts of `top`, the largest m."""
        multiple, bits = self._normalised
        return Fraction(1 << bits, multiple * self.l2 * self.ratio ** (self.classes + 1))

    @property
    def z_ring(self) -> Ring:
        """The ring that a reciprocal is opened in; it is below half of its size.

        With a fact behind the scores' bound, as many bits are kept as fit. Otherwise the bound is
        on squares, and scores may be R times larger: two bits fewer.
        """
        return integers_modulo(27 if self.proven else 25)

    @property
    def z_drop(self) -> int:
        """How many bits of a reciprocal, at most R / LOW, are dropped before it is opened."""
        return Z_BITS - (self.z_ring.bits - 1 - ceil_log2(Fraction(self.ratio) / LOW))

    @property
    def z_bits(self) -> int:
        """Fraction bits of an opened reciprocal."""
        return Z_BITS - self.z_drop

    # Squares G^2 P, and scores.

    @property
    def product_limit(self) -> Fraction:
        """What y P stays below."""
        whole = Fraction(self.l2, 1 << (self.units.h_bits + self.y_bits))
        return HIGH * whole * int(self.ratio ** (self.classes + 1))

    @property
    def g_drop(self) -> int:
        """How many low bits G loses before it is squared, so that G^2 P stays below 2^62."""
        room = Fraction(1 << 62) / (self.score_limit * self.product_limit)
        return max(0, self.units.g_bits - floor_log2(room) // 2)

    @property
    def square_bits(self) -> int:
        """Fraction bits of G^2 P."""
        return 2 * (self.units.g_bits - self.g_drop)

    @property
    def square_drop(self) -> int:
        """How many bits of G^2 P are dropped before it is opened."""
        largest = self.score_limit * self.product_limit * Fraction(2) ** self.square_bits
        return max(0, ceil_log2(largest) - (SQUARE_BITS - 2))

    @property
    def compared(self) -> tuple[int, Ring]:
        """How many bits of a score are dropped before it is compared, and in which ring it is then.

        A score is a sum of squares, below 2^38, times reciprocals. With a fact behind its bound it
        is what the largest square times 1 is. Otherwise it may be R times that, and is usually a
        hundred thousandth of it: more bits tell it from others.
        """
        most = SQUARE_BITS - 2 + (self.z_bits if self.proven else self.z_ring.bits - 1)
        bits = 36 if self.proven else 42
        return most - (bits - 2), integers_modulo(bits)

    @property
    def coarse(self) -> tuple[Ring, tuple[CoarseSum, ...]]:
        """How squares are checked not to pass what they are opened in: a ring, and sums in it."""
        bits, sums = self._coarse
        return integers_modulo(bits), sums

    @cached_property
    def _coarse(self) -> tuple[int, tuple[CoarseSum, ...]]:
        """Return how many bits these sums cannot leave, whatever the data, and the sums."""
        sums = coarse_sums(
            self.units,
            self.thresholds,
            self._opened_squares,
            common=self.ratio ** (2 * self.classes // 3),
            sides=self.sides,
            outputs=self.outputs,
        )
        return max(each.bits for each in sums), sums

    @property
    def _opened_squares(self) -> Fraction:
        """The largest sum of squares that what they are opened in holds."""
        return Fraction(2) ** (self.square_drop + SQUARE_BITS - 2 - self.square_bits)

    # Leaf values, in the units of scores.

    @property
    def score_ring(self) -> Ring:
        """The ring of scores: the sigmoid's, or one that leaves enough bits to sums of them."""
        if not self.proven:
            return integers_modulo(32)
        return integers_modulo(self.units.g_ring.bits + SCORE_BITS - self.units.g_bits)

    def numbers(self) -> list[object]:
        """Return all that is computed from the plan, for everybody to compare."""
        return [
            [str(value) for value in vars(self.units).values()],
            [self.y_bits, self.l2, str(self.thresholds), self.multiple, str(self.period)],
            [self.z_drop, self.g_drop, self.square_drop, str(self._coarse), str(self.compared)],
            [self.score_ring.name],
        ]


def _root_above(x: Fraction, degree: int) -> int:
    """Return the smallest integer from 2 on whose power is larger."""
    root = 2
    while root**degree <= x and root <= MOST_RATIO:
        root += 1
    return root
