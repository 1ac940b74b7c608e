"""What is done cut by cut: scores, the best test of a level, leaf values.

This half of a level sees sums, whatever the number of samples, and no row. Its other half is
`samples`.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np

from privet.arithmetic.rings import integers_modulo
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.arithmetic import drop_bits
from privet.gates.masked.comparison import Comparison, step
from privet.gates.masked.fourier import Integers
from privet.gates.masked.polynomial import polynomial, square
from privet.gates.masked.routing import owned_share
from privet.gates.masked.selection import pick
from privet.gates.masked.value import (
    Lifted,
    Masked,
    combine,
    constant,
    lift,
    mask,
    mask_one,
    signed_lift,
)
from privet.protocols.masked.argmax import best
from privet.protocols.masked.bounds import Bounds
from privet.protocols.masked.candidates import (
    Candidates,
    Gains,
    constrained_scores,
    handicaps,
    raised_by,
    rises,
    things_to_test,
    told_drop,
)
from privet.protocols.masked.leaves import classify, leaf_values, normalised, reciprocal, scaled
from privet.protocols.masked.precision.scores import SQUARE_BITS, Scales
from privet.protocols.masked.row_masks import in_units
from privet.protocols.masked.rows import Sums, siblings
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan
from privet.spec.sampling import Draw


class _Sums(NamedTuple):
    """Masked sums of a level's nodes: left of every cut, (C, K, nodes), and in all, (K, nodes)."""

    left: Masked
    total: Masked

    @property
    def sides(self) -> Masked:
        """What is left and right of every cut: (2, C, K, nodes)."""
        right = self.total.map(lambda a: a.broadcast_to(self.left.shape)) - self.left
        return combine(stack, self.left, right)

    def with_siblings(self, parents: _Sums) -> _Sums:
        """Return the sums of all nodes from those of left children, and of their parents."""
        left = siblings(parents.left, self.left, axis=2)
        return _Sums(left, siblings(parents.total, self.total, axis=1))


class _Root(NamedTuple):
    """What dividing by the root's counts takes, where all tables have the same."""

    h: _Sums
    classes: Comparison
    z: Lifted


