"""Inference on masked values: leaves looked up, and what features contribute to scores."""

from __future__ import annotations

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z1
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray, IndexArray
from privet.gates.masked import mask
from privet.gates.outcomes import leaf_lookup, owned_share
from privet.gates.sigmoid_series import SCORE_BITS
from privet.runtime.runtime import Runtime
from privet.suites.masked import importances, reasons
from privet.suites.suite import AppliedTests, Groups, Reasons, Suite


class MaskedInference(Suite):
    """What is done with trained tables."""

    encoding = FixedPoint(SCORE_BITS)
    explains = True

    @classmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return what tables add to the scores of every sample: one round.

        1. Mask the outcomes of all tests and the leaf values of all tables.
        2. Look every sample's leaf up in every table.
        """
        with runtime.step("infer"):
            fails = owned_share(runtime, tests.fails, tests.shape, Z1)
            outcomes, values = mask(runtime, fails, leaf_values)
            found = [
                leaf_lookup(runtime, outcomes[table], values[table])
                for table in range(tests.shape[0])
            ]
            total = found[0]
            for more in found[1:]:
                total += more
            return total

    @classmethod
    def derive_reasons(
        cls, runtime: Runtime, leaf_values: Share, chances: Share, features: IndexArray | None
    ) -> Reasons:
        """Derive contributions at all leaves of all tables at once: 1 + D rounds."""
        return reasons.derive(runtime, leaf_values, chances, features)

    @classmethod
    def infer_explained(
        cls,
        runtime: Runtime,
        tests: AppliedTests,
        leaf_values: Share,
        contributions: Share,
        groups: Groups,
    ) -> tuple[Share, Share]:
        """Return what tables add to scores, and what groups of tests contribute: one round."""
        with runtime.step("infer"):
            return reasons.look_up(runtime, tests, leaf_values, contributions, groups)

    @classmethod
    def absolute_sums(cls, runtime: Runtime, contributions: Share) -> Share:
        """Return sums of absolute contributions: two rounds for some hundred thousand of them."""
        return importances.absolute_sums(runtime, contributions)

    @classmethod
    def reveal_means(
        cls, runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], to: int
    ) -> FloatArray | None:
        """Reveal means to one participant, from sums."""
        return importances.reveal_means(runtime, total, n_samples, bits, to)
