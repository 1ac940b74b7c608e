"""The rows of a training, as the cuts see them: sums go up, a test or leaf values come down.

`OwnRows` are worked on right here, by the runtime that looks for the best tests, too. So what both
halves open at the same time takes one opening. In shards, rows are worked on by groups of workers,
each with a runtime of its own (`sharded`): the same calls, and the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z64, Ring
from privet.arithmetic.shares import Share
from privet.gates.indicators import publish
from privet.gates.masked import Masked, mask, mask_one
from privet.gates.sigmoid_series import SCORE_BITS
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.row_masks import lattice_of
from privet.suites.masked.samples import Samples, Sums
from privet.suites.masked.scales import Scales
from privet.suites.masked.validation import Total, Validation, check_total
from privet.suites.masked.weights import Weights
from privet.suites.start import start_share, target_share
from privet.suites.suite import OwnData
from privet.terms.plan import Plan
from privet.terms.shards import Shard

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