class Cuts:
    """The cuts of one training, table by table and level by level."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        scales: Scales,
        min_gain: float | None = None,
    ) -> None:
        self._runtime = runtime
        self._min_gain = min_gain
        self._plan = plan
        self._scales = scales
        self._bounds: Bounds
        """Of the current table."""
        self._things = things_to_test(plan)
        self._score_drop = told_drop(scales) if plan.reveal_gain else 0
        self.gains = Gains(scales)
        """Of the levels of a table, at whoever is told their scores."""
        self._candidates = Candidates.of(plan, slice(None), runtime.n_parties)
        self._lowered = self._handicap(first=False)
        self._root: _Root | None = None
        self._g: _Sums | None = None
        self._h: _Sums | None = None

    def keep_root(self, left: Share, total: Share | None) -> None:
        """Divide by the root's counts or weights, (C, K, 1), once for all tables.

        Without a total they are counts, and that is the number of samples.
        """
        runtime, scales, n_samples = self._runtime, self._scales, self._plan.n_samples
        left = in_units(runtime, scales.units, 1, left)
        total = None if total is None else in_units(runtime, scales.units, 1, total)
        with runtime.step("root"):
            if total is None:
                whole = n_samples << scales.units.h_bits
                samples = np.full(left.shape[1:], whole).astype(left.ring.dtype)
                everything = constant(runtime, samples, left.ring)
                h = self._with_nothing(mask_one(runtime, left), everything)
            else:
                h = self._with_nothing(*mask(runtime, left, total))
            classes = classify(runtime, scales, h.sides)
            m = mask_one(runtime, normalised(runtime, scales, classes, h.sides))
            z = mask_one(runtime, reciprocal(runtime, scales, m, self._lowered))
            self._root = _Root(h, classes, lift(runtime, z))

    def begin_table(self, bounds: Bounds, draw: Draw, *, first: bool) -> Cuts:
        """Return cuts that are at the start of a table: several may be under way at once."""
        found = copy(self)
        found._bounds = bounds
        if self._plan.draws:
            found._candidates = Candidates.of(self._plan, draw.features, self._runtime.n_parties)
        found._lowered = found._handicap(first=first)
        found.gains = Gains(self._scales)
        return found

    def best_test(self, sums: Sums) -> tuple[int, int]:
        """Return the feature and, to its owner, the bucket of the best test; -1 to the others.

        1. Mask the sums left of every cut, and the nodes' totals; what is right follows.
        2. The score of a cut is the sum over outputs, nodes and sides of G^2 / y: G^2 P times a
           reciprocal (`reciprocal`).
        3. The best of all cuts of all features (`tournament`).

        Reveals: the feature to all, its bucket to its owner; its score, rounded, to the label's
        holder, if all agreed on that.
        """
        runtime = self._runtime
        with runtime.step("scores"):
            scores = self._scores(sums)
        candidates = self._candidates
        stages, carried = candidates.stages, candidates.carried
        finalists = best(runtime, scores, stages, carried, self._score_drop)
        with runtime.step("reveal"):
            found = runtime.reveal_winner(finalists, self._things)
        if found is None:
            return 0, -1
        if found.thing == self._plan.n_features:  # nothing is tested
            self.gains.add(None)
            return 0, self._plan.params.candidates
        self.gains.add(found.number)
        return found.thing, found.detail

    def _scores(self, sums: Sums) -> Share:
        """Return the scores of all cuts, (C,), to be compared."""
        runtime, scales = self._runtime, self._scales
        with runtime.step("sums"):
            self._mask_sums(sums)
        assert self._g is not None
        assert self._h is not None
        g = self._g.sides
        rising = self._rises()
        if sums.h is None:
            assert self._root is not None
            _, classes, z = self._root
            with runtime.step("squares"):
                squares, *rise = mask(runtime, self._squares(classes, g), *rising)
        else:
            h = self._h.sides
            with runtime.step("class"):
                classes = classify(runtime, scales, h)
            with runtime.step("squares"):
                m = normalised(runtime, scales, classes, h)
                shares = [m, self._squares(classes, g), *rising]
                more = self._coarse_squares(classes, g)
                masked_m, squares, *rest = mask(runtime, *shares, *more)
                rise, coarse = rest[: len(rising)], rest[len(rising) :]
            with runtime.step("reciprocal"):
                z_share = reciprocal(runtime, scales, masked_m, self._lowered)
                masked_z = self._check_squares(coarse, z_share)
                z = lift(runtime, masked_z)
        lifted = signed_lift(runtime, squares)
        by_node = polynomial(runtime, [lifted, z], [(1, (0, 1))]).sum(0)
        if rise:
            with runtime.step("order"):
                scores = constrained_scores(runtime, scales, self._candidates, by_node, rise[0])
        else:
            scores = drop_bits(runtime, by_node.sum((1, 2)), *scales.compared)
        return scores + self._raised(scores) if self._plan.params.min_gain else scores

    def _rises(self) -> list[Share]:
        """Return what tells whether constrained cuts keep their constraints, if there are any."""
        cuts = self._candidates.constrained
        if not len(cuts):
            return []
        signs = np.array(self._plan.monotone)[self._candidates.feature[cuts]]
        sums = [(x.left.map(lambda a: a[cuts]), x.total) for x in (self._g, self._h) if x]
        return [rises(self._runtime, self._scales, signs, *sums)]

    def _raised(self, scores: Share) -> Share:
        """Return a share of what the last score, that of testing nothing, is raised by.

        The label's holder knows it, in a regression alone; scores are masked before they are
        compared.
        """
        ring, own = scores.ring, None
        if self._min_gain is not None:
            own = ring.zeros(scores.shape)
            own[-1] = ring.array(raised_by(self._scales, self._min_gain))
        return owned_share(self._runtime, own, scores.shape, ring)

    def _mask_sums(self, sums: Sums) -> None:
        """Mask what is new of the sums, and find the rest: they are kept for the next level."""
        runtime, scales, parents = self._runtime, self._scales, (self._g, self._h)
        g = [in_units(runtime, scales.units, 0, x) for x in sums.g]
        if sums.h is None:
            assert self._root is not None
            self._g, self._h = self._with_nothing(*mask(runtime, *g)), self._root.h
            return
        h = [in_units(runtime, scales.units, 1, x) for x in sums.h]
        left_g, total_g, left_h, total_h = mask(runtime, *g, *h)
        self._g = self._with_nothing(left_g, total_g)
        self._h = self._with_nothing(left_h, total_h)
        if parents[0] is not None and parents[1] is not None:
            self._g = self._g.with_siblings(parents[0])
            self._h = self._h.with_siblings(parents[1])

    def _with_nothing(self, left: Masked, total: Masked) -> _Sums:
        """Return sums with those of not splitting, as often as it is scored: all is left of it."""
        more = len(self._candidates.scored) - len(left.mask)
        if more:
            whole = total.map(lambda a: a.broadcast_to((more, *a.shape)))
            left = combine(concatenate, left, whole)
        return _Sums(left, total)

    def _squares(self, classes: Comparison, g: Masked) -> Share:
        """Return G^2 P without its lowest bits, to be masked."""
        runtime, scales = self._runtime, self._scales
        lifted = square(runtime, signed_lift(runtime, g, shift=scales.g_drop))
        found = step(runtime, classes, lifted, factors=scales.thresholds.factors)
        return drop_bits(runtime, found, scales.square_drop, integers_modulo(SQUARE_BITS))

    def _coarse_squares(self, classes: Comparison, g: Masked) -> list[Share]:
        """Return sums of G^2 P of every cut, (sums C,), coarsely but in a ring that fits them.

        Where the data might make them larger than what they are opened in.
        """
        runtime, scales, found = self._runtime, self._scales, []
        if scales.proven:
            return []
        ring, sums = scales.coarse
        for each in sums:
            lifted = square(runtime, signed_lift(runtime, g, shift=each.drop, ring=ring))
            found.append(step(runtime, classes, lifted, factors=each.factors).sum((0, 2, 3)))
        return [concatenate(found)]

    def _check_squares(self, coarse: list[Masked], z: Share) -> Masked:
        """Compare squares with what they may be, if need be, and mask reciprocals."""
        if not coarse:
            return mask_one(self._runtime, z)
        ring, sums = self._scales.coarse
        limits = np.repeat([each.limit for each in sums], len(coarse[0].mask) // len(sums))
        room = coarse[0].map(lambda a: -a) + limits
        what = "scores that do not fit"
        (masked,) = self._bounds.check(room, ring.bits, what, mask.later(z))
        return masked

    def _handicap(self, *, first: bool) -> Integers:
        """Return what the scores of all cuts are multiplied with."""
        by_feature = scaled(handicaps(self._plan, first=first))
        return by_feature[self._candidates.scored].reshape(1, -1, 1, 1)

    def chosen(self, feature: int, bucket: int) -> Share:
        """Return a share of 1 at the cut of a test, which its owner knows, and 0 elsewhere: (C,).

        -1 is somebody else's bucket.
        """
        ring, own, cuts = self._scales.units.g_ring, None, self._candidates
        if bucket == self._plan.params.candidates:  # nothing is tested, as all know
            feature, bucket = self._plan.n_features, 0
        if bucket >= 0 and self._things.owners[feature] == self._runtime.index:
            own = ((cuts.feature == feature) & (cuts.bucket == bucket)).astype(ring.dtype)
        return owned_share(self._runtime, own, (len(cuts.feature),), ring)

    def leaf_values(self, chosen: Masked, residuals: list[Masked]) -> Masked:
        """Return the values of leaves, (K, 2^D), in the units of scores and a ring of their own.

        With constraints, both have D bits fewer. The sums of left leaves are those of the last
        level at the cut that was chosen; right ones are what is left of their parents'.
        """
        assert self._g is not None
        assert self._h is not None
        with self._runtime.step("leaves"):
            h_ring = self._scales.units.h_ring
            short = chosen.map(lambda a: a.to_ring(h_ring))
            g, h = self._leaf_sums(chosen, self._g), self._leaf_sums(short, self._h)
            return leaf_values(
                self._runtime, self._plan, self._scales, self._bounds, g, h, residuals
            )

    def _leaf_sums(self, chosen: Masked, sums: _Sums) -> Share:
        left = pick(self._runtime, chosen, sums.left[: len(chosen.mask)])
        rest = sums.total.share(self._runtime) - left
        return stack([left, rest], axis=2).reshape(len(left), -1)
