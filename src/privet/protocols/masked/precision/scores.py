"""The precision of scores: rings, fraction bits, bounds and thresholds, from the plan.

Sums of gradients and Hessians are in rings just wide enough for them. A sum of Hessians plus l2, y,
falls into one of a few classes, whose bounds grow by a ratio R: l2 R^e <= y < l2 R^(e+1). Times
P = R^(E-e), it is between 1/R and 1 of a public number, so its reciprocal is smooth
(docs/decisions/0024-reciprocals.md).

All numbers are computed in integers and fractions, so that they are the same at all participants.
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
"""A unit of 1/32 of l2 is fine enough: reciprocals are accurate slightly beyond a class."""
_MIN_SUM_BITS = 5
"""The smallest counted sum is compared to an eighth of itself, or better if that is free."""
_TWO_DIGITS, _THREE_DIGITS = 19, 28
"""Up to these widths two or three digits suffice, and every threshold takes as many bits."""


@dataclass(frozen=True)
class HessianThresholds:
    """Rising thresholds of H without its low bits, and a factor for each number of reached ones.

    They are the bounds between the classes of y = H + l2 and, with `min_child_weight`, the smallest
    H that counts. All are compared at once. A sum that does not count is multiplied by 0, others by
    the P of their class.
    """

    values: tuple[int, ...]
    width: int
    """The number of compared bits."""
    dropped_bits: int
    """The number of low bits that H loses before."""
    class_factors: tuple[int, ...]
    """P of every class: R^(E-e)."""
    counted_factors: tuple[int, ...]
    """The same, and 0 below the smallest H that counts."""
    is_noisy: bool = False
    """Whether H has the noise of lattice masks: then counts are wide, too."""

    @property
    def n_digits(self) -> int:
        """The number of digits of a comparison: few, unless their tables would be large."""
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
        """Return the E bounds l2 (R^e - 1), l2 in units of 2^-y_bits, and `min_hessian_sum`.

        Counts are compared exactly with `min_hessian_sum`. Other sums that reach it always count.
        Sums less than two compared units below it can count, too.
        """
        bits = h_limit.bit_length()
        drop = min(bits - 1, max(0, (l2 >> y_bits).bit_length() - _FEW_BITS))
        if min_hessian_sum:
            fine = min(bits + 1 - _TWO_DIGITS, min_hessian_sum.bit_length() - _MIN_SUM_BITS)
            drop = 0 if counts else min(drop, max(0, fine))
        class_bounds = [l2 * (ratio**e - 1) for e in range(1, classes + 1)]
        values = [max(1, -(-t // (1 << y_bits)) >> drop) for t in class_bounds]
        normalising = [ratio ** (classes - e) for e in range(classes + 1)]
        factors = normalising
        if min_hessian_sum:
            min_value = min_hessian_sum >> drop
            position = bisect_left(values, min_value)
            values.insert(position, min_value)
            factors = [0] * (position + 1) + normalising[position:]
            normalising = normalising[: position + 1] + normalising[position:]
        width = bits + 1 - drop
        return cls(tuple(values), width, drop, tuple(normalising), tuple(factors), noisy)


def encode_l2(l2: Fraction, h_limit: int, largest_y: int) -> tuple[int, int]:
    """Return the fraction bits of y beyond those of H, and l2 in units of y: exact if possible."""
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
    """Return the smallest sum that counts, less the most that rounding can take from it."""
    weight = Fraction(plan.params.min_child_weight)
    largest = plan.objective.max_hessian * plan.n_samples
    if weight > largest:
        raise ParameterError(
            f"min_child_weight: {float(weight):g} is more than {plan.n_samples} rows add up to, "
            f"{float(largest):g} at most: use less"
        )
    return max(0, ceil(weight * (1 << units.h_bits)) - units.h_slack)


WORD_BITS = 64
_LOW_FRACTION = Fraction(1, 8)
"""The fraction of the allowed sum for classes of small y, if these are checked separately."""


class CoarseSum(NamedTuple):
    """A coarse sum of G^2 over a cut's sides, times a factor for the class of y.

    The squares G^2 P of a cut are opened in a ring that fits the scores of sensible data. Without a
    proven bound they are added up once more, coarsely, in a ring that fits any data.
    """

    factors: tuple[int, ...]
    """The factor for each class of y; 0 if it does not count."""
    dropped_bits: int
    """The bits that G loses."""
    max_sum: int
    """The largest allowed sum."""
    ring_bits: int
    """The bits of a ring that the sum cannot leave."""


def plan_coarse_sums(
    units: GradientUnits,
    thresholds: HessianThresholds,
    max_squares: Fraction,
    *,
    common: int,
    n_sides: int,
    n_outputs: int,
) -> tuple[CoarseSum, ...]:
    """Return sums of the squares of a cut that bound the total of all squares by `max_squares`.

    There is one sum of all classes if a word fits squares that are as large as they can be in a
    class of small y. Wide sums that need more bits have two: one of these classes, whose factors
    are divided by their common factor, and one of the other classes. Only few samples are in nodes
    of small y, so these classes get an eighth of the allowed total.
    """
    factors, largest = thresholds.counted_factors, thresholds.class_factors[0]
    single = _plan_coarse_sum(units, factors, largest, max_squares, n_sides, n_outputs)
    if not units.is_wide or single.ring_bits <= WORD_BITS:
        return (single,)
    low = tuple(f // common if f > common else 0 for f in factors)
    high = tuple(f if f <= common else 0 for f in factors)
    max_low = _LOW_FRACTION * max_squares
    return (
        _plan_coarse_sum(units, low, largest // common, max_low / common, n_sides, n_outputs),
        _plan_coarse_sum(units, high, common, max_squares - max_low, n_sides, n_outputs),
    )


def _plan_coarse_sum(
    units: GradientUnits,
    factors: tuple[int, ...],
    largest_factor: int,
    max_squares: Fraction,
    n_sides: int,
    n_outputs: int,
) -> CoarseSum:
    """Return a sum of squares times factors.

    Nodes have no sample in common, so the squares of an output add up to at most the square of the
    largest sum. Outputs have the same samples, so this holds for each output. The error of G is at
    most one unit. By Minkowski's inequality the error of the root of the sum is at most the root of
    the sum of factors, which is at most a quarter of it.
    """
    sum_of_factors = n_sides * largest_factor
    unit_bits = floor_log2(max_squares / sum_of_factors) // 2 - 2
    drop = min(unit_bits + units.g_bits, units.g_ring.bits - 2)
    max_sum = max_squares * Fraction(4) ** (units.g_bits - drop)
    # The square of the difference of roots; twice their product to 2^-20, rounded up.
    twice = Fraction(isqrt(int(4 * max_sum * sum_of_factors * (1 << 40))) + 1, 1 << 20)
    largest = (Fraction(units.max_gradient_sum) / Fraction(2) ** drop + 1) ** 2
    bits = ceil_log2(max(max_sum, n_outputs * largest * largest_factor)) + 2
    return CoarseSum(factors, drop, int(max_sum + sum_of_factors - twice), bits)


MAX_CLASS_RATIO = 7
OPENED_SQUARE_BITS = 40
"""Bits of an opened square G^2 P; it is signed, so below 2^38."""
RECIPROCAL_BITS = 58
"""Fraction bits of a reciprocal before it is opened: those of dealt sine and cosine terms and of
public coefficients."""
CORRELATION_BITS = 32
_PERIOD = Fraction(3, 2)
_FINE = 8  # multiples of y are integers; if they are at least this, the period is near _PERIOD
_MAX_NORMALISED_BITS = 26
_JUST_BELOW = Fraction(255, 256)  # so that a number that is rounded up still fits


@dataclass(frozen=True)
class Scales:
    """The scales of one training run."""

    units: GradientUnits
    y_bits: int
    """Fraction bits of y beyond those of Hessians."""
    l2: int
    """l2 in units of y."""
    class_ratio: int
    """R."""
    n_class_bounds: int
    """E: the number of bounds between classes."""
    min_hessian_sum: int
    """The smallest sum of Hessians that counts, in their units."""
    max_score: Fraction
    """A bound on the sum of G^2 / y over outputs and a level's nodes: it is proven, or a failed
    check ends training."""
    is_bound_proven: bool
    """Whether `max_score` is proven."""
    max_leaf_weight: Fraction
    """The largest G / y of a leaf that passes its range check."""
    n_outputs: int
    """K."""
    n_sides: int
    """The most G^2 / y that add up to the score of a cut: over outputs, nodes and sides."""
    learning_rate: Fraction

    @classmethod
    def from_plan(cls, plan: Plan) -> Scales:
        """Choose scales for a plan; raise ParameterError if none fits.

        Sums are narrow if that suffices. Otherwise they are wide, if masks are lattice masks.
        """
        try:
            return cls._from_units(plan, GradientUnits.choose_narrow(plan))
        except ParameterError:
            if not plan.n_lattice_errors:
                raise
        return cls._from_units(plan, GradientUnits.choose_wide(plan))

    @classmethod
    def _from_units(cls, plan: Plan, units: GradientUnits) -> Scales:
        objective, n_samples, params = plan.objective, plan.n_samples, plan.params
        l2_in_h = Fraction(params.l2) * (1 << units.h_bits)
        y_bits, l2 = encode_l2(l2_in_h, units.max_hessian_sum, units.max_regularised_hessian)
        largest = (units.max_hessian_sum << y_bits) + l2
        classes = 0
        while (ratio := _root_above(Fraction(largest, l2), classes + 1)) > MAX_CLASS_RATIO:
            classes += 1
        proven = objective.constant_hessian
        # G^2 / y is at most the sum of g^2 / h. In a regression that is the squared error. In a
        # classification it is N an output for a calibrated model.
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
        """Return whether G keeps enough bits for G^2 P to distinguish scores.

        The largest G^2 P is below 2^62, so a unit of G is 2^-31 of its root. That is at most 2^-9
        with narrow sums, and 2^-27 of all samples with wide ones. All relevant sums are of a
        fraction of the samples, so the relative error of scores does not grow with their number.
        """
        largest = self.max_normalised_hessian * self.max_score
        if not self.units.is_wide:
            return largest <= 1 << 44 and self._coarse[0] <= WORD_BITS
        return largest <= (16 * plan.n_samples) ** 2 and (
            self.is_bound_proven or self._coarse[0] <= WORD_BITS
        )

    # The thresholds and factors of y.

    @cached_property
    def thresholds(self) -> HessianThresholds:
        """The thresholds for the class of y, and for whether H counts, on few bits of H."""
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
        largest = self.l2 * self.class_ratio ** (self.n_class_bounds + 1)
        bits = ceil_log2(_PERIOD * largest * _FINE)
        return round(Fraction(1 << bits) / (_PERIOD * largest)), bits

    @property
    def normalising_factor(self) -> int:
        """The factor on y P."""
        return self._normalised[0]

    @property
    def wide_ring(self) -> Ring:
        """The ring in which m is computed."""
        return get_integer_ring(self._normalised[1])

    @property
    def narrow_ring(self) -> Ring:
        """The ring in which m is opened, without its low bits."""
        return get_integer_ring(min(_MAX_NORMALISED_BITS, self._normalised[1]))

    @property
    def period(self) -> Fraction:
        """The size of the ring divided by `top`, the largest m."""
        multiple, bits = self._normalised
        return Fraction(
            1 << bits, multiple * self.l2 * self.class_ratio ** (self.n_class_bounds + 1)
        )

    @property
    def reciprocal_ring(self) -> Ring:
        """The ring in which a reciprocal is opened; the reciprocal is below half of its size.

        If the bound on scores is proven, all bits that fit are kept. Otherwise the bound is on
        squares, and scores can be R times larger: two bits fewer.
        """
        return get_integer_ring(27 if self.is_bound_proven else 25)

    @property
    def reciprocal_dropped_bits(self) -> int:
        """The bits of a reciprocal, at most R / LOW, that are dropped before it is opened."""
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
        """A bound on y P."""
        l2 = Fraction(self.l2, 1 << (self.units.h_bits + self.y_bits))
        return RECIPROCAL_HIGH * l2 * int(self.class_ratio ** (self.n_class_bounds + 1))

    @property
    def gradient_dropped_bits(self) -> int:
        """The low bits that G loses before it is squared, so that G^2 P stays below 2^62."""
        headroom = Fraction(1 << 62) / (self.max_score * self.max_normalised_hessian)
        return max(0, self.units.g_bits - floor_log2(headroom) // 2)

    @property
    def square_fraction_bits(self) -> int:
        """Fraction bits of G^2 P."""
        return 2 * (self.units.g_bits - self.gradient_dropped_bits)

    @property
    def square_dropped_bits(self) -> int:
        """The bits of G^2 P that are dropped before it is opened."""
        largest = (
            self.max_score * self.max_normalised_hessian * Fraction(2) ** self.square_fraction_bits
        )
        return max(0, ceil_log2(largest) - (OPENED_SQUARE_BITS - 2))

    @property
    def comparison_format(self) -> tuple[int, Ring]:
        """The bits of a score that are dropped before it is compared, and the ring it is then in.

        A score is a sum of squares, below 2^38, times reciprocals. If its bound is proven, it is at
        most the largest square times 1. Otherwise it can be R times that, and is usually a hundred
        thousandth of it, so more bits are needed to distinguish scores.
        """
        max_bits = (
            OPENED_SQUARE_BITS
            - 2
            + (
                self.opened_reciprocal_bits
                if self.is_bound_proven
                else self.reciprocal_ring.bits - 1
            )
        )
        bits = 36 if self.is_bound_proven else 42
        return max_bits - (bits - 2), get_integer_ring(bits)

    @property
    def coarse_check(self) -> tuple[Ring, tuple[CoarseSum, ...]]:
        """The check that squares fit the ring they are opened in: a ring, and sums in it."""
        bits, sums = self._coarse
        return get_integer_ring(bits), sums

    @cached_property
    def _coarse(self) -> tuple[int, tuple[CoarseSum, ...]]:
        """The bits of a ring that these sums cannot leave with any data, and the sums."""
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
        """The largest sum of squares that fits the ring they are opened in."""
        return Fraction(2) ** (
            self.square_dropped_bits + OPENED_SQUARE_BITS - 2 - self.square_fraction_bits
        )

    # Leaf values, in the units of scores.

    @property
    def score_ring(self) -> Ring:
        """The ring of scores: that of the sigmoid, or one with enough bits for gradient sums."""
        if not self.is_bound_proven:
            return get_integer_ring(32)
        return get_integer_ring(self.units.g_ring.bits + SCORE_BITS - self.units.g_bits)

    def list_public_constants(self) -> list[object]:
        """Return all numbers computed from the plan, which participants compare."""
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
    """Return the smallest integer of at least 2 whose power is larger than `x`."""
    root = 2
    while root**degree <= x and root <= MAX_CLASS_RATIO:
        root += 1
    return root
