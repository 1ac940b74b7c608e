"""Deriving what explains scores as a program: once, when all tables are there, for any suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray
from privet.boosting.part import ModelPart, PartReasons
from privet.boosting.reasons import fail_chances, pass_shares
from privet.gates.outcomes import owned_share
from privet.runtime.runtime import Runtime
from privet.suites.suite import CHANCE_BITS, Suite
from privet.terms.plan import Plan


def derive_reasons(
    runtime: Runtime,
    suite: type[Suite],
    plan: Plan,
    tables: int,
    part: ModelPart | None,
    buckets: Mapping[int, BucketArray],
) -> ModelPart | None:
    """Return our part of a model with what explains its tables, and None to the dealer.

    1. Of each of its tests, an owner knows how probable it is that a training row fails it, given
       the outcomes of earlier levels. `buckets` are those of the rows in our own features.
    2. From these and the leaf values, on shares, the suite derives what features contribute.

    Reveals: nothing.
    """
    leaves = plan.params.leaves
    if part is None:
        values = Share.unknown((tables, plan.objective.outputs, leaves), Z32)
        features = own = None
    else:
        values, features = Share(part.leaf_shares, Z32), part.feature
        pass_share = pass_shares(features, part.bucket, buckets)
        chances = np.nan_to_num(fail_chances(features, pass_share))
        own = np.rint(chances * (1 << CHANCE_BITS)).astype(np.uint32)
    with runtime.step("reasons"):
        shared = owned_share(runtime, own, (tables, leaves - 1), Z32)
        found = suite.derive_reasons(runtime, values, shared, features)
    if part is None:
        return None
    reasons = PartReasons(pass_share, found.contributions.part, found.means.part)
    return replace(part, reasons=reasons)
