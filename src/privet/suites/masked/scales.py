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
from math import isqrt

from privet.arithmetic.exact import ceil_log2, floor_log2
from privet.arithmetic.rings import Ring, integers_modulo
from privet.errors import ParameterError
from privet.gates.reciprocal_series import HIGH, LOW
from privet.gates.sigmoid_series import LARGEST_SCORE, SCORE_BITS
from privet.suites.masked.thresholds import Thresholds
from privet.suites.masked.units import Units, l2_in_units, least_in_units
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
        """Choose scales for a plan; raise ParameterError if none will do."""
        objective, n_samples, params = plan.objective, plan.n_samples, plan.params
        units = Units.of(plan)
        y_bits, l2 = l2_in_units(Fraction(params.l2) * (1 << units.h_bits), units.h_limit)
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
        wide = scales.product_limit * scales.score_limit > 1 << 44 or scales._coarse_bits[1] > 64
        if largest >= 1 << 34 or wide:
            several = f" and {objective.outputs} classes" if objective.outputs > 1 else ""
            raise ParameterError(
                f"l2: {params.l2:g} with {n_samples} samples{several} needs more bits than sums "
                "have; bring them closer together"
            )
        return scales

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
        largest = self.score_limit * self.product_limit * (1 << self.square_bits)
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
    def coarse(self) -> tuple[int, Ring, int]:
        """How squares are checked not to pass what they are opened in.

        As the bits that G loses, a ring that the sum of a cut's squares cannot leave then, and what
        that sum must not pass. Nodes share no sample, so that the squares of an output add up to no
        more than that of the largest sum; outputs have the same samples, so each may. G is off by
        up to one unit; by Minkowski's inequality the root of the sum is off by that of the P's,
        which is a quarter of it at most.
        """
        drop, bits = self._coarse_bits
        most = self._opened_squares * Fraction(4) ** (self.units.g_bits - drop)
        steps = self.sides * self.thresholds.normalising[0]
        # The square of the difference of roots; twice their product to 2^-20, rounded up.
        twice = Fraction(isqrt(int(4 * most * steps * (1 << 40))) + 1, 1 << 20)
        return drop, integers_modulo(bits), int(most + steps - twice)

    @property
    def _opened_squares(self) -> Fraction:
        """The largest sum of squares that what they are opened in holds."""
        return Fraction(1 << (self.square_drop + SQUARE_BITS - 2), 1 << self.square_bits)

    @property
    def _coarse_bits(self) -> tuple[int, int]:
        """The bits that G loses for the check of squares, and those that their sum needs then."""
        units, largest_factor = self.units, self.thresholds.normalising[0]
        wanted = floor_log2(self._opened_squares / (self.sides * largest_factor)) // 2 - 2
        drop = min(wanted + units.g_bits, units.g_ring.bits - 2)
        largest = (Fraction(units.g_limit) / Fraction(2) ** drop + 1) ** 2
        most = self._opened_squares * Fraction(4) ** (units.g_bits - drop)
        return drop, ceil_log2(max(most, self.outputs * largest * largest_factor)) + 2

    # Leaf values, in the units of scores.

    @property
    def score_ring(self) -> Ring:
        """The ring of scores: the sigmoid's, or one that leaves enough bits to sums of them."""
        if not self.proven:
            return integers_modulo(32)
        return integers_modulo(self.units.g_ring.bits + SCORE_BITS - self.units.g_bits)

    @property
    def sigmoid_bits(self) -> int:
        """Fraction bits of the sigmoid: of 64 bits, those that go leave derivatives."""
        sums = (self.units.g_ring, self.units.g_bits), (self.units.h_ring, self.units.h_bits)
        return 64 - max(ring.bits - fraction for ring, fraction in sums)

    @property
    def leaf_value(self) -> tuple[int, int, Fraction]:
        """How G P times a reciprocal becomes a leaf value.

        As the bits that G P loses, those that the product loses, and what a reciprocal is
        multiplied with, between 1/2 and 1.
        """
        units = self.units
        power = units.g_bits + self.z_bits - units.h_bits - self.y_bits
        factor = self.rate * Fraction(2) ** (SCORE_BITS - power)
        factor /= self.l2 * self.ratio ** (self.classes + 1)
        product_drop = -ceil_log2(factor)
        fits = ceil_log2(self.largest_weight * self.product_limit * (1 << units.g_bits)) + 1 - 36
        drop = max(0, fits, product_drop - (64 - self.score_ring.bits))
        return drop, product_drop - drop, factor * Fraction(2) ** product_drop

    @property
    def weight_check(self) -> tuple[int, int, Ring]:
        """How |G| <= largest_weight y is checked: factors of y and G, and a ring for both."""
        units = self.units
        power = units.g_bits - units.h_bits - self.y_bits
        weight = self.largest_weight * Fraction(2) ** power
        bits = 8 + max(0, ceil_log2(1 / weight))
        of_y, of_g = int(weight * (1 << bits)), 1 << bits
        largest = of_y * ((units.h_limit << self.y_bits) + self.l2) + of_g * units.g_limit
        return of_y, of_g, integers_modulo(ceil_log2(largest) + 2)

    def numbers(self) -> list[object]:
        """Return all that is computed from the plan, for everybody to compare."""
        return [
            [str(value) for value in vars(self.units).values()],
            [self.y_bits, self.l2, str(self.thresholds), self.multiple, str(self.period)],
            [self.z_drop, self.g_drop, self.square_drop, str(self.coarse), str(self.compared)],
            [str(self.leaf_value), str(self.weight_check), self.score_ring.name],
        ]


def _root_above(x: Fraction, degree: int) -> int:
    """Return the smallest integer from 2 on whose power is larger."""
    root = 2
    while root**degree <= x and root <= MOST_RATIO:
        root += 1
    return root
