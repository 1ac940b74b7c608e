"""The precision of rows and their sums: units, rings, and the noise of lattice masks.

A sum x with |x| < 2^(w-2) can be lifted from a ring of w bits, one with 0 <= x < 2^(w-1) too. Every
bit of a first derivative is carried for every sample and level, so there are no more than needed:
rounding moves a score by about 2^-f / sqrt(N) for f fraction bits, so more samples need fewer.

A sum of a rows is off by the sum of their errors, which has a deviation of sqrt(10 a n) units for n
errors a row. A right child's is what its parent's is off less what its sibling's is, so a level
adds as much again. Eight deviations are never seen: 1e-15 of all sums are off by more.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from privet.arithmetic.fixed_point import ceil_log2, floor_log2
from privet.arithmetic.ring_lwe import BINOMIAL_ERROR_BITS, SAFE_MODULUS_BITS
from privet.arithmetic.ring_lwe import MAX_MODULUS_BITS as MOST_ROW_BITS
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.errors import ParameterError
from privet.gates.masked.functions import SCORE_BITS
from privet.spec.plan import Plan
from privet.spec.sampling import MAX_SAMPLE_WEIGHT, SAMPLE_WEIGHT_BITS

_OF_L2 = Fraction(1, 25)
"""How much of l2 noise may take from a sum of second derivatives: reciprocals allow for 7%."""
_OF_L2_BY_ROUNDING = Fraction(1, 50)
_OF_G = Fraction(1, 8)
"""How much noise may take from a sum of first derivatives, in parts of l2: with many rows, what
rounding does is no measure any more, since a small leaf has the noise of all rows."""
_ROUNDING_VARIANCE_FACTOR = 60
"""Errors as large as what rounding at random does are so many times finer, squared."""


def compute_max_noise(plan: Plan) -> int:
    """Return what no sum is off by more than, in units of rows."""
    variance = BINOMIAL_ERROR_BITS * plan.n_lattice_errors * plan.n_samples * plan.params.depth // 4
    return 8 * (isqrt(variance) + 1)


def count_extra_bits(plan: Plan) -> int:
    """Return how many more bits make errors move sums no more than rounding does without them."""
    return -(-ceil_log2(Fraction(_ROUNDING_VARIANCE_FACTOR * plan.n_lattice_errors)) // 2)


def count_hessian_bits(plan: Plan) -> int:
    """Return how many fraction bits second derivatives of rows need, at least."""
    return ceil_log2(compute_max_noise(plan) / (_OF_L2 * Fraction(plan.params.l2)))


def count_gradient_bits(plan: Plan) -> int:
    """Return how many fraction bits first derivatives of rows need for leaves of any size.

    Eight deviations move no leaf value by more than an eighth of the label's unit, then.
    """
    return ceil_log2(compute_max_noise(plan) / (_OF_G * Fraction(plan.params.l2)))


def count_fraction_bits_of_counts(plan: Plan) -> int:
    """Return how many fraction bits sums of counts need, at least, since they are rounded."""
    return max(
        0, ceil_log2(plan.n_lattice_errors / (_OF_L2_BY_ROUNDING * Fraction(plan.params.l2)))
    )


def choose_sum_bits(plan: Plan, max_bits: int) -> int:
    """Return the fraction bits of sums of second derivatives, if what they may have is enough."""
    if max_bits < count_fraction_bits_of_counts(plan):
        raise ParameterError(
            f"masks: {plan.n_samples} samples leave lattice masks {max_bits} bits below a count, "
            "and "
            f"l2 {plan.params.l2:g} needs {count_fraction_bits_of_counts(plan)}: use a larger l2 "
            "or fewer samples"
        )
    # Two more than rounding needs: it moves sums by less than errors do.
    return min(max_bits, count_fraction_bits_of_counts(plan) + 2)


def check_modulus_bits(plan: Plan, bits: int, max_bits: int) -> None:
    """Refuse a modulus that is too large to be safe, or for our words."""
    if bits > max_bits:
        raise ParameterError(
            f"masks: lattice masks of {plan.n_samples} samples with l2 {plan.params.l2:g} would "
            f"need {bits} bits, and have {max_bits}: use a larger l2 or fewer samples"
        )


MAX_NARROW_BITS = 36
"""Of narrow sums: products with uniformly masked indicators are computed that far."""
MIN_FRACTION_BITS, MIN_WIDE_FRACTION_BITS = 12, 14
_MAX_FRACTION_BITS = 20
_USUAL_WIDE_H = 16  # fraction bits of wide sums of second derivatives, where there is room
_FINER = 22  # fraction bits of derivatives before they are multiplied with weights
_FINER_LIFTED = 26  # ... or lifted
_MIN_SIGMOID_BITS = 36  # with fewer, its waves are rounded more than what sums ask for
_WORD, _COUNT = 32, 16  # a regression's rings are at least words, which need no packing
# Rounding moves sums by a unit for every sample, at most.
_SLACK = Fraction(99, 100)
MAX_REGULARISED_HESSIAN, MAX_WIDE_REGULARISED_HESSIAN = 1 << 33, 1 << 45
"""What y, narrow or wide, stays below: with what it is multiplied with, it fits a word."""
_MAX_SAMPLED_FRACTION_BITS = 18  # leaves room for residuals of rows that are not drawn for long


@dataclass(frozen=True)
class GradientUnits:
    """The units of derivatives in one training."""

    g_bits: int
    """Fraction bits of first derivatives."""
    g_ring: Ring
    max_gradient_sum: int
    """No sum of first derivatives is larger, in their units."""
    label_stretch: Fraction
    """What labels in a unit of their own are multiplied with, to use the ring's last bit."""
    h_bits: int
    """Fraction bits of second derivatives: 0 where they are 0 or 1, a weight's where they are 0 or
    that."""
    h_ring: Ring
    max_hessian_sum: int
    """No sum of second derivatives is larger, in their units."""
    h_slack: int
    """Nor less than minus this: those of certain samples are zero, give or take a rounding."""
    has_constant_hessians: bool
    """Whether second derivatives are 1, or the weights."""
    g_extra_bits: int = 0
    """Fraction bits that rows have beyond sums: with lattice masks, some."""
    h_extra_bits: int = 0
    is_wide: bool = False
    """Whether sums have more than 36 bits, which lattice masks allow for."""

    @property
    def max_regularised_hessian(self) -> int:
        """What a sum of second derivatives and l2 stays below, in its own unit."""
        return MAX_WIDE_REGULARISED_HESSIAN if self.is_wide else MAX_REGULARISED_HESSIAN

    @property
    def row_formats(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The fraction bits and the rings of rows' first and second derivatives."""
        return (
            (
                self.g_bits + self.g_extra_bits,
                get_integer_ring(self.g_ring.bits + self.g_extra_bits),
            ),
            (
                self.h_bits + self.h_extra_bits,
                get_integer_ring(self.h_ring.bits + self.h_extra_bits),
            ),
        )

    @property
    def sigmoid_bits(self) -> int:
        """Fraction bits of the sigmoid: of 64 bits, those that go leave derivatives."""
        if self.must_lift_rows:
            return _MIN_SIGMOID_BITS
        return 64 - self._whole_bits

    @property
    def _whole_bits(self) -> int:
        """How many bits sums have above the point."""
        sums = (self.g_ring, self.g_bits), (self.h_ring, self.h_bits)
        return max(ring.bits - fraction for ring, fraction in sums)

    @property
    def _finer_bits(self) -> int:
        """Fraction bits of derivatives before they are multiplied with weights."""
        return min(_FINER, 64 - SAMPLE_WEIGHT_BITS - self._whole_bits)

    @property
    def must_lift_rows(self) -> bool:
        """Whether derivatives are masked once more, in rings just wide enough for each of them.

        A share that bits are dropped from has room for sums above the point, and if these are of
        very many rows, there is too little left below it for a classification's derivatives.
        """
        return (
            self.is_wide
            and not self.has_constant_hessians
            and 64 - self._whole_bits < _MIN_SIGMOID_BITS
        )

    @property
    def weight_format(self) -> tuple[int, Ring]:
        """The fraction bits and the ring of weights: the second derivatives', if they are these."""
        if self.has_constant_hessians:
            return self.h_bits, self.h_ring
        return SAMPLE_WEIGHT_BITS, get_integer_ring(
            ceil_log2(MAX_SAMPLE_WEIGHT << SAMPLE_WEIGHT_BITS) + 2
        )

    @property
    def unweighted_formats(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The same of derivatives that are to be multiplied with weights, and rounded once more.

        Each, not their sums: a classification's are at most 1 and 1/4.
        """
        if not self.has_constant_hessians:
            bits = _FINER_LIFTED if self.must_lift_rows else self._finer_bits
            return (bits, get_integer_ring(bits + 3)), (bits, get_integer_ring(bits + 2))
        more = min(4, SCORE_BITS - self.g_bits)
        finer = (self.g_bits + more, get_integer_ring(self.g_ring.bits + more))
        return finer, finer

    @classmethod
    def choose_narrow(cls, plan: Plan) -> GradientUnits:
        """Choose units of sums of up to 36 bits; raise ParameterError if none will do."""
        objective, n_samples = plan.objective, plan.n_samples
        bound, wanted = _compute_max_gradient_sum(plan), _wanted_fraction(plan)
        counts = objective.constant_hessian
        bits = min(MAX_NARROW_BITS, ceil_log2(bound * (1 << wanted) / _SLACK) + 2)
        bits = max(bits, _WORD) if counts else bits
        g_bits = min(_MAX_FRACTION_BITS, floor_log2(_SLACK * (1 << (bits - 2)) / bound))
        if g_bits < MIN_FRACTION_BITS:
            raise ParameterError(
                f"protocol: masked sums gradients with at least {MIN_FRACTION_BITS} fraction bits, "
                f"and {n_samples} samples leave {g_bits}: use lattice masks, or fewer samples"
            )
        # As many for second derivatives, or more, if l2 is small: what rounding makes of many tiny
        # ones must be small against it.
        h_bits = 0
        if counts and plan.is_weighted:
            # The ring of first derivatives is the widest: indicators are published over it.
            h_bits = min(SAMPLE_WEIGHT_BITS, bits - 2 - ceil_log2(Fraction(n_samples)))
        if counts and plan.n_lattice_errors:
            h_bits = _bits_of_noisy_counts(plan, bits)
        if not counts:
            most = MAX_NARROW_BITS - 2 - ceil_log2(objective.max_hessian * n_samples)
            h_bits = min(most, max(wanted, ceil_log2(_rounding(plan))))
        g_more = h_more = 0
        if plan.n_lattice_errors:
            g_more = count_extra_bits(plan)
            h_more = max(0 if counts else count_extra_bits(plan), count_hessian_bits(plan) - h_bits)
        return cls._of(plan, bits, (g_bits, g_more), (h_bits, h_more), wide=False)

    @classmethod
    def choose_wide(cls, plan: Plan) -> GradientUnits:
        """Choose units of wider sums, for lattice masks; raise ParameterError if none will do.

        Rows have the bits that noise asks for, and these are what is sent for every node. So sums
        have as many as are of use to scores and leaves.
        """
        assert plan.n_lattice_errors
        g_bits = max(MIN_WIDE_FRACTION_BITS, _wanted_fraction(plan))
        bits = ceil_log2(_compute_max_gradient_sum(plan) * (1 << g_bits) / _SLACK) + 2
        largest = plan.objective.max_hessian * plan.n_samples
        most = floor_log2(MAX_WIDE_REGULARISED_HESSIAN / (largest + 1)) - 1
        h_bits = max(choose_sum_bits(plan, most), min(most, _USUAL_WIDE_H))
        g_more = max(count_extra_bits(plan), count_gradient_bits(plan) - g_bits)
        rows = (
            0
            if plan.objective.constant_hessian
            else _wanted_fraction(plan) + count_extra_bits(plan)
        )
        h_more = max(rows, count_hessian_bits(plan), h_bits) - h_bits
        return cls._of(plan, bits, (g_bits, g_more), (h_bits, h_more), wide=True)

    @classmethod
    def _of(
        cls, plan: Plan, bits: int, of_g: tuple[int, int], of_h: tuple[int, int], *, wide: bool
    ) -> GradientUnits:
        """Return units of so many bits of sums, fraction bits of these, and more of rows."""
        objective, n_samples, bound = (
            plan.objective,
            plan.n_samples,
            _compute_max_gradient_sum(plan),
        )
        (g_bits, g_more), (h_bits, h_more) = of_g, of_h
        counts = objective.constant_hessian
        if plan.must_check_residuals:
            g_bits = min(g_bits, _MAX_SAMPLED_FRACTION_BITS)
            _check_reach(plan, Fraction(1 << (bits - 2), 1 << g_bits))
        stretch = Fraction(1)
        if objective.normalised_label:
            stretch = min(Fraction(2), _SLACK * (1 << (bits - 2 - g_bits)) / bound)
        h_limit = int(objective.max_hessian * n_samples * (1 << h_bits))
        if counts and plan.is_weighted:
            h_limit += n_samples  # what rounding may add to weights
        h_slack = 0 if counts else 8 * isqrt(n_samples) + 16
        g_limit = int(bound * stretch * (1 << g_bits)) + n_samples
        if plan.n_lattice_errors:
            g_more = min(g_more, SCORE_BITS - g_bits)
            h_slack = (compute_max_noise(plan) >> h_more) + 1 + plan.n_lattice_errors
            h_limit += h_slack
            g_limit += (compute_max_noise(plan) >> g_more) + 1 + plan.n_lattice_errors
        # Counts are exact, but for noise, which is as much below zero as above their limit.
        rounding = h_slack if counts else n_samples + 2 * h_slack
        width = (h_limit + rounding).bit_length() + 1
        if wide or not counts:
            bits = max(bits, width)  # the widest ring, though few rows may be drawn for a table
        if plan.n_lattice_errors:
            most = MOST_ROW_BITS if wide else min(SAFE_MODULUS_BITS.values())
            check_modulus_bits(plan, max(bits + g_more, width + h_more), most)
        found = cls(
            g_bits=g_bits,
            g_ring=get_integer_ring(bits),
            max_gradient_sum=g_limit,
            label_stretch=stretch,
            h_bits=h_bits,
            h_ring=get_integer_ring(max(width, _COUNT) if counts else width),
            max_hessian_sum=h_limit,
            h_slack=h_slack,
            has_constant_hessians=counts,
            g_extra_bits=g_more,
            h_extra_bits=h_more,
            is_wide=wide,
        )
        if plan.is_weighted and not counts:
            _check_weights(plan, found._finer_bits)
        return found


def _compute_max_gradient_sum(plan: Plan) -> Fraction:
    """Return what no sum of first derivatives is larger than."""
    return plan.objective.max_gradient_sum(
        plan.n_samples,
        Fraction(plan.params.l2),
        plan.params.n_leaves,
        centred=plan.params.base_score is None,
        n_sampled=_compute_sampled_weight(plan),
    )


def _wanted_fraction(plan: Plan) -> int:
    """Return how many fraction bits first derivatives should have: the more rows, the fewer."""
    usual, size = (17, 1 << 14) if plan.objective.constant_hessian else (18, 24_000)
    return min(_MAX_FRACTION_BITS, usual - floor_log2(Fraction(plan.n_samples, size)) // 2)


def _bits_of_noisy_counts(plan: Plan, g_width: int) -> int:
    """Return the fraction bits of narrow sums of counts that are noisy."""
    whole = ceil_log2(Fraction(plan.n_samples + 1))
    most = min(
        SAMPLE_WEIGHT_BITS,
        g_width - 2 - whole,
        floor_log2(Fraction(MAX_REGULARISED_HESSIAN)) - 1 - whole,
    )
    return choose_sum_bits(plan, most)


def _rounding(plan: Plan) -> Fraction:
    """Return how many units second derivatives of 1 need, for rounding to be little beside l2."""
    return 64 * Fraction(isqrt(plan.n_samples) + 1) / Fraction(plan.params.l2)


def _check_weights(plan: Plan, bits: int) -> None:
    """Refuse weights of so many rows that derivatives would be rounded too much for them."""
    if bits < _FINER and ceil_log2(_rounding(plan)) > bits:
        raise ParameterError(
            f"weights: {plan.n_samples} samples leave masked {bits} fraction bits for what is "
            f"multiplied with weights, and l2 {plan.params.l2:g} needs "
            f"{ceil_log2(_rounding(plan))}: use a larger l2, fewer samples, or no weights"
        )


def _compute_sampled_weight(plan: Plan) -> int | None:
    """Return what no drawn rows weigh more than together; None if that bounds no sum."""
    if plan.n_sampled == plan.n_samples and not plan.must_check_residuals:
        return None
    return plan.n_samples if plan.is_weighted else plan.n_sampled


def _check_reach(plan: Plan, max_signed: Fraction) -> None:
    """Refuse tables that could move a score by more than rings tell apart before it is checked.

    Of a row that is drawn, a residual of up to three times what is signed in its ring is not taken
    for a smaller one. A label is at most 4 in size, and each table moves a score by no more than
    its largest leaf value, in a unit that may be stretched by 2.
    """
    rate, weight = Fraction(plan.params.learning_rate), plan.objective.max_leaf_weight
    if 2 * (4 + plan.params.tables * rate * weight) > 3 * max_signed:
        most = int((3 * max_signed / 2 - 4) / (rate * weight))
        raise ParameterError(
            f"tables: with {plan.residual_check_reason}, {plan.n_samples} samples and a "
            "learning_rate of "
            f"{plan.params.learning_rate:g}, masked can train {most} tables at most, not "
            f"{plan.params.tables}: use fewer, a lower learning_rate, or no "
            f"{plan.residual_check_reason}"
        )
