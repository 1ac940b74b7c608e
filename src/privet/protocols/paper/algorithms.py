"""The paper's algorithms: SDiv, SecSigmoid, SecDisc, SecArgmin, SecSplit and SecInfer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint, ceil_log2
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share, concatenate, stack
from privet.arrays import BoolArray, BucketArray, IndexArray
from privet.errors import ResultError
from privet.gates.arithmetic import multiply_fixed_point, truncate
from privet.gates.beaver import multiply, square
from privet.gates.permute import Permutation, permute
from privet.protocols.paper.gates import less_than
from privet.protocols.protocol import AppliedSplits
from privet.runtime.runtime import Runtime

# Samples are taken in blocks with about this many indicators, to bound the memory.
_BLOCK = 1 << 22


def infer_scores(runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
    """Return the sum of the leaf values, (tables, 2^D), that every sample reaches: (N,).

    1. The owner of a level's split shares u, which is 1 at the leaves that the split's outcome
       leaves possible: all levels of all tables together.
    2. The product of a table's levels, in pairs, and with the leaf values: [u_1]...[u_D][w].
    3. Add up leaves and tables.

    Reveals: nothing. Error: none.

    Reference: the paper's Section V.C, Algorithm 7 (SecInfer).
    """
    with runtime.step("infer"):
        blocks = [_infer_block(runtime, splits, leaf_values, block) for block in _blocks(splits)]
        return concatenate(blocks)


def _infer_block(
    runtime: Runtime, splits: AppliedSplits, leaf_values: Share, block: slice
) -> Share:
    tables, depth, _ = splits.shape
    leaves, ring = 1 << depth, leaf_values.ring
    count = block.stop - block.start
    owners = None if splits.owners is None else splits.owners.reshape(-1).tolist()
    local: list[RingArray | None] = [None] * (tables * depth)
    if owners is not None and splits.goes_right is not None:
        for position, owner in enumerate(owners):
            if owner == runtime.index:
                table, level = divmod(position, depth)
                possible = mark_possible_leaves(
                    splits.goes_right[table, level, block], level, depth
                )
                local[position] = ring.to_elements(possible)
    shared = runtime.share_arrays(local, owners, (count, leaves), ring)
    product = shared.reshape(tables, depth, count, leaves).transpose(1, 0, 2, 3)
    while len(product) > 1:
        even = len(product) // 2 * 2
        pairs = multiply(runtime, product[0:even:2], product[1:even:2])
        product = concatenate([pairs, product[even:]])
    reached = multiply(runtime, product[0], leaf_values.reshape(tables, 1, leaves))
    return reached.sum((0, 2))


def mark_possible_leaves(goes_right: BucketArray, level: int, depth: int) -> BucketArray:
    """Return 1 for each sample and leaf that one split's outcome leaves possible: (N, 2^D)."""
    bit = (np.arange(1 << depth) >> (depth - 1 - level)) & 1
    possible: BucketArray = (bit == goes_right[:, None]).astype(np.uint8)
    return possible


