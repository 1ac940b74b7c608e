"""What errors of lattice masks do to sums, and what bits rows need so that it is little.

A sum of a rows is off by the sum of their errors, which has a deviation of sqrt(10 a n) units for n
errors a row. A right child's is what its parent's is off less what its sibling's is, so a level
adds as much again. Eight deviations are never seen: 1e-15 of all sums are off by more.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from privet.arithmetic.exact import ceil_log2
from privet.arithmetic.lattice import ERROR_BITS
from privet.errors import ParameterError
from privet.terms.plan import Plan

_OF_L2 = Fraction(1, 25)
"""How much of l2 noise may take from a sum of second derivatives: reciprocals allow for 7%."""
_OF_L2_BY_ROUNDING = Fraction(1, 50)
_OF_G = Fraction(1, 8)
"""How much noise may take from a sum of first derivatives, in parts of l2: with many rows, what
rounding does is no measure any more, since a small leaf has the noise of all rows."""
_ROUNDING = 60
"""Errors as large as what rounding at random does are so many times finer, squared."""


def most_noise(plan: Plan) -> int:
    """Return what no sum is off by more than, in units of rows."""
    variance = ERROR_BITS * plan.errors * plan.n_samples * plan.params.depth // 4
    return 8 * (isqrt(variance) + 1)


def finer_bits(plan: Plan) -> int:
    """Return how many more bits make errors move sums no more than rounding does without them."""
    return -(-ceil_log2(Fraction(_ROUNDING * plan.errors)) // 2)


def curvature_bits(plan: Plan) -> int:
    """Return how many fraction bits second derivatives of rows need, at least."""
    return ceil_log2(most_noise(plan) / (_OF_L2 * Fraction(plan.params.l2)))


def gradient_bits(plan: Plan) -> int:
    """Return how many fraction bits first derivatives of rows need for leaves of any size.

    Eight deviations move no leaf value by more than an eighth of the label's unit, then.
    """
    return ceil_log2(most_noise(plan) / (_OF_G * Fraction(plan.params.l2)))


def count_bits(plan: Plan) -> int:
    """Return how many fraction bits sums of counts need, at least, since they are rounded."""
    return max(0, ceil_log2(plan.errors / (_OF_L2_BY_ROUNDING * Fraction(plan.params.l2))))


def sum_bits(plan: Plan, most: int) -> int:
    """Return the fraction bits of sums of second derivatives, if what they may have is enough."""
    if most < count_bits(plan):
        raise ParameterError(
            f"masks: {plan.n_samples} samples leave lattice masks {most} bits below a count, and "
            f"l2 {plan.params.l2:g} needs {count_bits(plan)}: use a larger l2 or fewer samples"
        )
    # Two more than rounding needs: it moves sums by less than errors do.
    return min(most, count_bits(plan) + 2)


def check_bits(plan: Plan, bits: int, most: int) -> None:
    """Refuse a modulus that is too large to be safe, or for our words."""
    if bits > most:
        raise ParameterError(
            f"masks: lattice masks of {plan.n_samples} samples with l2 {plan.params.l2:g} would "
            f"need {bits} bits, and have {most}: use a larger l2 or fewer samples"
        )
