"""The rows of a training run: derivatives, histogram sums, routing and leaf updates.

`OwnRows` are worked on right here, by the runtime that looks for the best tests, too. So what both
halves open at the same time takes one opening. In shards, rows are worked on by groups of workers,
each with a runtime of its own (`sharded`): the same calls, and the same numbers.

This half sees rows and no score of a cut: all of them, or those of a shard. Its sums go up to
`cuts`, and a test or leaf values come down (`rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.ring_lwe import Lattice
from privet.arithmetic.rings import Z1, Z64, Ring
from privet.arithmetic.shares import Elements, Share, stack
from privet.arrays import Indices
from privet.gates.gate import Later, alone
from privet.gates.masked.functions import LARGEST_SCORE, SCORE_BITS, sigmoid_series
from privet.gates.masked.histogram import Products, histogram
from privet.gates.masked.indicators import Indicators, publish
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import keep, leaf_lookup, owned_share
from privet.gates.masked.value import Masked, combine, constant, mask, mask_one, signed_lift
from privet.objectives.base import Functions, SharedReal
from privet.protocols.masked.bounds import SCORE_WIDTH, Bounds, sums_of_squares
from privet.protocols.masked.leaves import widened
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.row_masks import RowMasks, Weights, lattice_of, lifted, narrowed
from privet.protocols.masked.validation import Total, Validation, check_total
from privet.protocols.protocol import OwnData, start_share, target_share
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan, Shard
from privet.spec.sampling import Draw


class Sums(NamedTuple):
    """Of first and second derivatives: left of every cut, (C, K, nodes), and in all, (K, nodes).

    Of the root, or of left children: a right child's are its parent's less its left sibling's. In
    the rings of rows, whose additional bits they lose together (`cuts`).
    """

    g: tuple[Share, Share]
    h: tuple[Share, Share] | None
    """None at the root where second derivatives are 1 and nothing is drawn: there they are the same
    in every table."""


class _Nodes(NamedTuple):
    """The nodes of a level: their masked derivatives, (K, nodes, N)."""

    g: Masked
    h: Masked


class Samples(Functions):
    """The samples of one training, or of a shard of it, table by table."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        shard: Shard,
        scales: Scales,
        data: OwnData,
        indicators: Indicators,
        lattice: Lattice | None,
    ) -> None:
        self._runtime = runtime
        self._masks = RowMasks(runtime, lattice)
        self._plan = plan
        self._shard = shard
        self._scales = scales
        self._data = data
        self._indicators = indicators
        self._bounds: Bounds
        """Of the current table."""
        self._drawn = indicators
        """Of the rows and features that the current table is trained on."""
        self._rows: Indices = slice(shard.n_samples)
        """The rows that take part in the sums of the current table."""
        self._nodes: _Nodes | None = None
        self._outcomes: list[Masked] = []
        self._masked: list[Masked] = []
        self._residual: Masked
        """First derivatives without weights."""
        self._products = Products(runtime, indicators)
        """Of the current table and level."""
        self._unchecked: Masked | None = None
        """Scores that a series was evaluated at."""
        self._weights: Weights | None = None
        self._curvature: Masked | None = None
        """The second derivatives of all rows, (K, 1, N), where they are 1 or the weights."""
        if plan.objective.unit_curvature:
            self._curvature = self._ones()

    def weigh(self, weights: Weights) -> None:
        """Let samples count by weights, in all tables."""
        self._weights = weights
        if self._curvature is not None:
            self._curvature = weights.masked

    def begin_table(self, bounds: Bounds, draw: Draw, target: Share, score: Share) -> Samples:
        """Return samples that are at the start of a table: several may be under way at once."""
        found = copy(self)
        found._bounds = bounds
        found._mask_derivatives(draw, target, score)
        return found

    def _mask_derivatives(self, draw: Draw, target: Share, score: Share) -> None:
        """Mask the derivatives of the samples that are drawn, (K, 1, N) each.

        Cost: one opening of 34 bits a sample where the second derivatives are 1; otherwise what
        they cost, and about as many bits more. One more such opening where there are weights.
        """
        runtime, plan, units = self._runtime, self._plan, self._scales.units
        self._nodes, self._outcomes = None, []
        self._rows = rows = self._shard.drawn(draw.rows)
        if plan.draws:
            self._drawn = self._indicators.of(rows, draw.features)
        self._products = Products(runtime, self._drawn)
        score, target = score[:, rows], target[:, rows]
        with runtime.step("gradients"):
            found = plan.objective.derivatives_on_shares(
                self, SharedReal(score, SCORE_BITS), SharedReal(target, SCORE_BITS)
            )
            derivatives = [SharedReal(_rows(x.share), x.bits) for x in found if x is not None]
            if self._weights is None:
                if units.lifts_rows:
                    finer = units.unweighted
                    masked = self._with_scores_checked(narrowed(runtime, derivatives, finer))
                    derivatives = lifted(runtime, masked, finer)
                opening = self._masks.narrowed(derivatives, units.rows, self._products.begin)
                self._masked = self._with_scores_checked(opening)
                self._residual = self._masked[0]
            else:
                finer = units.unweighted
                masked = self._with_scores_checked(narrowed(runtime, derivatives, finer))
                self._residual = masked[0]
                with runtime.step("weights"):
                    weighted = [
                        self._weights.times(x, bits, self._rows)
                        for x, (bits, _) in zip(masked, finer, strict=False)
                    ]
                    opening = self._masks.narrowed(weighted, units.rows, self._products.begin)
                    self._masked = alone(runtime, opening)
            if self._curvature is not None:
                self._masked.append(self._curvature.map(lambda a: a[:, :, rows]))

    def _with_scores_checked(self, opening: Later[list[Masked]]) -> list[Masked]:
        """Open something, and check scores, if the series of the sigmoid was used, on the way.

        With 16 added, scores below 16 in size are, as signed numbers modulo 64, not negative. They
        are compared on 10 bits, so 16 less a sixteenth may be too much already.
        """
        scores, self._unchecked = self._unchecked, None
        if scores is None:
            return alone(self._runtime, opening)
        what = f"scores of {LARGEST_SCORE} and more in size"
        return self._bounds.check(scores, SCORE_WIDTH, what, opening)

    def _ones(self) -> Masked:
        """Return second derivatives that everybody knows: (K, 1, N)."""
        (bits, ring), outputs = self._scales.units.rows[1], self._plan.objective.outputs
        ones = np.full((outputs, 1, self._shard.n_samples), 1 << bits, dtype=ring.dtype)
        return constant(self._runtime, ones, ring)

    def root_curvature(self) -> tuple[Share, Share | None]:
        """Return the root's sums of second derivatives that are the same in all tables.

        Left of every cut, (C, K, 1), and in all, (K, 1), unless everybody knows that.
        """
        h = self._curvature
        assert h is not None
        (left,) = histogram(self._runtime, self._products, h.map(lambda a: a[:, 0]))
        total = None if h.constant else h.share(self._runtime).sum(2)
        return left.reshape(*left.shape, 1), total

    def sigmoid(self, score: SharedReal) -> tuple[SharedReal, SharedReal]:
        """Return the sigmoid and its derivative, by a series: one opening of 4 bytes a score.

        The series is right for scores below 16 in size, which is to be checked.
        """
        assert score.bits == SCORE_BITS
        bits = self._scales.units.sigmoid_bits
        masked = mask_one(self._runtime, score.share)
        self._unchecked = masked + (LARGEST_SCORE << SCORE_BITS)
        both = sigmoid_series(self._runtime, masked, bits=bits)
        return SharedReal(both[0], bits), SharedReal(both[1], bits)

    def squared_residuals(self) -> Share:
        """Return the sum of squared residuals, weighted if samples are, over Z64: (1,)."""
        runtime = self._runtime
        factors = [] if self._weights is None else [signed_lift(runtime, self._residual)]
        factors.append(signed_lift(runtime, self._masked[0], shift=self._scales.units.g_more))
        return polynomial(runtime, factors, [(1, (0, len(factors) - 1))]).sum().reshape(1)

    def checked_squares(self) -> list[Share]:
        """Return the sums of squares that must not be larger than units assume, if any."""
        return sums_of_squares(self._runtime, self._plan, self._scales.units, self._masked[0])

    def sums(self) -> Sums:
        """Return the sums of the root, or of left children."""
        runtime, (g, h) = self._runtime, self._masked
        outputs, nodes, _ = g.shape
        kept = self._nodes is None and self._curvature is not None and not self._plan.draws
        vectors = [g] if kept else [g, h]
        with runtime.step("histogram"):
            flat = [x.map(lambda a: a.reshape(outputs * nodes, -1)) for x in vectors]
            found = histogram(runtime, self._products, *flat)
        sums = [
            (
                left.reshape(len(left), outputs, nodes),
                x.map(lambda a: a.sum(2)).share(runtime),
            )
            for left, x in zip(found, vectors, strict=True)
        ]
        return Sums(sums[0], sums[1] if len(sums) == 2 else None)

    def outcome(self, feature: int, bucket: int) -> Share:
        """Return a share of the outcomes of a test, which its owner knows: (n_rows,), to be masked.

        -1 is somebody else's bucket. All know that of a level that tests nothing.
        """
        own = None
        if bucket >= 0 and feature in self._data.buckets:
            own = (self._data.buckets[feature] > bucket).astype(np.uint8)
        return owned_share(self._runtime, own, (self._shard.n_rows,), Z1)

    def split(self, fails: Masked) -> None:
        """Split nodes by masked outcomes; mask left children, the one large opening of a level."""
        runtime, nodes = self._runtime, self._all_nodes()
        self._nodes, self._masked = nodes, []
        outputs, count, _ = nodes.g.shape
        flat = (x.map(lambda a: a.reshape(outputs * count, -1)) for x in nodes)
        left = keep(runtime, fails.map(lambda a: a[self._rows]), *flat)
        with runtime.step("children"):
            self._products = Products(runtime, self._drawn)
            masked = self._masks.children(left, self._products.begin)
        self._masked = [x.map(lambda a: a.reshape(outputs, count, -1)) for x in masked]

    def _all_nodes(self) -> _Nodes:
        """Return the nodes of a level: a right child is its parent less its left sibling."""
        if self._nodes is None:
            return _Nodes(*self._masked)
        pairs = zip(self._nodes, self._masked, strict=True)
        return _Nodes(*(siblings(parent, left, axis=1) for parent, left in pairs))

    def remember(self, fails: Masked) -> None:
        """Remember the outcomes of a level, for leaf values to be looked up by."""
        self._outcomes.append(fails)

    def leaves(self, values: Masked, ring: Ring) -> Share:
        """Return the values, (K, 2^D), of the leaves that rows reach: (K, n_rows), over a ring."""
        outcomes = combine(stack, *self._outcomes)
        self._outcomes, self._nodes, self._masked = [], None, []  # they would be in the way
        return leaf_lookup(self._runtime, outcomes, widened(self._runtime, values, ring))


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


