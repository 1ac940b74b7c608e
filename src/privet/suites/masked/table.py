"""One decision table by masked values: gradients, the best test of a level, splits, leaf values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privet.arithmetic.exact import ceil_log2, nearest
from privet.arithmetic.rings import Z32, Z36, Z64, RingArray
from privet.arithmetic.shares import Share, stack
from privet.arrays import BucketArray
from privet.errors import ResultError
from privet.gates.choose import MaskedBits, keep, publish_bits
from privet.gates.histogram import Indicators, histogram
from privet.gates.masked import Lifted, Masked, combine, mask, unmasked
from privet.gates.polynomial import polynomial
from privet.gates.shrink import shrink
from privet.gates.threshold import count_reached
from privet.gates.waves import SCORE_BITS, waves
from privet.runtime.runtime import Runtime
from privet.suites.masked.division import low_bits, quotient, shifted, signed_lift, unit, whole
from privet.suites.masked.scales import Scales
from privet.suites.masked.tournament import best
from privet.suites.plan import Plan

WEIGHT_SHIFT = 31
"""A quotient, below 2^62, loses this many bits before it is multiplied with G again."""
GAIN_SHIFT = 2
"""And G so many: it has more to spare than a small weight."""
CHECK_WIDTH = 48
CHECK_SHIFT = 64 - CHECK_WIDTH
"""Leaf values are compared with their bound on the leading 48 of 64 bits."""
LOSS_BITS = 16
"""Fraction bits of a revealed loss."""
HANDICAP_BITS = 20
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding makes about as much of
equal ones; a larger handicap would be wrong more often where scores nearly agree."""
FIRST_HANDICAP_BITS = 21
MOST_HANDICAP_BITS = 15
"""But in a classification's first table all samples have one of two gradients, and candidates are
equal more often than nearly so: 2^-21 for every feature before, and 2^-15 in all, at most."""


@dataclass
class Nodes:
    """The nodes of a level: their masked gradients and their sums over every cut."""

    g: Masked
    """(nodes, N) over Z36."""
    h: Masked
    sums_g: Share
    """(features, cuts, nodes)."""
    sums_h: Share


def root(
    runtime: Runtime,
    plan: Plan,
    scales: Scales,
    indicators: Indicators,
    label: Share,
    score: Share,
) -> list[Masked]:
    """Return the masked first and second derivatives of all samples, (1, N) each.

    Regression: g = score - y, rounded to its fraction bits at random, and h = 1, which is public.
    Classification: p and p(1 - p) by `waves`, g = p - y.

    Cost: one opening of 8N bytes; or one of 4N and one of 16N.
    """
    with runtime.step("gradients"):
        if plan.task == "regression":
            drop = (SCORE_BITS - scales.g_bits,)
            with indicators.ahead(runtime):
                g = shrink(runtime, _row(score - label), bits=drop, rings=(Z36,))
            ones = np.ones((1, plan.n_samples), dtype=scales.h_ring.dtype)
            return [g, unmasked(runtime, ones, scales.h_ring)]
        wave_bits = scales.wave_bits
        found_waves = waves(runtime, mask(runtime, low_bits(score, Z32)), bits=wave_bits)
        p, h_share = found_waves[0], found_waves[1]
        difference = p - label * (1 << (wave_bits - SCORE_BITS))
        bits = [wave_bits - scales.g_bits, wave_bits - scales.h_bits]
        both = _row(difference), _row(h_share)
        with indicators.ahead(runtime):
            rings = (Z36, scales.h_ring)
            found: list[Masked] = shrink(runtime, *both, bits=tuple(bits), rings=rings)
        return found


def squared_residuals(runtime: Runtime, scales: Scales, g: Masked) -> Share:
    """Return the mean square of first derivatives, as LOSS_BITS fraction bits of one number.

    Rounded before it is revealed: its low bits would say more than anybody agreed to.

    Cost: one opening of one element.
    """
    with runtime.step("loss"):
        lifted = signed_lift(runtime, g)
        squares: Share = polynomial(runtime, [(1, (lifted, lifted))])
        n_samples = g.shape[1]
        # The sum, divided by a power of two near N, and later by what is left.
        bits = 2 * scales.g_bits + n_samples.bit_length() - LOSS_BITS
        return rounded(runtime, squares.sum((0, 1)).reshape(1), bits)


