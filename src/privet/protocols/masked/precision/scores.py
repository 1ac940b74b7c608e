"""The precision of scores: rings, fraction bits, bounds and thresholds, from the plan.

Sums of derivatives are in rings just wide enough for them. A sum of second derivatives plus l2, y,
falls into one of a few classes, whose bounds grow by a ratio R: l2 R^e <= y < l2 R^(e+1). Times
R^(E-e), it is between 1/R and 1 of what is public, and so its reciprocal is smooth
(docs/decisions/0024-reciprocals.md).

Everything here is computed in integers and fractions, and comes out the same at everybody.

Bounds between the classes of y = H + l2, and, where there is one, the least H that counts
(`min_child_weight`). All are compared at once; a sum that does not count is multiplied by 0 where
others are multiplied by the P of their class.

The squares G^2 P of a cut are opened in a ring that scores of sensible data fit. Where no fact says
so, they are added up once more, coarsely, in a ring that any data fit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, isqrt
from typing import NamedTuple

from privet.arithmetic.fixed_point import ceil_log2, floor_log2, round_scaled
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.errors import ParameterError
from privet.gates.masked.comparison import choose_digit_count
from privet.gates.masked.functions import MAX_SCORE, RECIPROCAL_HIGH, RECIPROCAL_LOW, SCORE_BITS
from privet.protocols.masked.precision.rows import GradientUnits
from privet.spec.plan import Plan

_FEW_BITS = 6
"""A unit of 1/32 of l2 is fine enough for classes: reciprocals are right a little beyond them."""
_MIN_SUM_BITS = 5
"""But the least that counts is told to an eighth of itself, or better where that costs nothing."""
_TWO_DIGITS, _THREE_DIGITS = 19, 28
"""Up to these widths so many digits do, and every threshold takes as many bits."""


@dataclass(frozen=True)
class HessianThresholds:
    """Rising thresholds of H without its lowest bits, and factors by how many H reaches."""

    values: tuple[int, ...]
    width: int
    """On how many bits to compare."""
    dropped_bits: int
    """How many low bits H loses before."""
    class_factors: tuple[int, ...]
    """P of every class: R^(E-e)."""
    counted_factors: tuple[int, ...]
    """The same, and 0 below the least that counts."""
    is_noisy: bool = False
    """Whether H is off by what lattice masks leave in: counts are wide, then, too."""

    @property
    def n_digits(self) -> int:
        """How many digits to compare by: few, but for the widest, whose tables would be large."""
        if self.width <= _TWO_DIGITS:
            return 2
        if (
            self.is_noisy or self.counted_factors != self.class_factors
        ) and self.width <= _THREE_DIGITS:
            return 3
        return choose_digit_count(self.width)

    @classmethod
    def choose(
        cls,
        *,
        h_limit: int,
        counts: bool,
        l2: int,
        y_bits: int,
        ratio: int,
        classes: int,
        min_hessian_sum: int,
        noisy: bool = False,
    ) -> HessianThresholds:
        """Return those of E bounds l2 (R^e - 1), l2 in units of 2^-y_bits, and of the least.

        Counts are compared exactly with the least. Other sums that reach it pass, and so may some
        that do not, by less than two units of what is compared.
        """
        bits = h_limit.bit_length()
        drop = min(bits - 1, max(0, (l2 >> y_bits).bit_length() - _FEW_BITS))
        if min_hessian_sum:
            fine = min(bits + 1 - _TWO_DIGITS, min_hessian_sum.bit_length() - _MIN_SUM_BITS)
            drop = 0 if counts else min(drop, max(0, fine))
        rising = [l2 * (ratio**e - 1) for e in range(1, classes + 1)]
        values = [max(1, -(-t // (1 << y_bits)) >> drop) for t in rising]
        normalising = [ratio ** (classes - e) for e in range(classes + 1)]
        factors = normalising
        if min_hessian_sum:
            reached = min_hessian_sum >> drop
            place = bisect_left(values, reached)
            values.insert(place, reached)
            factors = [0] * (place + 1) + normalising[place:]
            normalising = normalising[: place + 1] + normalising[place:]
        width = bits + 1 - drop
        return cls(tuple(values), width, drop, tuple(normalising), tuple(factors), noisy)


def encode_l2(l2: Fraction, h_limit: int, largest_y: int) -> tuple[int, int]:
    """Return how many fraction bits y has beyond h's, and l2 in its units: exactly, if possible."""
    best = (0, max(1, round_scaled(l2)))
    for bits in range(29):
        value = l2 * (1 << bits)
        if (h_limit << bits) + value >= largest_y:
            break
        best = (bits, max(1, round_scaled(value)))
        if value == best[1]:
            break
    return best


