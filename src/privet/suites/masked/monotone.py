"""Monotone constraints on shares: cuts that would break them, and leaf values in their order.

Which features are constrained, all know; which cut of them wins, and in which order anything was,
nobody learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privet.arithmetic.exact import ceil_log2, floor_log2
from privet.arithmetic.rings import Ring, integers_modulo
from privet.arithmetic.shares import Elements, Share, concatenate, stack
from privet.gates.gate import together
from privet.gates.masked import Masked, mask, mask_one, signed_lift
from privet.gates.polynomial import polynomial
from privet.gates.threshold import compare, step, usual_digits
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.candidates import Candidates
from privet.suites.masked.reciprocal import lifted_y
from privet.suites.masked.scales import Scales

_FINE_BITS = 12
"""Differences are told apart to 2^-12 of those of a leaf with a derivative of 1 and no curvature
but l2..."""
_MOST_BITS = 48
"""... unless they could be so large that this takes more bits."""
_GUARD_BITS = 4
"""What nodes gain is added up with so many bits more than scores are compared with."""


class RiseScale(NamedTuple):
    """How the sides of cuts are compared."""

    shift: int
    """How many bits G loses first."""
    drop: int
    """How many bits a difference loses."""
    ring: Ring
    """The ring that it is opened in then."""

    @classmethod
    def of(cls, scales: Scales) -> RiseScale:
        """Choose it: a difference is at most the largest G times the largest y, and l2 more."""
        units = scales.units
        largest = units.g_limit * ((units.h_limit << scales.y_bits) + 2 * scales.l2)
        bits = ceil_log2(largest) + 2
        shift = max(0, bits - 64)
        bits -= shift
        unit = (scales.l2 << units.g_bits) >> (shift + _FINE_BITS)
        drop = max(bits - _MOST_BITS, floor_log2(unit) if unit else 0, 0)
        return cls(shift, drop, integers_modulo(bits - drop))

    @property
    def digits(self) -> int:
        """How many digits to compare by."""
        return usual_digits(self.ring.bits, factor_bits=96)


def rises(
    runtime: Runtime,
    scales: Scales,
    signs: npt.NDArray[np.intp],
    g: tuple[Masked, Masked],
    h: tuple[Masked, Masked],
) -> Share:
    """Return what is negative in nodes whose sides are in the wrong order: (M, K, nodes).

    Of the sums left of M cuts, and in all; `signs` are the constraints of the cuts. The right
    side's Newton step less the left one's, -G / y each, has the sign of G_L y_R - G_R y_L, which
    is G_L (y_L + y_R) - (G_L + G_R) y_L. To be masked.
    """
    scale = RiseScale.of(scales)
    ring = integers_modulo(scale.ring.bits + scale.drop)
    left_g, total_g = (signed_lift(runtime, x, shift=scale.shift, ring=ring) for x in g)
    left_y, total_y = (lifted_y(runtime, scales, x, ring) for x in h)
    values = [left_g, total_y + scales.l2, total_g, left_y]
    found = polynomial(runtime, values, [(1, (0, 1)), (-1, (2, 3))])
    found = found * signs.reshape(-1, 1, 1)
    return drop_bits(runtime, found, scale.drop, scale.ring)


def constrained_scores(
    runtime: Runtime, scales: Scales, candidates: Candidates, by_node: Share, rise: Masked
) -> Share:
    """Return the scores of all cuts, (C,), from what nodes add to all that is scored.

    A constrained cut gains something in nodes whose sides are in order: what it adds there beyond
    what the node adds as a whole.

    Cost: one opening. Reveals: nothing.
    """
    drop, ring = scales.compared
    finer = integers_modulo(ring.bits + _GUARD_BITS)
    cuts, whole = candidates.constrained, candidates.whole_of
    gain = drop_bits(runtime, by_node[cuts] - by_node[whole], drop - _GUARD_BITS, finer)
    scale = RiseScale.of(scales)
    slack = (runtime.n_parties + 1) // 2 if scale.drop else 0  # what rounding may take from a tie
    comparing = compare.later(
        rise + slack, thresholds=(0,), width=scale.ring.bits, digits=scale.digits
    )
    reached, (masked,) = together(runtime, comparing, mask.later(gain))
    kept = step(runtime, reached, masked.lifted(), factors=(0, 1)).sum((1, 2))
    kept = drop_bits(runtime, kept, _GUARD_BITS, ring)
    base, place = np.arange(len(candidates.feature)), np.zeros(len(candidates.feature), np.intp)
    base[cuts], place[cuts] = whole, 1 + np.arange(len(cuts))
    scores = drop_bits(runtime, by_node[base].sum((1, 2)), drop, ring)
    return scores + concatenate([kept[:1] * 0, kept])[place]


def in_order(runtime: Runtime, values: Masked, signs: Sequence[int]) -> Masked:
    """Return leaf values, (K, 2^D), in the order that each level's test asks for.

    For each level: where of two leaves that differ in its outcome alone the values are in the wrong
    order, both take their mean. To be exact, all values are doubled at each level: the result is in
    a ring of D bits more, and in a unit of 2^-D.

    `signs` are those of the features that levels test. The dealer does not know them, so it deals
    for both orders, and every level takes the same messages.

    Cost: two openings a level. Reveals: nothing. Error: none.
    """
    shape = values.shape
    for level, sign in enumerate(signs):
        with runtime.step("level", level):
            pairs = values.map(partial(_pairs, level=level))
            wider = integers_modulo(values.ring.bits + 1)
            lifted = signed_lift(runtime, pairs, ring=wider)
            rise = pairs.map(lambda a: a[:, :, 1] - a[:, :, 0])
            width = values.ring.bits
            reached = compare(
                runtime, rise, thresholds=(0,), width=width, digits=usual_digits(width)
            )
            difference = lifted.map(lambda a: a[:, :, 1]) - lifted.map(lambda a: a[:, :, 0])
            up = step(runtime, reached, difference, factors=(0, 1))
            down = difference.share(runtime) - up
            wrong = (down if sign > 0 else up) * abs(sign)
            share = lifted.share(runtime)
            sides = [share[:, :, 0] * 2 + wrong, share[:, :, 1] * 2 - wrong]
            values = mask_one(runtime, stack(sides, axis=2).reshape(*shape))
    return values


def _pairs(values: Elements, level: int) -> Elements:
    """Return leaf values by a level's outcome, on the third axis."""
    return values.reshape(len(values), 1 << level, 2, -1)
