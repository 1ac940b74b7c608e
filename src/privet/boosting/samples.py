"""Samples to predict: what is done with them row by row, here or in shards.

`OwnSamples` are worked on right here. In shards, workers do the same with theirs
(`sharded_inference`): the same calls, and the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from privet.arithmetic.shares import Share, concatenate
from privet.boosting.part import GUARD_BITS
from privet.gates.rounding import round_off
from privet.runtime.runtime import Runtime
from privet.suites.suite import AppliedTests, Groups, Suite


class Samples(ABC):
    """All samples of a batch, wherever they are."""

    @abstractmethod
    def scores(self, leaves: Share, start: Share) -> Share:
        """Return shares of the scores, rounded: (K, N).

        `leaves` are the values of all tables, (tables, K, 2^depth), and scores start from `start`,
        (K, 1).
        """

    @abstractmethod
    def explained(
        self, leaves: Share, start: Share, contributions: Share, groups: Groups, base: Share
    ) -> tuple[Share, Share, Share]:
        """Return shares of scores, (K, N), of what groups contribute, (G, K, N), and of the base.

        All of them are rounded; `contributions` are those of `Reasons`.
        """

    @abstractmethod
    def absolute_sums(self, leaves: Share, contributions: Share, groups: Groups) -> Share:
        """Return shares of the sums of absolute contributions: (G, K), over Z64."""


class OwnSamples(Samples):
    """Samples that are worked on here: all of them, or those of a shard."""

    def __init__(self, runtime: Runtime, suite: type[Suite], tests: AppliedTests) -> None:
        self._runtime = runtime
        self._suite = suite
        self._tests = tests

    def scores(self, leaves: Share, start: Share) -> Share:
        """Add up leaf values, and round the sums."""
        scores = self._suite.infer(self._runtime, self._tests, leaves) + start
        rounded = round_off(self._runtime, scores.reshape(-1), bits=GUARD_BITS)
        return rounded.reshape(*scores.shape)

    def explained(
        self, leaves: Share, start: Share, contributions: Share, groups: Groups, base: Share
    ) -> tuple[Share, Share, Share]:
        """Look contributions up beside leaf values, and round all of it at once."""
        scores, added = self._suite.infer_explained(
            self._runtime, self._tests, leaves, contributions, groups
        )
        every = concatenate([(scores + start).reshape(-1), added.reshape(-1), base])
        rounded = round_off(self._runtime, every, bits=GUARD_BITS)
        end = scores.size + added.size
        return (
            rounded[: scores.size].reshape(*scores.shape),
            rounded[scores.size : end].reshape(*added.shape),
            rounded[end:],
        )

    def absolute_sums(self, leaves: Share, contributions: Share, groups: Groups) -> Share:
        """Look contributions up, and add their sizes up."""
        _, added = self._suite.infer_explained(
            self._runtime, self._tests, leaves, contributions, groups
        )
        return self._suite.absolute_sums(self._runtime, added)