def encode_min_child_weight(plan: Plan, units: GradientUnits) -> int:
    """Return the least sum that counts: what rounding makes of one that does is no less."""
    weight = Fraction(plan.params.min_child_weight)
    most = plan.objective.max_hessian * plan.n_samples
    if weight > most:
        raise ParameterError(
            f"min_child_weight: {float(weight):g} is more than {plan.n_samples} rows add up to, "
            f"{float(most):g} at most: use less"
        )
    return max(0, ceil(weight * (1 << units.h_bits)) - units.h_slack)


WORD_BITS = 64
_OF_LOW = Fraction(1, 8)
"""What part of all that is allowed is that of classes of small y, if these are checked apart."""


class CoarseSum(NamedTuple):
    """A sum over a cut's sides of G^2, coarsely, times what depends on the class of y."""

    factors: tuple[int, ...]
    """By the class of y, and whether it counts."""
    dropped_bits: int
    """The bits that G loses."""
    max_sum: int
    """What the sum must not pass."""
    ring_bits: int
    """Of a ring that it cannot leave."""


def plan_coarse_sums(
    units: GradientUnits,
    thresholds: HessianThresholds,
    max_squares: Fraction,
    *,
    common: int,
    n_sides: int,
    n_outputs: int,
) -> tuple[CoarseSum, ...]:
    """Return sums of the squares of a cut that tell whether all of them add up to what is allowed.

    One sum of all classes, if a word has room for squares that are as large as they can be in a
    class of small y. With wide sums that need more, one of such classes, without a common factor of
    what these are multiplied with, and one of the others: few of all samples are in nodes of small
    y, so that an eighth of what is allowed is theirs.
    """
    factors, largest = thresholds.counted_factors, thresholds.class_factors[0]
    whole = _coarse_sum(units, factors, largest, max_squares, n_sides, n_outputs)
    if not units.is_wide or whole.ring_bits <= WORD_BITS:
        return (whole,)
    low = tuple(f // common if f > common else 0 for f in factors)
    high = tuple(f if f <= common else 0 for f in factors)
    of_low = _OF_LOW * max_squares
    return (
        _coarse_sum(units, low, largest // common, of_low / common, n_sides, n_outputs),
        _coarse_sum(units, high, common, max_squares - of_low, n_sides, n_outputs),
    )


def _coarse_sum(
    units: GradientUnits,
    factors: tuple[int, ...],
    largest_factor: int,
    max_squares: Fraction,
    n_sides: int,
    n_outputs: int,
) -> CoarseSum:
    """Return a sum of squares times factors.

    Nodes share no sample, so that the squares of an output add up to no more than that of the
    largest sum; outputs have the same samples, so each may. G is off by up to one unit; by
    Minkowski's inequality the root of the sum is off by that of the factors', which is a quarter of
    it at most.
    """
    steps = n_sides * largest_factor
    wanted = floor_log2(max_squares / steps) // 2 - 2
    drop = min(wanted + units.g_bits, units.g_ring.bits - 2)
    most = max_squares * Fraction(4) ** (units.g_bits - drop)
    # The square of the difference of roots; twice their product to 2^-20, rounded up.
    twice = Fraction(isqrt(int(4 * most * steps * (1 << 40))) + 1, 1 << 20)
    largest = (Fraction(units.max_gradient_sum) / Fraction(2) ** drop + 1) ** 2
    bits = ceil_log2(max(most, n_outputs * largest * largest_factor)) + 2
    return CoarseSum(factors, drop, int(most + steps - twice), bits)


MAX_CLASS_RATIO = 7
OPENED_SQUARE_BITS = 40
"""Bits of a square G^2 P that are opened; it is signed, so below 2^38."""
RECIPROCAL_BITS = 58
"""Fraction bits of a reciprocal before it is opened: of dealt waves and public coefficients."""
CORRELATION_BITS = 32
_PERIOD = Fraction(3, 2)
_FINE = 8  # multiples of y are integers; with at least so many the period is near the one wanted
_MAX_NORMALISED_BITS = 26
_JUST_BELOW = Fraction(255, 256)  # so that what is rounded up still fits


@dataclass(frozen=True)
class Scales:
    """The scales of one training."""

    units: GradientUnits
    y_bits: int
    """Fraction bits that y has beyond those of second derivatives."""
    l2: int
    """l2 in units of y."""
    class_ratio: int
    """R."""
    n_class_bounds: int
    """E: how many bounds between classes there are."""
    min_hessian_sum: int
    """Sums of second derivatives below this, in their units, count for nothing."""
    max_score: Fraction
    """No sum of G^2 / y over outputs and a level's nodes is larger: as a fact, or a check ends the
    training."""
    is_bound_proven: bool
    """Whether that is a fact."""
    max_leaf_weight: Fraction
    """The largest G / y of a leaf that passes."""
    n_outputs: int
    """K."""
    n_sides: int
    """How many G^2 / y add up to the score of a cut, at most: over outputs, nodes and sides."""
    learning_rate: Fraction

    @classmethod
    def from_plan(cls, plan: Plan) -> Scales:
        """Choose scales for a plan; raise ParameterError if none will do.

        Sums are narrow wherever that is enough, and otherwise wide, if masks are lattice ones.
        """
        try:
            return cls._of(plan, GradientUnits.choose_narrow(plan))
        except ParameterError:
            if not plan.n_lattice_errors:
                raise
        return cls._of(plan, GradientUnits.choose_wide(plan))

    @classmethod
    def _of(cls, plan: Plan, units: GradientUnits) -> Scales:
        objective, n_samples, params = plan.objective, plan.n_samples, plan.params
        l2_in_h = Fraction(params.l2) * (1 << units.h_bits)
        y_bits, l2 = encode_l2(l2_in_h, units.max_hessian_sum, units.max_regularised_hessian)
        largest = (units.max_hessian_sum << y_bits) + l2
        classes = 0
        while (ratio := _root_above(Fraction(largest, l2), classes + 1)) > MAX_CLASS_RATIO:
            classes += 1
        proven = objective.constant_hessian
        # G^2 / y is at most the sum of g^2 / h. In a regression that is the squared error. In a
        # classification it is N an output for a model that knows what it does not know.
        each = units.label_stretch**2 / 4 if proven else Fraction(4)
        limit = each * n_samples * objective.n_outputs
        if plan.must_check_residuals:
            limit = units.label_stretch**2 * (objective.max_squared_gradients(n_samples) or 0)
        rate = Fraction(params.learning_rate)
        weight = objective.max_leaf_weight * units.label_stretch
        scales = cls(
            units=units,
            y_bits=y_bits,
            l2=l2,
            class_ratio=ratio,
            n_class_bounds=classes,
            min_hessian_sum=encode_min_child_weight(plan, units),
            max_score=limit,
            is_bound_proven=proven,
            max_leaf_weight=weight if proven else min(weight, _JUST_BELOW * MAX_SCORE / rate),
            n_outputs=objective.n_outputs,
            n_sides=objective.n_outputs * params.n_leaves,
            learning_rate=rate,
        )
        if largest >= 2 * units.max_regularised_hessian or not scales._do_squares_fit(plan):
            several = f" and {objective.n_outputs} classes" if objective.n_outputs > 1 else ""
            raise ParameterError(
                f"l2: {params.l2:g} with {n_samples} samples{several} needs more bits than sums "
                "have; bring them closer together"
                + ("" if plan.n_lattice_errors else ", or use lattice masks")
            )
        return scales

    def _do_squares_fit(self, plan: Plan) -> bool:
        """Tell whether G keeps enough bits for G^2 P to tell scores apart.

        So that the largest is below 2^62, a unit of G is 2^-31 of the root of it. That is at most
        2^-9 with narrow sums, and 2^-27 of all samples with wide ones. Since all sums that matter
        are a part of the samples, scores are as near to what they should be with more of them.
        """
        largest = self.max_normalised_hessian * self.max_score
        if not self.units.is_wide:
            return largest <= 1 << 44 and self._coarse[0] <= WORD_BITS
        return largest <= (16 * plan.n_samples) ** 2 and (
            self.is_bound_proven or self._coarse[0] <= WORD_BITS
        )

    # What y is compared with, and multiplied by.

    @cached_property
    def thresholds(self) -> HessianThresholds:
        """How y's class, and whether H counts, are found on as few bits of H as will do."""
        return HessianThresholds.choose(
            h_limit=self.units.max_hessian_sum,
            counts=self.units.h_bits == 0,
            l2=self.l2,
            y_bits=self.y_bits,
            ratio=self.class_ratio,
            classes=self.n_class_bounds,
            min_hessian_sum=self.min_hessian_sum,
            noisy=self.units.g_extra_bits > 0,
        )

    # The normalised y, m = multiple y P, below `top`.

    @cached_property
    def _normalised(self) -> tuple[int, int]:
        """The multiple, and the bits of a ring that is the period."""
        whole = self.l2 * self.class_ratio ** (self.n_class_bounds + 1)
        bits = ceil_log2(_PERIOD * whole * _FINE)
        return round(Fraction(1 << bits) / (_PERIOD * whole)), bits

    @property
    def normalising_factor(self) -> int:
        """What y P is multiplied with."""
        return self._normalised[0]

    @property
    def wide_ring(self) -> Ring:
        """The ring that m is computed in."""
        return get_integer_ring(self._normalised[1])

    @property
    def narrow_ring(self) -> Ring:
        """The ring that m is opened in, without its lowest bits."""
        return get_integer_ring(min(_MAX_NORMALISED_BITS, self._normalised[1]))

    @property
    def period(self) -> Fraction:
        """The ring in parts of `top`, the largest m."""
        multiple, bits = self._normalised
        return Fraction(
            1 << bits, multiple * self.l2 * self.class_ratio ** (self.n_class_bounds + 1)
        )

    @property
    def reciprocal_ring(self) -> Ring:
        """The ring that a reciprocal is opened in; it is below half of its size.

        With a fact behind the scores' bound, as many bits are kept as fit. Otherwise the bound is
        on squares, and scores may be R times larger: two bits fewer.
        """
        return get_integer_ring(27 if self.is_bound_proven else 25)

    @property
    def reciprocal_dropped_bits(self) -> int:
        """How many bits of a reciprocal, at most R / LOW, are dropped before it is opened."""
        return RECIPROCAL_BITS - (
            self.reciprocal_ring.bits - 1 - ceil_log2(Fraction(self.class_ratio) / RECIPROCAL_LOW)
        )

    @property
    def opened_reciprocal_bits(self) -> int:
        """Fraction bits of an opened reciprocal."""
        return RECIPROCAL_BITS - self.reciprocal_dropped_bits

    # Squares G^2 P, and scores.

    @property
    def max_normalised_hessian(self) -> Fraction:
        """What y P stays below."""
        whole = Fraction(self.l2, 1 << (self.units.h_bits + self.y_bits))
        return RECIPROCAL_HIGH * whole * int(self.class_ratio ** (self.n_class_bounds + 1))

    @property
    def gradient_dropped_bits(self) -> int:
        """How many low bits G loses before it is squared, so that G^2 P stays below 2^62."""
        room = Fraction(1 << 62) / (self.max_score * self.max_normalised_hessian)
        return max(0, self.units.g_bits - floor_log2(room) // 2)

    @property
    def square_fraction_bits(self) -> int:
        """Fraction bits of G^2 P."""
        return 2 * (self.units.g_bits - self.gradient_dropped_bits)

    @property
    def square_dropped_bits(self) -> int:
        """How many bits of G^2 P are dropped before it is opened."""
        largest = (
            self.max_score * self.max_normalised_hessian * Fraction(2) ** self.square_fraction_bits
        )
        return max(0, ceil_log2(largest) - (OPENED_SQUARE_BITS - 2))

    @property
    def comparison_format(self) -> tuple[int, Ring]:
        """How many bits of a score are dropped before it is compared, and in which ring it is then.

        A score is a sum of squares, below 2^38, times reciprocals. With a fact behind its bound it
        is what the largest square times 1 is. Otherwise it may be R times that, and is usually a
        hundred thousandth of it: more bits tell it from others.
        """
        most = (
            OPENED_SQUARE_BITS
            - 2
            + (
                self.opened_reciprocal_bits
                if self.is_bound_proven
                else self.reciprocal_ring.bits - 1
            )
        )
        bits = 36 if self.is_bound_proven else 42
        return most - (bits - 2), get_integer_ring(bits)

    @property
    def coarse_check(self) -> tuple[Ring, tuple[CoarseSum, ...]]:
        """How squares are checked not to pass what they are opened in: a ring, and sums in it."""
        bits, sums = self._coarse
        return get_integer_ring(bits), sums

    @cached_property
    def _coarse(self) -> tuple[int, tuple[CoarseSum, ...]]:
        """Return how many bits these sums cannot leave, whatever the data, and the sums."""
        sums = plan_coarse_sums(
            self.units,
            self.thresholds,
            self._max_opened_square,
            common=self.class_ratio ** (2 * self.n_class_bounds // 3),
            n_sides=self.n_sides,
            n_outputs=self.n_outputs,
        )
        return max(each.ring_bits for each in sums), sums

    @property
    def _max_opened_square(self) -> Fraction:
        """The largest sum of squares that what they are opened in holds."""
        return Fraction(2) ** (
            self.square_dropped_bits + OPENED_SQUARE_BITS - 2 - self.square_fraction_bits
        )

    # Leaf values, in the units of scores.

    @property
    def score_ring(self) -> Ring:
        """The ring of scores: the sigmoid's, or one that leaves enough bits to sums of them."""
        if not self.is_bound_proven:
            return get_integer_ring(32)
        return get_integer_ring(self.units.g_ring.bits + SCORE_BITS - self.units.g_bits)

    def list_public_constants(self) -> list[object]:
        """Return all that is computed from the plan, for everybody to compare."""
        return [
            [str(value) for value in vars(self.units).values()],
            [self.y_bits, self.l2, str(self.thresholds), self.normalising_factor, str(self.period)],
            [
                self.reciprocal_dropped_bits,
                self.gradient_dropped_bits,
                self.square_dropped_bits,
                str(self._coarse),
                str(self.comparison_format),
            ],
            [self.score_ring.name],
        ]


def _root_above(x: Fraction, degree: int) -> int:
    """Return the smallest integer from 2 on whose power is larger."""
    root = 2
    while root**degree <= x and root <= MAX_CLASS_RATIO:
        root += 1
    return root