def _row(values: Share) -> Share:
    return values.reshape(1, values.size)


def sum_nodes(
    runtime: Runtime, indicators: Indicators, g: Masked, h: Masked, parent: Nodes | None
) -> Nodes:
    """Return the nodes of a level: the root, or left children and with them the right ones.

    A right child is its parent less its left sibling: in what is public, in masks and in sums.
    """
    with runtime.step("histogram"):
        sums_g, sums_h = histogram(runtime, indicators, g, h)
    if parent is None:
        return Nodes(g, h, sums_g, sums_h)
    return Nodes(
        _beside(g, parent.g - g),
        _beside(h, parent.h - h),
        _interleave(sums_g, parent.sums_g - sums_g),
        _interleave(sums_h, parent.sums_h - sums_h),
    )


def _beside(left: Masked, right: Masked) -> Masked:
    """Interleave left and right children: (nodes, N) each."""

    def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.stack([a, b], axis=1).reshape(2 * len(a), -1)

    return combine(pair, left, right)


def _interleave(left: Share, right: Share) -> Share:
    both = stack([left, right], axis=3)
    return both.reshape(*left.shape[:2], 2 * left.shape[2])


def best_test(
    runtime: Runtime, plan: Plan, scales: Scales, nodes: Nodes, handicap: RingArray
) -> tuple[int, int]:
    """Return the feature and, to its owner, the bucket of the best test; -1 to the others.

    1. Mask the sums left of every cut, and the nodes' totals; what is right follows.
    2. The score of a cut is the sum over nodes and sides of G / (H + l2) times G (`quotient`, then
       one more opening).
    3. The best of all cuts of all features (`tournament`).

    Reveals: the feature to all, its bucket to its owner.
    """
    with runtime.step("scores"):
        scores = _scores(runtime, scales, nodes, handicap)
    n_features, cuts = plan.n_features, plan.candidates
    owners = np.array(plan.owners)
    carried = np.zeros((1 + runtime.n_parties, n_features, cuts), dtype=np.int64)
    carried[0] = np.arange(n_features)[:, None]
    carried[1 + owners, np.arange(n_features)] = np.arange(cuts) + 1
    choice = best(runtime, scores.reshape(-1), carried.reshape(len(carried), -1))
    with runtime.step("reveal"):
        what = ("split feature", "split bucket")
        found = runtime.reveal_choice(choice, plan.owners, plan.candidates, what)
    return (0, -1) if found is None else found


def _scores(runtime: Runtime, scales: Scales, nodes: Nodes, handicap: RingArray) -> Share:
    index = runtime.index
    with runtime.step("sums"):
        masked = mask(
            runtime,
            nodes.sums_g,
            nodes.sums_h,
            nodes.g.share(index).sum(1),
            nodes.h.share(index).sum(1),
        )
    left_g, left_h, total_g, total_h = masked
    g, h = _both_sides(left_g, total_g), _both_sides(left_h, total_h)
    weight = quotient(runtime, scales, g, h, handicap.reshape(1, -1, 1, 1))
    with runtime.step("gain"):
        w = signed_lift(runtime, mask(runtime, weight), shift=WEIGHT_SHIFT)
        gain: Share = polynomial(runtime, [(1, (w, signed_lift(runtime, g, shift=GAIN_SHIFT)))])
    return gain.sum((0, 3))


