"""SecInfer: the leaf values of samples, without anybody learning which leaves.

Reference: the paper's Section V.C, Algorithm 7.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Share, concatenate
from privet.arrays import BucketArray
from privet.gates.beaver import multiply
from privet.runtime.runtime import Runtime
from privet.suites.suite import AppliedTests

# Samples are taken in blocks with about this many indicators, to bound the memory.
_BLOCK = 1 << 22


def infer(runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
    """Return the sum of the leaf values, (tables, 2^D), that every sample reaches: (N,).

    1. The owner of a level's test shares u, which is 1 at the leaves that the test's outcome leaves
       possible: all levels of all tables together.
    2. The product of a table's levels, in pairs, and with the leaf values: [u_1]...[u_D][w].
    3. Add up leaves and tables.

    Reveals: nothing. Error: none.
    """
    with runtime.step("infer"):
        blocks = [_infer_block(runtime, tests, leaf_values, block) for block in _blocks(tests)]
        return concatenate(blocks)


def _infer_block(runtime: Runtime, tests: AppliedTests, leaf_values: Share, block: slice) -> Share:
    tables, depth, _ = tests.shape
    leaves, ring = 1 << depth, leaf_values.ring
    count = block.stop - block.start
    owners = None if tests.owners is None else tests.owners.reshape(-1).tolist()
    own: list[RingArray | None] = [None] * (tables * depth)
    if owners is not None and tests.fails is not None:
        for position, owner in enumerate(owners):
            if owner == runtime.index:
                table, level = divmod(position, depth)
                possible = possible_leaves(tests.fails[table, level, block], level, depth)
                own[position] = ring.array(possible)
    shared = runtime.share_each(own, owners, (count, leaves), ring)
    product = shared.reshape(tables, depth, count, leaves).transpose(1, 0, 2, 3)
    while len(product) > 1:
        even = len(product) // 2 * 2
        pairs = multiply(runtime, product[0:even:2], product[1:even:2])
        product = concatenate([pairs, product[even:]])
    reached = multiply(runtime, product[0], leaf_values.reshape(tables, 1, leaves))
    return reached.sum((0, 2))


def possible_leaves(fails: BucketArray, level: int, depth: int) -> BucketArray:
    """Return 1 for each sample and leaf that one test's outcome leaves possible: (N, 2^D)."""
    bit = (np.arange(1 << depth) >> (depth - 1 - level)) & 1
    possible: BucketArray = (bit == fails[:, None]).astype(np.uint8)
    return possible


def _blocks(tests: AppliedTests) -> list[slice]:
    tables, depth, n_samples = tests.shape
    step = max(1, _BLOCK // (tables * depth << depth))
    return [slice(i, min(i + step, n_samples)) for i in range(0, n_samples, step)]
