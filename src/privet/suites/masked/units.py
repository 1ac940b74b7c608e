"""The units of derivatives and the rings of their sums, from the plan.

A sum x with |x| < 2^(w-2) can be lifted from a ring of w bits, one with 0 <= x < 2^(w-1) too. Every
bit of a first derivative is carried for every sample and level, so there are no more than needed:
rounding moves a score by about 2^-f / sqrt(N) for f fraction bits, so more samples need fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt

from privet.arithmetic.exact import ceil_log2, floor_log2, nearest
from privet.arithmetic.rings import Ring, integers_modulo
from privet.errors import ParameterError
from privet.gates.sigmoid_series import SCORE_BITS
from privet.suites.masked.noise import (
    check_bits,
    count_bits,
    curvature_bits,
    finer_bits,
    most_noise,
)
from privet.terms.plan import Plan
from privet.terms.weights import LARGEST_WEIGHT, WEIGHT_BITS

MOST_BITS = 36
"""Of sums: products with masked indicators are computed that far."""
LEAST_FRACTION = 12
_MOST_FRACTION = 20
_FINER = 22  # fraction bits of derivatives before they are multiplied with weights
_WORD, _COUNT = 32, 16  # a regression's rings are at least words, which need no packing
# Rounding moves sums by a unit for every sample, at most.
_SLACK = Fraction(99, 100)
LARGEST_Y = 1 << 33
_MOST_DRAWN_FRACTION = 18  # leaves room for residuals of rows that are not drawn for long


@dataclass(frozen=True)
class Units:
    """The units of derivatives in one training."""

    g_bits: int
    """Fraction bits of first derivatives."""
    g_ring: Ring
    g_limit: int
    """No sum of first derivatives is larger, in their units."""
    stretch: Fraction
    """What labels in a unit of their own are multiplied with, to use the ring's last bit."""
    h_bits: int
    """Fraction bits of second derivatives: 0 where they are 0 or 1, a weight's where they are 0 or
    that."""
    h_ring: Ring
    h_limit: int
    """No sum of second derivatives is larger, in their units."""
    h_slack: int
    """Nor less than minus this: those of certain samples are zero, give or take a rounding."""
    counts: bool
    """Whether second derivatives are 1, or the weights."""
    g_more: int = 0
    """Fraction bits that rows have beyond sums: with lattice masks, some."""
    h_more: int = 0

    @property
    def rows(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The fraction bits and the rings of rows' first and second derivatives."""
        return (
            (self.g_bits + self.g_more, integers_modulo(self.g_ring.bits + self.g_more)),
            (self.h_bits + self.h_more, integers_modulo(self.h_ring.bits + self.h_more)),
        )

    @property
    def weights(self) -> tuple[int, Ring]:
        """The fraction bits and the ring of weights: the second derivatives', if they are these."""
        if self.counts:
            return self.h_bits, self.h_ring
        return WEIGHT_BITS, integers_modulo(ceil_log2(LARGEST_WEIGHT << WEIGHT_BITS) + 2)

    @property
    def unweighted(self) -> tuple[tuple[int, Ring], tuple[int, Ring]]:
        """The same of derivatives that are to be multiplied with weights, and rounded once more.

        Each, not their sums: a classification's are at most 1 and 1/4.
        """
        if not self.counts:
            return (_FINER, integers_modulo(_FINER + 3)), (_FINER, integers_modulo(_FINER + 2))
        more = min(4, SCORE_BITS - self.g_bits)
        finer = (self.g_bits + more, integers_modulo(self.g_ring.bits + more))
        return finer, finer

    @classmethod
    def of(cls, plan: Plan) -> Units:
        """Choose units for a plan; raise ParameterError if none will do."""
        objective, n_samples, params = plan.objective, plan.n_samples, plan.params
        bound = objective.largest_sum(
            n_samples,
            Fraction(params.l2),
            params.leaves,
            centred=params.base_score is None,
            drawn=_weight_of_drawn(plan),
        )
        # Second derivatives are counted exactly, or weighed.
        counts = objective.unit_curvature
        usual, size = (17, 1 << 14) if counts else (18, 24_000)
        halvings = -(floor_log2(Fraction(n_samples, size)) // 2)
        wanted = min(_MOST_FRACTION, usual + halvings)
        bits = min(MOST_BITS, ceil_log2(bound * (1 << wanted) / _SLACK) + 2)
        bits = max(bits, _WORD) if counts else bits
        g_bits = min(_MOST_FRACTION, floor_log2(_SLACK * (1 << (bits - 2)) / bound))
        if g_bits < LEAST_FRACTION:
            raise ParameterError(
                f"protocol: masked sums gradients with at least {LEAST_FRACTION} fraction bits, "
                f"and {n_samples} samples leave {g_bits}: use fewer samples"
            )
        if plan.checks_squares:
            g_bits = min(g_bits, _MOST_DRAWN_FRACTION)
            _check_reach(plan, Fraction(1 << (bits - 2), 1 << g_bits))
        stretch = Fraction(1)
        if objective.own_unit:
            stretch = min(Fraction(2), _SLACK * (1 << (bits - 2 - g_bits)) / bound)
        # As many for second derivatives, or more, if l2 is small: what rounding makes of many tiny
        # ones must be small against it.
        h_bits = 0
        if counts and plan.weighted:
            # The ring of first derivatives is the widest: indicators are published over it.
            h_bits = min(WEIGHT_BITS, bits - 2 - ceil_log2(Fraction(n_samples)))
        if counts and plan.errors:
            h_bits = _bits_of_noisy_counts(plan, bits)
        if not counts:
            noise = 64 * Fraction(isqrt(n_samples) + 1) / Fraction(params.l2)
            most = MOST_BITS - 2 - ceil_log2(objective.largest_curvature * n_samples)
            h_bits = min(most, max(wanted, ceil_log2(noise)))
        h_limit = int(objective.largest_curvature * n_samples * (1 << h_bits))
        if counts and plan.weighted:
            h_limit += n_samples  # what rounding may add to weights
        h_slack = 0 if counts else 8 * isqrt(n_samples) + 16
        g_limit = int(bound * stretch * (1 << g_bits)) + n_samples
        g_more = h_more = 0
        if plan.errors:
            g_more = min(finer_bits(plan), SCORE_BITS - g_bits)
            h_more = max(0 if counts else finer_bits(plan), curvature_bits(plan) - h_bits)
            h_slack = (most_noise(plan) >> h_more) + 1 + plan.errors
            h_limit += h_slack
            g_limit += (most_noise(plan) >> g_more) + 1 + plan.errors
        rounding = 0 if counts else n_samples + 2 * h_slack
        width = (h_limit + rounding).bit_length() + 1
        if not counts:
            bits = max(bits, width)  # the widest ring, though few rows may be drawn for a table
        if plan.errors:
            check_bits(plan, max(bits + g_more, width + h_more))
        return cls(
            g_bits=g_bits,
            g_ring=integers_modulo(bits),
            g_limit=g_limit,
            stretch=stretch,
            h_bits=h_bits,
            h_ring=integers_modulo(max(width, _COUNT) if counts else width),
            h_limit=h_limit,
            h_slack=h_slack,
            counts=counts,
            g_more=g_more,
            h_more=h_more,
        )


def _bits_of_noisy_counts(plan: Plan, g_width: int) -> int:
    """Return the fraction bits of sums of counts that are noisy."""
    whole = ceil_log2(Fraction(plan.n_samples + 1))
    most = min(WEIGHT_BITS, g_width - 2 - whole, floor_log2(Fraction(LARGEST_Y)) - 1 - whole)
    if most < count_bits(plan):
        raise ParameterError(
            f"masks: {plan.n_samples} samples leave lattice masks {most} bits below a count, and "
            f"l2 {plan.params.l2:g} needs {count_bits(plan)}: use a larger l2, or uniform masks"
        )
    # Two more than rounding needs: it moves sums by less than errors do.
    return min(most, count_bits(plan) + 2)


def _weight_of_drawn(plan: Plan) -> int | None:
    """Return what no drawn rows weigh more than together; None if that bounds no sum."""
    if plan.n_drawn == plan.n_samples and not plan.checks_squares:
        return None
    return plan.n_samples if plan.weighted else plan.n_drawn


def _check_reach(plan: Plan, signed: Fraction) -> None:
    """Refuse tables that could move a score by more than rings tell apart before it is checked.

    Of a row that is drawn, a residual of up to three times what is signed in its ring is not taken
    for a smaller one. A label is at most 4 in size, and each table moves a score by no more than
    its largest leaf value, in a unit that may be stretched by 2.
    """
    rate, weight = Fraction(plan.params.learning_rate), plan.objective.largest_weight
    if 2 * (4 + plan.params.tables * rate * weight) > 3 * signed:
        most = int((3 * signed / 2 - 4) / (rate * weight))
        raise ParameterError(
            f"tables: with {plan.raises_squares}, {plan.n_samples} samples and a learning_rate of "
            f"{plan.params.learning_rate:g}, masked can train {most} tables at most, not "
            f"{plan.params.tables}: use fewer, a lower learning_rate, or no {plan.raises_squares}"
        )


def l2_in_units(l2: Fraction, h_limit: int) -> tuple[int, int]:
    """Return how many fraction bits y has beyond h's, and l2 in its units: exactly, if possible."""
    best = (0, max(1, nearest(l2)))
    for bits in range(29):
        value = l2 * (1 << bits)
        if (h_limit << bits) + value >= LARGEST_Y:
            break
        best = (bits, max(1, nearest(value)))
        if value == best[1]:
            break
    return best


def least_in_units(plan: Plan, units: Units) -> int:
    """Return the least sum that counts: what rounding makes of one that does is no less."""
    weight = Fraction(plan.params.min_child_weight)
    most = plan.objective.largest_curvature * plan.n_samples
    if weight > most:
        raise ParameterError(
            f"min_child_weight: {float(weight):g} is more than {plan.n_samples} rows add up to, "
            f"{float(most):g} at most: use less"
        )
    return max(0, ceil(weight * (1 << units.h_bits)) - units.h_slack)
