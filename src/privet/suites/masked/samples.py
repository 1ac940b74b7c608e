"""What is done sample by sample: derivatives, sums up to the cuts, splits, and scores.

This half of a level sees rows and knows no score of a cut. It hands sums to the other half
(`cuts`), and gets back a test, and at a table's end leaf values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.arithmetic.rings import Z32, Z36, integers_modulo
from privet.arithmetic.shares import Elements, Share, stack
from privet.arrays import BucketArray
from privet.gates.histogram import Indicators, Products, histogram
from privet.gates.masked import Masked, combine, constant, mask, mask_one, signed_lift
from privet.gates.outcomes import keep, leaf_lookup, outcome_share
from privet.gates.polynomial import polynomial
from privet.gates.shrink import shrink
from privet.gates.sigmoid_series import LARGEST_SCORE, SCORE_BITS, sigmoid_series
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.scales import Scales
from privet.suites.suite import OwnData
from privet.terms.objective import Functions, SharedReal
from privet.terms.plan import Plan

LOSS_BITS = 16
"""Fraction bits of a revealed loss."""
_SCORE_WIDTH = 10
"""Bits on which scores are compared with the largest: to a sixteenth."""


@dataclass(frozen=True)
class Sums:
    """Of first and second derivatives: left of every cut, (J, C, K, nodes), and in all.

    Of the root, or of left children: a right child's are its parent's less its left sibling's.
    """

    g: Share
    h: Share
    total_g: Share
    """(K, nodes)."""
    total_h: Share


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a level: their masked derivatives, (K, nodes, N)."""

    g: Masked
    h: Masked


