"""The precision of rows and their sums: units, rings, and the noise of lattice masks.

A sum x with |x| < 2^(w-2) can be lifted from a ring of w bits, and so can one with 0 <= x <
2^(w-1). Every bit of a gradient is sent for every sample and level, so gradients have no more bits
than needed: rounding moves a score by about 2^-f / sqrt(N) for f fraction bits, so more samples
need fewer bits.

With lattice masks the error of a sum of a rows is the sum of their errors, which has a standard
deviation of sqrt(10 a n) units for n errors a row. The error of a right child is that of its parent
less that of its sibling, so a level adds as much again. Errors are bounded by eight standard
deviations: a fraction of 1e-15 of all sums exceeds that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from privet.arithmetic.fixed_point import ceil_log2, floor_log2
from privet.arithmetic.ring_lwe import BINOMIAL_ERROR_BITS, MAX_MODULUS_BITS, SAFE_MODULUS_BITS
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.errors import ParameterError
from privet.gates.masked.functions import SCORE_BITS
from privet.spec.plan import Plan
from privet.spec.sampling import MAX_SAMPLE_WEIGHT, SAMPLE_WEIGHT_BITS

_MAX_HESSIAN_NOISE = Fraction(1, 25)
"""The largest noise of a sum of Hessians, as a fraction of l2: reciprocals allow for 7%."""
_MAX_HESSIAN_ROUNDING = Fraction(1, 50)
_MAX_GRADIENT_NOISE = Fraction(1, 8)
"""The largest noise of a sum of gradients, as a fraction of l2. With many rows rounding is no
longer the measure, since a small leaf has the noise of all rows."""
_ROUNDING_VARIANCE_FACTOR = 60
"""The variance of a lattice error divided by that of random rounding to the same unit."""


def compute_max_noise(plan: Plan) -> int:
    """Return the bound on the noise of sums, in units of rows."""
    variance = BINOMIAL_ERROR_BITS * plan.n_lattice_errors * plan.n_samples * plan.params.depth // 4
    return 8 * (isqrt(variance) + 1)


def count_extra_bits(plan: Plan) -> int:
    """Return the extra bits with which errors move sums no more than rounding does without them."""
    return -(-ceil_log2(Fraction(_ROUNDING_VARIANCE_FACTOR * plan.n_lattice_errors)) // 2)


def count_hessian_bits(plan: Plan) -> int:
    """Return the fewest fraction bits of the Hessians of rows."""
    return ceil_log2(compute_max_noise(plan) / (_MAX_HESSIAN_NOISE * Fraction(plan.params.l2)))


def count_gradient_bits(plan: Plan) -> int:
    """Return the fewest fraction bits of the gradients of rows, for leaves of any size.

    Eight standard deviations then move no leaf value by more than an eighth of the label's unit.
    """
    return ceil_log2(compute_max_noise(plan) / (_MAX_GRADIENT_NOISE * Fraction(plan.params.l2)))


def count_fraction_bits_of_counts(plan: Plan) -> int:
    """Return the fewest fraction bits of sums of counts, since they are rounded."""
    return max(
        0, ceil_log2(plan.n_lattice_errors / (_MAX_HESSIAN_ROUNDING * Fraction(plan.params.l2)))
    )


def choose_sum_bits(plan: Plan, max_bits: int) -> int:
    """Return the fraction bits of sums of Hessians; raise ParameterError if `max_bits` are few."""
    if max_bits < count_fraction_bits_of_counts(plan):
        raise ParameterError(
            f"masks: {plan.n_samples} samples leave lattice masks {max_bits} bits below a count, "
            "and "
            f"l2 {plan.params.l2:g} needs {count_fraction_bits_of_counts(plan)}: use a larger l2 "
            "or fewer samples"
        )
    # Two more than rounding needs, so that it moves sums by less than errors do.
    return min(max_bits, count_fraction_bits_of_counts(plan) + 2)


def check_modulus_bits(plan: Plan, bits: int, max_bits: int) -> None:
    """Raise ParameterError for a modulus that is too large to be safe, or for a 64-bit word."""
    if bits > max_bits:
        raise ParameterError(
            f"masks: lattice masks of {plan.n_samples} samples with l2 {plan.params.l2:g} would "
            f"need {bits} bits, and have {max_bits}: use a larger l2 or fewer samples"
        )


MAX_NARROW_BITS = 36
"""The most bits of narrow sums: products with uniformly masked indicators have no more."""
MIN_FRACTION_BITS, MIN_WIDE_FRACTION_BITS = 12, 14
_MAX_FRACTION_BITS = 20
_USUAL_WIDE_H = 16  # fraction bits of wide sums of Hessians, if they fit
_FINER = 22  # fraction bits of gradients and Hessians before they are multiplied with weights
_FINER_LIFTED = 26  # ... or lifted
_MIN_SIGMOID_BITS = 36  # fewer would round its sine and cosine terms more than sums allow
_WORD, _COUNT = 32, 16  # a regression's rings are at least words, which need no packing
# Rounding moves sums by at most a unit for every sample.
_SLACK = Fraction(99, 100)
MAX_REGULARISED_HESSIAN, MAX_WIDE_REGULARISED_HESSIAN = 1 << 33, 1 << 45
"""Bounds on y, narrow or wide: its product with a normalising factor fits a word."""
_MAX_SAMPLED_FRACTION_BITS = 18  # leaves headroom for residuals of rows that are rarely sampled


@dataclass(frozen=True)
class GradientUnits:
    """The units of gradients and Hessians in one training run."""

    g_bits: int
    """Fraction bits of gradients."""
    g_ring: Ring
    max_gradient_sum: int
    """A bound on sums of gradients, in their units."""
    label_stretch: Fraction
    """The factor on normalised labels that uses the last bit of the ring."""
    h_bits: int
    """Fraction bits of Hessians: 0 if they are counts, those of weights if they are weights."""
    h_ring: Ring
    max_hessian_sum: int
    """A bound on sums of Hessians, in their units."""
    h_slack: int
    """Sums of Hessians are at least minus this: rounding can move a sum of zeros below zero."""
    has_constant_hessians: bool
    """Whether Hessians are 1, or the weights."""
    g_extra_bits: int = 0
    """Fraction bits of rows beyond those of sums; some with lattice masks."""
    h_extra_bits: int = 0
    is_wide: bool = False
    """Whether sums have more than 36 bits, which only lattice masks allow."""

    @property
    def max_regularised_hessian(self) -> int:
        """A bound on a sum of Hessians and l2, in units of y."""
        return MAX_WIDE_REGULARISED_HESSIAN if self.is_wide else MAX_REGULARISED_HESSIAN

    @property
    def row_formats(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The fraction bits and rings of the gradients and of the Hessians of rows."""
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
        """Fraction bits of the sigmoid: 64 less the integer bits of sums."""
        if self.must_lift_rows:
            return _MIN_SIGMOID_BITS
        return 64 - self._whole_bits

    @property
    def _whole_bits(self) -> int:
        """The integer bits of sums."""
        sums = (self.g_ring, self.g_bits), (self.h_ring, self.h_bits)
        return max(ring.bits - fraction for ring, fraction in sums)

    @property
    def _finer_bits(self) -> int:
        """Fraction bits of gradients and Hessians before they are multiplied with weights."""
        return min(_FINER, 64 - SAMPLE_WEIGHT_BITS - self._whole_bits)

    @property
    def must_lift_rows(self) -> bool:
        """Whether gradients and Hessians are masked once more, in rings just wide enough for them.

        A share from which bits are dropped has the integer bits of sums. With very many rows too
        few fraction bits are left for the gradients and Hessians of a classification.
        """
        return (
            self.is_wide
            and not self.has_constant_hessians
            and 64 - self._whole_bits < _MIN_SIGMOID_BITS
        )

    @property
    def weight_format(self) -> tuple[int, Ring]:
        """The fraction bits and the ring of weights: those of Hessians, if Hessians are weights."""
        if self.has_constant_hessians:
            return self.h_bits, self.h_ring
        return SAMPLE_WEIGHT_BITS, get_integer_ring(
            ceil_log2(MAX_SAMPLE_WEIGHT << SAMPLE_WEIGHT_BITS) + 2
        )

    @property
    def unweighted_formats(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The fraction bits and rings of gradients and Hessians before weights and a last rounding.

        They are those of rows, not of sums: in a classification gradients are at most 1 in size and
        Hessians at most 1/4.
        """
        if not self.has_constant_hessians:
            bits = _FINER_LIFTED if self.must_lift_rows else self._finer_bits
            return (bits, get_integer_ring(bits + 3)), (bits, get_integer_ring(bits + 2))
        extra = min(4, SCORE_BITS - self.g_bits)
        finer = (self.g_bits + extra, get_integer_ring(self.g_ring.bits + extra))
        return finer, finer

    @classmethod
    def choose_narrow(cls, plan: Plan) -> GradientUnits:
        """Choose units of sums of up to 36 bits; raise ParameterError if they are too few."""
        objective, n_samples = plan.objective, plan.n_samples
        bound, wanted = _compute_max_gradient_sum(plan), _choose_fraction_bits(plan)
        counts = objective.constant_hessian
        bits = min(MAX_NARROW_BITS, ceil_log2(bound * (1 << wanted) / _SLACK) + 2)
        bits = max(bits, _WORD) if counts else bits
        g_bits = min(_MAX_FRACTION_BITS, floor_log2(_SLACK * (1 << (bits - 2)) / bound))
        if g_bits < MIN_FRACTION_BITS:
            raise ParameterError(
                f"protocol: masked sums gradients with at least {MIN_FRACTION_BITS} fraction bits, "
                f"and {n_samples} samples leave {g_bits}: use lattice masks, or fewer samples"
            )
        # As many for Hessians, or more if l2 is small: the rounding error of many tiny ones must be
        # small against l2.
        h_bits = 0
        if counts and plan.is_weighted:
            # The ring of gradients must be the widest: indicators are published over it.
            h_bits = min(SAMPLE_WEIGHT_BITS, bits - 2 - ceil_log2(Fraction(n_samples)))
        if counts and plan.n_lattice_errors:
            h_bits = _choose_noisy_count_bits(plan, bits)
        if not counts:
            max_bits = MAX_NARROW_BITS - 2 - ceil_log2(objective.max_hessian * n_samples)
            h_bits = min(max_bits, max(wanted, ceil_log2(_compute_rounding_units(plan))))
        g_extra = h_extra = 0
        if plan.n_lattice_errors:
            g_extra = count_extra_bits(plan)
            h_extra = max(
                0 if counts else count_extra_bits(plan), count_hessian_bits(plan) - h_bits
            )
        return cls._from_bits(plan, bits, (g_bits, g_extra), (h_bits, h_extra), wide=False)

    @classmethod
    def choose_wide(cls, plan: Plan) -> GradientUnits:
        """Choose units of wider sums, for lattice masks; raise ParameterError if none fits.

        The bits of rows depend on the noise, and only rows are sent for every node. Therefore sums
        have all bits that are useful to scores and leaves.
        """
        assert plan.n_lattice_errors
        wanted = _choose_fraction_bits(plan)
        g_bits = max(MIN_WIDE_FRACTION_BITS, wanted)
        bits = ceil_log2(_compute_max_gradient_sum(plan) * (1 << g_bits) / _SLACK) + 2
        largest = plan.objective.max_hessian * plan.n_samples
        max_bits = floor_log2(MAX_WIDE_REGULARISED_HESSIAN / (largest + 1)) - 1
        h_bits = max(choose_sum_bits(plan, max_bits), min(max_bits, _USUAL_WIDE_H))
        g_extra = max(count_extra_bits(plan), count_gradient_bits(plan) - g_bits)
        row_bits = 0 if plan.objective.constant_hessian else wanted + count_extra_bits(plan)
        h_extra = max(row_bits, count_hessian_bits(plan), h_bits) - h_bits
        return cls._from_bits(plan, bits, (g_bits, g_extra), (h_bits, h_extra), wide=True)

    @classmethod
    def _from_bits(
        cls,
        plan: Plan,
        bits: int,
        gradient_bits: tuple[int, int],
        hessian_bits: tuple[int, int],
        *,
        wide: bool,
    ) -> GradientUnits:
        """Return units from the bits of sums, and the fraction bits of sums and extra ones of rows.

        The last two are pairs, for gradients and for Hessians.
        """
        objective, n_samples, bound = (
            plan.objective,
            plan.n_samples,
            _compute_max_gradient_sum(plan),
        )
        (g_bits, g_extra), (h_bits, h_extra) = gradient_bits, hessian_bits
        counts = objective.constant_hessian
        if plan.must_check_residuals:
            g_bits = min(g_bits, _MAX_SAMPLED_FRACTION_BITS)
            _check_reach(plan, Fraction(1 << (bits - 2), 1 << g_bits))
        stretch = Fraction(1)
        if objective.normalised_label:
            stretch = min(Fraction(2), _SLACK * (1 << (bits - 2 - g_bits)) / bound)
        h_limit = int(objective.max_hessian * n_samples * (1 << h_bits))
        if counts and plan.is_weighted:
            h_limit += n_samples  # rounding of weights
        h_slack = 0 if counts else 8 * isqrt(n_samples) + 16
        g_limit = int(bound * stretch * (1 << g_bits)) + n_samples
        if plan.n_lattice_errors:
            g_extra = min(g_extra, SCORE_BITS - g_bits)
            h_slack = (compute_max_noise(plan) >> h_extra) + 1 + plan.n_lattice_errors
            h_limit += h_slack
            g_limit += (compute_max_noise(plan) >> g_extra) + 1 + plan.n_lattice_errors
        # Counts are exact except for noise, which can be below zero and above their limit.
        rounding = h_slack if counts else n_samples + 2 * h_slack
        width = (h_limit + rounding).bit_length() + 1
        if wide or not counts:
            bits = max(bits, width)  # the widest ring, even if a table samples few rows
        if plan.n_lattice_errors:
            max_bits = MAX_MODULUS_BITS if wide else min(SAFE_MODULUS_BITS.values())
            check_modulus_bits(plan, max(bits + g_extra, width + h_extra), max_bits)
        units = cls(
            g_bits=g_bits,
            g_ring=get_integer_ring(bits),
            max_gradient_sum=g_limit,
            label_stretch=stretch,
            h_bits=h_bits,
            h_ring=get_integer_ring(max(width, _COUNT) if counts else width),
            max_hessian_sum=h_limit,
            h_slack=h_slack,
            has_constant_hessians=counts,
            g_extra_bits=g_extra,
            h_extra_bits=h_extra,
            is_wide=wide,
        )
        if plan.is_weighted and not counts:
            _check_weights(plan, units._finer_bits)
        return units


def _compute_max_gradient_sum(plan: Plan) -> Fraction:
    """Return a bound on sums of gradients."""
    return plan.objective.max_gradient_sum(
        plan.n_samples,
        Fraction(plan.params.l2),
        plan.params.n_leaves,
        centred=plan.params.base_score is None,
        n_sampled=_compute_sampled_weight(plan),
    )


def _choose_fraction_bits(plan: Plan) -> int:
    """Return the desired fraction bits of gradients: more rows need fewer."""
    usual, size = (17, 1 << 14) if plan.objective.constant_hessian else (18, 24_000)
    return min(_MAX_FRACTION_BITS, usual - floor_log2(Fraction(plan.n_samples, size)) // 2)


def _choose_noisy_count_bits(plan: Plan, g_width: int) -> int:
    """Return the fraction bits of narrow sums of noisy counts."""
    integer_bits = ceil_log2(Fraction(plan.n_samples + 1))
    max_bits = min(
        SAMPLE_WEIGHT_BITS,
        g_width - 2 - integer_bits,
        floor_log2(Fraction(MAX_REGULARISED_HESSIAN)) - 1 - integer_bits,
    )
    return choose_sum_bits(plan, max_bits)


def _compute_rounding_units(plan: Plan) -> Fraction:
    """Return the units in a Hessian of 1 for which rounding is small against l2."""
    return 64 * Fraction(isqrt(plan.n_samples) + 1) / Fraction(plan.params.l2)


def _check_weights(plan: Plan, bits: int) -> None:
    """Raise ParameterError if weighted gradients of that many rows would be rounded too much."""
    if bits < _FINER and ceil_log2(_compute_rounding_units(plan)) > bits:
        raise ParameterError(
            f"weights: {plan.n_samples} samples leave masked {bits} fraction bits for what is "
            f"multiplied with weights, and l2 {plan.params.l2:g} needs "
            f"{ceil_log2(_compute_rounding_units(plan))}: use a larger l2, fewer samples, or no "
            "weights"
        )


def _compute_sampled_weight(plan: Plan) -> int | None:
    """Return a bound on the total weight of sampled rows; None if it bounds no sum."""
    if plan.n_sampled == plan.n_samples and not plan.must_check_residuals:
        return None
    return plan.n_samples if plan.is_weighted else plan.n_sampled


def _check_reach(plan: Plan, max_signed: Fraction) -> None:
    """Raise ParameterError if tables could move a score too far for its check to detect it.

    For a sampled row, a residual of up to three times the largest signed number of its ring is not
    mistaken for a smaller one. A label is at most 4 in size, and each table moves a score by at
    most its largest leaf value, in a unit that can be stretched by 2.
    """
    rate, weight = Fraction(plan.params.learning_rate), plan.objective.max_leaf_weight
    if 2 * (4 + plan.params.tables * rate * weight) > 3 * max_signed:
        max_tables = int((3 * max_signed / 2 - 4) / (rate * weight))
        raise ParameterError(
            f"tables: with {plan.residual_check_reason}, {plan.n_samples} samples and a "
            "learning_rate of "
            f"{plan.params.learning_rate:g}, masked can train {max_tables} tables at most, not "
            f"{plan.params.tables}: use fewer, a lower learning_rate, or no "
            f"{plan.residual_check_reason}"
        )