def _blocks(splits: AppliedSplits) -> list[slice]:
    tables, depth, n_samples = splits.shape
    step = max(1, _BLOCK // (tables * depth << depth))
    return [slice(i, min(i + step, n_samples)) for i in range(0, n_samples, step)]


def reveal_argmin(runtime: Runtime, values: Share, disclosure: str) -> IndexArray:
    """Return the position of the least value in each row of (R, C), the first among equals.

    1. Pair every value with its position, which is still public.
    2. Compare neighbours: [c] = 1 if the right one is less. [left] + [c]([right] - [left]) is the
       lesser of the two values, and its position. Repeat until one value of each row is left.
    3. Reveal its position to all participants.

    Reveals: the positions, to all participants. Error: none. The dealer gets zeros.

    Reference: the paper's Section V.B.4 (SecArgmin).
    """
    rows, columns = values.shape
    positions = np.broadcast_to(np.arange(columns, dtype=np.uint64), (rows, columns))
    with runtime.step("argmin"):
        entries = stack([values, runtime.share_public(positions, Z64)])
        while entries.shape[2] > 1:
            even = entries.shape[2] // 2 * 2
            left, right = entries[:, :, 0:even:2], entries[:, :, 1:even:2]
            smaller = less_than(runtime, right[0], left[0])
            chosen = multiply(runtime, smaller.reshape(1, *smaller.shape), right - left)
            entries = concatenate([left + chosen, entries[:, :, even:]], axis=2)
        recipients = range(runtime.n_parties)
        revealed = runtime.reveal(entries[1, :, 0], recipients, disclosure)
    if revealed is None:
        return np.zeros(rows, dtype=np.intp)
    if (revealed >= columns).any():
        raise ResultError(f"the shares of a {disclosure} do not add up to one of {columns}")
    return revealed.astype(np.intp)


def bucket_ends(n_samples: int, buckets: int) -> list[int]:
    """Return the end of each bucket among the sorted samples: N / B samples each, or one more.

    The paper assumes that N is a multiple of B.
    """
    return [n_samples * (b + 1) // buckets for b in range(buckets)]


def sort_feature(bucket: BucketArray) -> Permutation:
    """Return the permutation that sorts one feature, the only input of SecDisc from its owner."""
    return np.argsort(bucket, kind="stable")


def find_nearest_cuts(bucket: BucketArray, buckets: int) -> IndexArray:
    """Return, for each end of SecDisc's buckets, the local bucket that ends nearest to it.

    SecDisc cuts the sorted samples at public positions, also between equal values, which a split
    cannot separate. Therefore the owner of a split uses the boundary of its local buckets that is
    nearest to the position. A constant feature has no boundary.
    """
    below = np.cumsum(np.bincount(bucket, minlength=buckets))
    boundaries = np.flatnonzero((below[:-1] > 0) & (below[:-1] < len(bucket)))
    ends = np.array(bucket_ends(len(bucket), buckets)[:-1])
    if not len(boundaries):
        return np.full(len(ends), buckets - 2, dtype=np.intp)
    nearest = np.argmin(np.abs(below[boundaries] - ends[:, None]), axis=1)
    cuts: IndexArray = boundaries[nearest].astype(np.intp)
    return cuts


def sum_by_bucket(
    runtime: Runtime,
    vectors: Share,
    permutations: Sequence[Permutation | None],
    owners: Sequence[int],
    buckets: int,
) -> Share:
    """Sum K shared vectors, (K, N), by the buckets of J features: (J, K, B).

    1. The owner of feature j permutes the vectors to the order of its values (SecPerm).
    2. All participants add up slices of N / B elements.

    All features and vectors are permuted together. Reveals: nothing. Error: none.

    Reference: the paper's Section V.B.3, Algorithm 5 (SecDisc), on SecPerm (`gates/permute.py`).
    """
    with runtime.step("discretize"):
        shape = (len(owners), *vectors.shape)
        repeated = vectors.reshape(1, *vectors.shape).broadcast_to(shape)
        permuted = permute(runtime, repeated, permutations, owners)
        return permuted.sum_slices(bucket_ends(vectors.shape[-1], buckets))


FIXED_POINT = FixedPoint(20)
"""The paper's fixed point: l = 20 fraction bits over Z64."""
RECIPROCAL_START_BITS = 20
N_NEWTON_ITERATIONS = 20


def choose_reciprocal_bits(min_divisor: float) -> int:
    """Return the fraction bits of reciprocals of values of at least `min_divisor`.

    Their products, at most 1 / min_divisor with twice the bits, must stay below 2^62.
    """
    return 30 - max(0, (ceil_log2(1 / Fraction(min_divisor)) + 1) // 2)


def compute_reciprocal(
    runtime: Runtime, y: Share, *, bits: int, start_bits: int = RECIPROCAL_START_BITS
) -> Share:
    """Return 1 / y with `bits` fraction bits, for 2^(2 bits - 61) <= y <= 2^start_bits.

    1. z_0 = 2^-start_bits, public.
    2. Twenty times: [z] = [z] (2 - [y][z]). In this order: z * z would vanish below the last bit.

    Reveals: nothing. Error: the relative error squares in each iteration,
    from 1 - y 2^-start_bits to exp(-y 2^(20 - start_bits)) at the end. Truncation, off by up to
    c = n - n // 2 units, changes the start by a factor of 1 +- c 2^(start_bits - bits) at most, and
    the end by a relative error of c (1 + y) 2^-bits.

    Reference: the paper's Section V.B.2; the iteration of Newton and Raphson.
    docs/decisions/0011-division.md says how the start, the iterations and the fraction bits were
    chosen.
    """
    two = runtime.share_public(np.broadcast_to(np.uint64(2 << bits), y.shape), Z64)
    with runtime.step("reciprocal"):
        z = runtime.share_public(np.broadcast_to(np.uint64(1 << (bits - start_bits)), y.shape), Z64)
        for _ in range(N_NEWTON_ITERATIONS):
            yz = multiply_fixed_point(runtime, y, z, bits=FIXED_POINT.fraction_bits)
            z = multiply_fixed_point(runtime, z, two - yz, bits=bits)
        return z


def divide(runtime: Runtime, x: Share, y: Share, *, min_divisor: float = 1.0) -> Share:
    """Return x / y, for min_divisor <= y <= 2^20: [x] times the reciprocal of [y].

    Reveals: nothing. Error: |x| times that of the reciprocal, and that of `truncate`.

    Reference: the paper's Section V.B.2 (SDiv).
    """
    bits = choose_reciprocal_bits(min_divisor)
    with runtime.step("divide"):
        return multiply_fixed_point(
            runtime, x, compute_reciprocal(runtime, y, bits=bits), bits=bits
        )


N_SIGMOID_SQUARINGS = 2
SIGMOID_START_BITS = 12
MAX_SIGMOID_SCORE = 40
"""The largest size of a score at which the powers fit."""


def compute_sigmoid(runtime: Runtime, x: Share, *, squarings: int = N_SIGMOID_SQUARINGS) -> Share:
    """Return exp(x/2) / (exp(x/2) + exp(-x/2)), with exp(u) taken as (1 + u / 2^n)^(2^n).

    1. [a] = 1 + [x] / 2^(n+1) and [b] = 1 - [x] / 2^(n+1); n times, both are squared.
    2. The sigmoid is [a] / ([a] + [b]) (SDiv).

    Reveals: nothing. Error: that of the powers; for n = 2 at most 0.0066
    where |x| <= 12. Beyond 2^(n+1) the result returns towards 1/2, but stays on its side. It
    needs (1 + |x| / 2^(n+1))^(2^n) < 2^11; for n = 2, |x| < 45.

    Reference: the paper's Section V.B.2 (SecSigmoid). docs/decisions/0012-sigmoid.md says where it
    leaves the true sigmoid, why it has both signs, and why its division does not start as in the
    scores.
    """
    one = runtime.share_public(FIXED_POINT.encode(1.0), Z64).broadcast_to((1, *x.shape))
    with runtime.step("sigmoid"):
        u = truncate(runtime, x, dropped_bits=squarings + 1)
        powers = stack([u, -u]) + one
        for _ in range(squarings):
            powers = truncate(
                runtime, square(runtime, powers), dropped_bits=FIXED_POINT.fraction_bits
            )
        bits = choose_reciprocal_bits(min_divisor=1.0)
        z = compute_reciprocal(runtime, powers.sum(0), bits=bits, start_bits=SIGMOID_START_BITS)
        return multiply_fixed_point(runtime, powers[0], z, bits=bits)


def split_nodes(
    runtime: Runtime, gradients: Share, goes_left: BoolArray | None, owner: int
) -> Share:
    """Split the nodes of a level, (2, K, N), into their children, (2, 2K, N).

    1. The owner of the split shares v_l, 1 where a sample goes left, and v_r = 1 - v_l.
    2. Node k's children are [v_l][g_k] and [v_r][g_k], and the same for h.

    Reveals: nothing. Error: none.

    Reference: the paper's Section V.B.1, Algorithm 3 (SecSplit).
    """
    kinds, nodes, n_samples = gradients.shape
    sides = None if goes_left is None else np.stack((goes_left, ~goes_left)).astype(np.uint64)
    with runtime.step("split"):
        indicators = runtime.share(sides, owner, (2, n_samples), Z64)
        children = multiply(
            runtime,
            gradients.reshape(kinds, nodes, 1, n_samples),
            indicators.reshape(1, 1, 2, n_samples),
        )
        return children.reshape(kinds, 2 * nodes, n_samples)