class Samples(Functions):
    """The samples of one training, table by table."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        scales: Scales,
        data: OwnData,
        indicators: Indicators,
        bounds: Bounds,
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._scales = scales
        self._data = data
        self._indicators = indicators
        self._bounds = bounds
        self._nodes: _Nodes | None = None
        self._left: list[Share] = []
        self._outcomes: list[Masked] = []
        self._masked: list[Masked] = []
        self._products = Products(runtime, indicators)

    def begin_table(self, target: Share, score: Share) -> None:
        """Mask the derivatives of all samples, (K, 1, N) each.

        Cost: one opening of 38 bits a sample where the second derivatives are 1; otherwise what
        they cost, and 60 bits more.
        """
        runtime, plan, scales = self._runtime, self._plan, self._scales
        self._nodes, self._outcomes = None, []
        with runtime.step("gradients"):
            g, h = plan.objective.derivatives_on_shares(
                self, SharedReal(score, SCORE_BITS), SharedReal(target, SCORE_BITS)
            )
            # Of what a first derivative loses, all but two bits go from the shares. A second one
            # loses all under the mask: so it does not become negative.
            drop = g.bits - scales.g_bits
            guard = min(2, drop)
            few = drop_bits(runtime, g.share, drop - guard, integers_modulo(Z36.bits + guard))
            rows, bits, rings = [_rows(few)], [guard], [Z36]
            if h is not None:
                rows.append(_rows(h.share))
                bits.append(h.bits - scales.h_bits)
                rings.append(scales.h_ring)
            found = shrink(runtime, *rows, bits=bits, rings=rings, meanwhile=self._products.begin)
            if h is None:
                ones = np.ones(rows[0].shape, dtype=scales.h_ring.dtype)
                found.append(constant(runtime, ones, scales.h_ring))
            self._masked = found

    def sigmoid(self, score: SharedReal) -> tuple[SharedReal, SharedReal]:
        """Return the sigmoid and its derivative, by a series: one opening of 4 bytes a score.

        The series is right for scores below 16 in size: with 16 added these are, as signed numbers
        modulo 64, not negative. They are compared on 10 bits, so 16 less a sixteenth may be too
        much already.
        """
        assert score.bits == SCORE_BITS
        bits = self._scales.sigmoid_bits
        masked = mask_one(self._runtime, score.share.to_ring(Z32))
        shifted = masked + (LARGEST_SCORE << SCORE_BITS)
        self._bounds.check_signs(
            shifted, _SCORE_WIDTH, f"scores of {LARGEST_SCORE} and more in size"
        )
        both = sigmoid_series(self._runtime, masked, bits=bits)
        return SharedReal(both[0], bits), SharedReal(both[1], bits)

    def squared_residuals(self) -> Share:
        """Return the mean square of first derivatives, as LOSS_BITS fraction bits of one number.

        Rounded before it is revealed: its low bits would say more than anybody agreed to.

        Cost: one opening of one element.
        """
        runtime, n_samples = self._runtime, self._plan.n_samples
        with runtime.step("loss"):
            lifted = signed_lift(runtime, self._masked[0])
            squares = polynomial(runtime, [lifted], [(1, (0, 0))])
            # The sum, divided by a power of two near N, and later by what is left.
            bits = 2 * self._scales.g_bits + n_samples.bit_length() - LOSS_BITS
            total = mask_one(runtime, squares.sum().reshape(1))
            return polynomial(runtime, [signed_lift(runtime, total, shift=bits)], [(1, (0,))])

    def sums(self) -> Sums:
        """Return the sums of the root, or of left children.

        A right child is its parent less its left sibling, in what is public and in masks.
        """
        runtime, (g, h), parent = self._runtime, self._masked, self._nodes
        outputs, nodes, _ = g.shape
        with runtime.step("histogram"):
            flat = [x.map(lambda a: a.reshape(outputs * nodes, -1)) for x in (g, h)]
            found = histogram(runtime, self._products, *flat)
            sums_g, sums_h = (s.reshape(*s.shape[:2], outputs, nodes) for s in found)
        sums = Sums(sums_g, sums_h, g.share(runtime).sum(2), h.share(runtime).sum(2))
        if parent is not None:
            g, h = siblings(parent.g, g, axis=1), siblings(parent.h, h, axis=1)
        self._nodes = _Nodes(g, h)
        return sums

    def split(self, feature: int, bucket: int, *, last: bool) -> None:
        """Split all nodes by a test, which its owner knows: -1 is somebody else's bucket.

        The outcome is masked, (N,), and with it left children follow; but for the last level's,
        they are masked: the one large opening of a level.
        """
        runtime, nodes = self._runtime, self._nodes
        assert nodes is not None
        outputs, count, n_samples = nodes.g.shape
        with runtime.step("split"):
            fails = outcome_share(runtime, self._fails(feature, bucket), (n_samples,))
            bits = mask_one(runtime, fails)
            self._outcomes.append(bits)
            self._left = [
                keep(runtime, bits, x.map(lambda a: a.reshape(outputs * count, -1)))
                for x in (nodes.g, nodes.h)
            ]
        if last:
            return
        with runtime.step("children"):
            self._products = Products(runtime, self._indicators)
            masked = mask(runtime, *self._left, meanwhile=self._products.begin)
        self._masked = [x.map(lambda a: a.reshape(outputs, count, -1)) for x in masked]

    def _fails(self, feature: int, bucket: int) -> BucketArray | None:
        if bucket < 0:
            return None
        fails: BucketArray = (self._data.buckets[feature] > bucket).astype(np.uint8)
        return fails

    def leaf_sums(self) -> tuple[Share, Share]:
        """Return the sums of first and second derivatives in every leaf: (K, 2^D) each.

        A left leaf's are those of what was kept; a right one's, its parent's less these.
        """
        nodes = self._nodes
        assert nodes is not None
        sums = []
        for kept, parent in zip(self._left, (nodes.g, nodes.h), strict=True):
            total = kept.sum(1).reshape(*parent.shape[:2])
            rest = parent.share(self._runtime).sum(2) - total
            sums.append(stack([total, rest], axis=2).reshape(len(total), -1))
        return sums[0], sums[1]

    def add_leaves(self, scores: Share, values: Masked) -> Share:
        """Return scores with the values, (K, 2^D), of the leaves that samples reach."""
        outcomes = combine(stack, *self._outcomes)
        self._outcomes = []
        return scores + leaf_lookup(self._runtime, outcomes, values)


def _rows(x: Share) -> Share:
    """Return values of samples, (K, N), as those of one node: (K, 1, N)."""
    return x.reshape(len(x), 1, -1)


def siblings(parent: Masked, left: Masked, axis: int) -> Masked:
    """Return left and right children in turn, along the axis of nodes."""

    def interleave(sides: list[Elements]) -> Elements:
        shape = list(left.shape)
        shape[axis] *= 2
        return stack(sides, axis=axis + 1).reshape(*shape)

    return combine(interleave, left, parent - left)