def handicaps(plan: Plan, scales: Scales, *, first: bool) -> RingArray:
    """Return by how much the quotients of each feature are lowered, in parts of `whole`.

    In proportion to its number, so that equal scores tend to go to the lowest, as in the reference.
    """
    last = plan.n_features << HANDICAP_BITS
    if first and plan.task == "classification":
        last = max(1 << FIRST_HANDICAP_BITS, plan.n_features << MOST_HANDICAP_BITS)
    return Z64.array([whole(scales) * j // last for j in range(plan.n_features)])


def _both_sides(left: Masked, total: Masked) -> Masked:
    """Return what is left and right of every cut: (2, features, cuts, nodes)."""
    right = total.map(lambda a: np.broadcast_to(a, left.shape)) - left
    return combine(lambda *sides: np.stack(sides), left, right)


def split(
    runtime: Runtime, nodes: Nodes, fails: BucketArray | None
) -> tuple[MaskedBits, list[Share]]:
    """Publish a test's outcome masked, and return shares of the left children of g and h."""
    n_samples = nodes.g.shape[1]
    with runtime.step("split"):
        bits = publish_bits(runtime, fails, shape=(n_samples,))
        return bits, [keep(runtime, bits, nodes.g), keep(runtime, bits, nodes.h)]


def mask_children(runtime: Runtime, indicators: Indicators, left: list[Share]) -> list[Masked]:
    """Mask the left children: the one large opening of a level."""
    with runtime.step("children"), indicators.ahead(runtime):
        masked: list[Masked] = mask(runtime, *left)
        return masked


def leaf_values(
    runtime: Runtime, plan: Plan, scales: Scales, nodes: Nodes, left: list[Share]
) -> Share:
    """Return the values of the leaves, (2^D,), in the units of scores.

    1. A left leaf's sums are those of what was kept; a right one's, its parent's less these.
    2. -G / (H + l2), times the learning rate and the unit, rounded at random.
    """
    index = runtime.index
    with runtime.step("leaves"):
        parents = [x.share(index).sum(1) for x in (nodes.g, nodes.h)]
        sums = []
        for kept, parent in zip(left, parents, strict=True):
            total = kept.sum(1)
            sums.append(stack([total, parent - total], axis=1).reshape(plan.leaves))
        g, h = mask(runtime, *sums)
        weight = quotient(runtime, scales, g, h)
        w = signed_lift(runtime, mask(runtime, weight), shift=WEIGHT_SHIFT)
        factor, bits = leaf_factor(plan, scales)
        scaled = polynomial(runtime, [(-factor, (w,))])
        return rounded(runtime, scaled, bits)


def leaf_factor(plan: Plan, scales: Scales) -> tuple[int, int]:
    """Return what turns a quotient into a leaf value, and how many fraction bits that has.

    The learning rate and the quotient's unit, in as many bits as the product with 2^30 leaves.
    """
    value = Fraction(plan.learning_rate) * unit(scales) * (1 << (WEIGHT_SHIFT + SCORE_BITS))
    bits = min(32, 30 - max(0, ceil_log2(value)))
    return nearest(value, bits), bits


def check_leaves(runtime: Runtime, plan: Plan, values: Masked) -> None:
    """Raise ResultError if a masked leaf value, in scores' units, is larger than can be right.

    1. Compare all values with the bound, from above and below, on their leading bits.
    2. Reveal how many comparisons came out as they must: all of them, or training ends here.

    Cost: `check_cost`. Reveals: that all leaf values are within the bound, or how many are not.
    """
    bound = nearest(plan.largest_leaf, SCORE_BITS) + (1 << CHECK_SHIFT)
    with runtime.step("check"):
        sides = values.map(lambda a: np.stack([a, np.negative(a)])) + bound
        within = count_reached(runtime, shifted(sides, CHECK_SHIFT), [0], CHECK_WIDTH)
        # Counts over Z8, of fewer than it can hold.
        counted = within.reshape(-1, min(within.size, 128)).sum(1)
        everybody = list(range(runtime.n_parties))
        found = runtime.reveal(counted, everybody, "leaf values within bounds")
    if found is not None and found.sum() != within.size:
        raise ResultError(f"leaf values of {float(plan.largest_leaf):g} and more in size")


def rounded(runtime: Runtime, x: Share, bits: int) -> Share:
    """Divide a share over Z64 by 2^bits, rounding at random."""
    lifted: Lifted = signed_lift(runtime, mask(runtime, x), shift=bits)
    result: Share = polynomial(runtime, [(1, (lifted,))])
    return result