_ENCODING = FixedPoint(SCORE_BITS)
Test = tuple[int, int]
"""A feature and, to its owner, the last bucket that passes; -1 to the others."""


class Rows(ABC):
    """All rows of a training, wherever they are."""

    @abstractmethod
    def setup(self) -> None:
        """Share what stays the same for all tables."""

    @abstractmethod
    def root_curvature(self) -> tuple[Share, Share | None]:
        """Return what `Samples.root_curvature` does."""

    @abstractmethod
    def begin_table(self, number: int, bounds: Bounds) -> TableRows:
        """Return the rows as they are at the start of a table, which is checked by bounds."""

    @abstractmethod
    def validation_total(self, bounds: Bounds) -> tuple[Masked, int]:
        """Return the masked loss on all validation rows, added up, and its fraction bits."""

    @abstractmethod
    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Return our share of the scores of all rows, as far as they are here: (K, rows).

        Those of rows that others work on are kept where these are.
        """


class TableRows(ABC):
    """All rows of a training, while a table is trained."""

    @abstractmethod
    def squared_residuals(self) -> Share:
        """Return what `Samples.squared_residuals` does."""

    @abstractmethod
    def checked_squares(self) -> list[Share]:
        """Return what `Samples.checked_squares` does."""

    @abstractmethod
    def sums(self, level: int) -> Sums:
        """Return the sums of a level: of the root, or of left children."""

    @abstractmethod
    def split(self, level: int, test: Test) -> None:
        """Split the nodes of a level by the outcomes of a test, but those of the last level."""

    @abstractmethod
    def split_last(self, level: int, test: Test, *beside: Share) -> list[Masked]:
        """Find the leaves that rows reach, and mask other values meanwhile, which are returned."""

    @abstractmethod
    def add_leaves(self, values: Masked) -> None:
        """Add the values, (K, 2^D), of the leaves that rows reach to their scores."""


class OwnRows(Rows):
    """Rows that are worked on here: all of them, or those of a shard."""

    def __init__(
        self, runtime: Runtime, plan: Plan, shard: Shard, scales: Scales, data: OwnData
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._shard = shard
        self._scales = scales
        self._data = data
        shape = plan.objective.outputs, shard.n_rows
        self.scores = start_share(runtime, data.start, _ENCODING, shape, scales.score_ring)
        """Our share of the scores of all rows: (K, n_rows)."""
        self._validation: Validation | None = None
        self._samples: Samples

    def setup(self) -> None:
        """Share the label, and publish every feature's masked indicators."""
        runtime, plan, scales, shard = self._runtime, self._plan, self._scales, self._shard
        # The sigmoid's values have 64 bits, and targets are subtracted from them.
        of_target = scales.score_ring if scales.proven else Z64
        shape, active = (plan.objective.outputs, shard.n_samples), plan.ownership.active
        self._target = target_share(runtime, active, self._data.target, _ENCODING, shape, of_target)
        ring = published_ring(scales)
        lattice = lattice_of(runtime, plan, shard.n_samples, ring)
        indicators = publish(
            runtime,
            {j: rows[: shard.n_samples] for j, rows in self._data.buckets.items()},
            plan.ownership.features,
            self._data.shelf,
            cuts=plan.cuts,
            n_samples=shard.n_samples,
            ring=ring,
            kept=plan.kept,
            lattice=lattice,
        )
        self._samples = Samples(runtime, plan, shard, scales, self._data, indicators, lattice)
        if plan.n_validation:
            self._validation = Validation(runtime, plan, shard, self._data)
        if plan.weighted:
            with runtime.step("weights"):
                weights = Weights(runtime, scales.units, self._data.weight, shard.n_samples)
                self._samples.weigh(weights)

    def root_curvature(self) -> tuple[Share, Share | None]:
        """Return the root's sums of second derivatives that are the same in all tables."""
        return self._samples.root_curvature()

    def begin_table(self, number: int, bounds: Bounds) -> OwnTableRows:
        """Mask the derivatives of the rows that are drawn."""
        draw = self._plan.draw(number)
        samples = self._samples.begin_table(bounds, draw, self._target, self.scores)
        return OwnTableRows(self._runtime, self, samples)

    def validation_total(self, bounds: Bounds) -> tuple[Masked, int]:
        """Mask the sum in the opening in which rows are compared with their bounds."""
        total = self.validated()
        return check_total(bounds, total), total.loss.bits

    def validated(self) -> Total:
        """Return the loss on validation rows, added up."""
        assert self._validation is not None
        return self._validation.total(self.scores[:, self._shard.n_samples :])

    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Return our share of all scores."""
        return self.scores.part.astype(np.uint64)

    def resume(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""
        ring = self.scores.ring
        assert scores.shape == self.scores.shape
        self.scores = Share(scores.astype(ring.dtype), ring)


class OwnTableRows(TableRows):
    """Rows that are worked on here, while a table is trained."""

    def __init__(self, runtime: Runtime, rows: OwnRows, samples: Samples) -> None:
        self._runtime = runtime
        self._rows = rows
        self._samples = samples

    def squared_residuals(self) -> Share:
        """Return the sum of squared residuals."""
        return self._samples.squared_residuals()

    def checked_squares(self) -> list[Share]:
        """Return the sums of squares that must not be larger than units assume, if any."""
        return self._samples.checked_squares()

    def sums(self, level: int) -> Sums:
        """Return the sums of the root, or of left children."""
        return self._samples.sums()

    def split(self, level: int, test: Test) -> None:
        """Mask the outcomes, and the left children."""
        fails = mask_one(self._runtime, self._samples.outcome(*test))
        self._samples.split(fails)
        self._samples.remember(fails)

    def split_last(self, level: int, test: Test, *beside: Share) -> list[Masked]:
        """Mask the outcomes, and all else in the same opening."""
        fails, *others = mask(self._runtime, self._samples.outcome(*test), *beside)
        self._samples.remember(fails)
        return others

    def add_leaves(self, values: Masked) -> None:
        """Look every row's leaf up."""
        ring = self._rows.scores.ring
        self._rows.scores = self._rows.scores + self._samples.leaves(values, ring)


def published_ring(scales: Scales) -> Ring:
    """Return the ring that masked indicators are published over: the widest one of rows."""
    return max((ring for _, ring in scales.units.rows), key=lambda ring: ring.bits)
