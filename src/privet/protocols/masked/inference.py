"""Inference on masked values: leaf lookup, feature contributions and importances.

Only the owner of a split knows which training rows go left. Therefore the mean of two leaves over
the training rows is a product of shared numbers. All participants, but not the dealer, know which
splits use the same feature, so computations that depend only on that are local.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import add

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z1, Z32, Z64, get_integer_ring, signed
from privet.arithmetic.shapley import compute_shapley_of_elements, encode_coalition_weights
from privet.arithmetic.shares import Elements, Share, concatenate, stack
from privet.arrays import FloatArray, IndexArray
from privet.gates.arithmetic import truncate_locally
from privet.gates.masked.comparison import choose_digit_count, compare, multiply_by_step
from privet.gates.masked.functions import SCORE_BITS
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import look_up_leaves, share_trivially
from privet.gates.masked.truncation import reduce_ring
from privet.gates.masked.value import MaskedValue, lift, lift_signed, map_together, mask, mask_value
from privet.protocols.protocol import (
    RIGHT_FRACTION_BITS,
    AppliedSplits,
    SecureProtocol,
    SharedContributions,
    SplitGroups,
)
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan

_SIGN_BLOCK_SIZE = 1 << 18  # contributions whose signs are found at a time


def sum_absolute_contributions(runtime: Runtime, contributions: Share) -> Share:
    """Return shares of the sums over all rows of absolute contributions, (G, K, N) over Z32.

    1. Mask the contributions, and compare them with zero.
    2. Multiply each by 1 or -1, and add up all rows: (G, K) over Z64.

    Cost: an opening of 32 bits, and one of a few bits, for each contribution. Reveals: nothing.
    """
    groups, outputs, n_samples = contributions.shape
    block = max(1, _SIGN_BLOCK_SIZE // (groups * outputs))
    with runtime.step("importances"):
        parts = [
            _compute_absolute(runtime, contributions[:, :, start : start + block]).sum(2)
            for start in range(0, n_samples, block)
        ]
        return reduce(add, parts)


def reveal_mean_contributions(
    runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
) -> FloatArray | None:
    """Reveal means to one participant, (G, K), from sums over so many rows.

    `bits` are the fraction bits of the sums and of the means, which can have one more. Sums are
    masked and divided by a power of two: their low bits would reveal more about single rows than
    was agreed.

    Cost: an opening of each sum. Reveals: the means. Error: below one unit of the means.
    """
    fraction_bits, keep_bits = bits
    with runtime.step("importances"):
        shift = fraction_bits - keep_bits + n_samples.bit_length() - 1
        divided = lift_signed(runtime, mask_value(runtime, total), shift=shift).to_share(runtime)
        revealed = runtime.reveal(divided, [recipient], "mean absolute contributions")
    if revealed is None:
        return None
    unit = 2.0 ** (shift - fraction_bits) / n_samples
    means: FloatArray = signed(revealed).astype(float) * unit
    return means


def _compute_absolute(runtime: Runtime, values: Share) -> Share:
    """Return absolute values, over Z64."""
    masked = mask_value(runtime, values)
    width = masked.ring.bits
    reached = compare(
        runtime, masked, thresholds=(0,), width=width, digits=choose_digit_count(width)
    )
    return multiply_by_step(runtime, reached, lift_signed(runtime, masked), factors=(-1, 1))


MAX_LEAF_VALUE = 16
"""A bound on leaf values: training ends if one is larger."""
EXTRA_MEAN_BITS = 4
"""Fraction bits of means beyond those of leaf values, which have at most 20. The difference of two
means is then at most 2^29 in size, and can be lifted from a ring of 32 bits."""
SHAPLEY_WEIGHT_BITS = 28
"""Fraction bits of Shapley weights: with the extra bits of means, all bits of a word that a leaf
value leaves."""
_OPENED_EXTRA_BITS = 2  # bits of a product that its opening drops; the shares drop the other ones
_BLOCK = 1 << 20  # partial means that are derived at a time


def derive_contributions(
    runtime: Runtime, leaf_values: Share, right_fractions: Share, features: IndexArray | None
) -> SharedContributions:
    """Derive contributions from leaf values, (tables, K, 2^D) over Z32.

    `right_fractions` and `features` are those of `SecureProtocol.derive_contributions`.

    Cost: 1 + D openings, of 3^D elements a table and output in all. Reveals: nothing. Error: about
    D / 2^EXTRA_MEAN_BITS units of leaf values.
    """
    tables, outputs, leaves = leaf_values.shape
    depth = leaves.bit_length() - 1
    step = count_tables_per_block(outputs, depth)
    derived = []
    for start in range(0, tables, step):
        block = slice(start, min(start + step, tables))
        means = _derive_partial_means(runtime, leaf_values[block], right_fractions[block])
        block_features = None if features is None else features[block]
        derived.append(_combine_partial_means(runtime, means, block_features, depth))
    return SharedContributions(
        concatenate([each.contributions for each in derived]),
        concatenate([each.means for each in derived]),
    )


def count_tables_per_block(outputs: int, depth: int) -> int:
    """Return the number of tables whose contributions are derived together."""
    return max(1, _BLOCK // (outputs * int(3**depth)))


def estimate_contribution_memory(plan: Plan) -> int:
    """Return the memory for deriving contributions, in bytes: 12 words for each partial mean."""
    outputs, depth = plan.objective.n_outputs, plan.params.depth
    tables = min(plan.params.tables, count_tables_per_block(outputs, depth))
    return 12 * Z64.nbytes((tables * outputs, 3**depth))


def list_contribution_constants(depth: int) -> list[object]:
    """Return the encoded Shapley weights that multiply shares, and their scales."""
    weights = [
        encode_coalition_weights(players, SHAPLEY_WEIGHT_BITS) for players in range(1, depth + 1)
    ]
    return [RIGHT_FRACTION_BITS, EXTRA_MEAN_BITS, SHAPLEY_WEIGHT_BITS, weights]


def _derive_partial_means(
    runtime: Runtime, leaf_values: Share, right_fractions: Share
) -> MaskedValue:
    """Return masked partial means, (tables, K, 3^D), of leaf values.

    1. Mask the leaf values and the fractions.
    2. From the last level to the first: next to left and right append left + q (right - left), with
       q the fraction of rows that go right. The product is divided as it is masked.
    """
    tables, outputs, leaves = leaf_values.shape
    means, masked = mask(runtime, leaf_values * (1 << EXTRA_MEAN_BITS), right_fractions)
    for level in reversed(range(leaves.bit_length() - 1)):
        means = _append_means(runtime, means, masked.map(partial(_select_level, level=level)))
    return means.map(lambda a: a.reshape(tables, outputs, -1))


def _append_means(
    runtime: Runtime, means: MaskedValue, right_fractions: MaskedValue
) -> MaskedValue:
    """Return the partial means of one more level, from its right fractions: (tables, 2^m).

    The given means are in rows, one for each outcome of this level and the m levels before.
    """
    tables, outputs = means.shape[:2]
    earlier = right_fractions.shape[1]
    sides = means.map(lambda a: a.reshape(tables, outputs, earlier, 2, -1))
    left, right = sides.map(lambda a: a[:, :, :, 0]), sides.map(lambda a: a[:, :, :, 1])
    fraction = right_fractions.map(lambda a: a.reshape(tables, 1, earlier, 1))
    factors = [lift(runtime, fraction), lift_signed(runtime, right - left)]
    product = polynomial(runtime, factors, [(1, (0, 1))])
    shortened = truncate_locally(
        runtime,
        product,
        RIGHT_FRACTION_BITS - _OPENED_EXTRA_BITS,
        get_integer_ring(Z32.bits + _OPENED_EXTRA_BITS),
    )
    (shift,) = reduce_ring(runtime, shortened, dropped_bits=[_OPENED_EXTRA_BITS], rings=[Z32])
    mean = map_together(_sum, left, shift)
    stacked = map_together(lambda values: stack(values, axis=3), left, right, mean)
    return stacked.map(lambda a: a.reshape(tables, outputs, earlier, -1))


def _select_level(right_fractions: Elements, level: int) -> Elements:
    return right_fractions[:, (1 << level) - 1 : (2 << level) - 1]


def _sum(values: list[Elements]) -> Elements:
    return values[0] + values[1]


def _combine_partial_means(
    runtime: Runtime, means: MaskedValue, features: IndexArray | None, depth: int
) -> SharedContributions:
    """Return contributions: public linear combinations of shares of partial means."""
    tables, outputs, _ = means.shape
    lifted = lift_signed(runtime, means).to_share(runtime)
    base = truncate_locally(runtime, lifted[:, :, -1], EXTRA_MEAN_BITS, Z32)
    if features is None or not lifted.known:
        return SharedContributions(Share.unknown((tables, outputs, depth, 1 << depth), Z32), base)
    parts = [
        compute_shapley_of_elements(part, table_features, Z64, SHAPLEY_WEIGHT_BITS)
        for part, table_features in zip(lifted.part, features.tolist(), strict=True)
    ]
    contributions = Share(np.stack(parts), Z64)
    return SharedContributions(
        truncate_locally(runtime, contributions, EXTRA_MEAN_BITS + SHAPLEY_WEIGHT_BITS, Z32), base
    )


def look_up_contributions(
    runtime: Runtime,
    splits: AppliedSplits,
    leaf_values: Share,
    contributions: Share,
    groups: SplitGroups,
) -> tuple[Share, Share]:
    """Return the scores of tables, (K, N), and the contributions of groups of splits: (G, K, N).

    As `SecureProtocol.infer_with_contributions`. Contributions are looked up together with leaf
    values, in the same round.
    """
    tables, depth, n_samples = splits.shape
    outputs, group_of_split = leaf_values.shape[1], groups.of_splits
    flat = contributions.reshape(tables, outputs * depth, -1)
    goes_right = share_trivially(runtime, splits.goes_right, splits.shape, Z1)
    outcomes, values = mask(runtime, goes_right, concatenate([leaf_values, flat], axis=1))
    scores = Share.unknown((outputs, n_samples), leaf_values.ring)
    by_group: dict[int, Share] = {}
    for table in range(tables):
        reached = look_up_leaves(runtime, outcomes[table], values[table])
        scores = reached[:outputs] if table == 0 else scores + reached[:outputs]
        if group_of_split is None:
            continue
        levels = reached[outputs:].reshape(outputs, depth, n_samples)
        for level, group in enumerate(group_of_split[table].tolist()):
            added = levels[:, level]
            by_group[group] = by_group[group] + added if group in by_group else added
    if group_of_split is None:
        return scores, Share.unknown((groups.count, outputs, n_samples), leaf_values.ring)
    zeros = scores * 0
    return scores, stack([by_group.get(group, zeros) for group in range(groups.count)])


class MaskedInference(SecureProtocol):
    """Predictions and explanations of trained tables."""

    encoding = FixedPoint(SCORE_BITS)
    supports_explanations = True

    @classmethod
    def infer(cls, runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
        """Return the sum of the leaf values that every sample reaches: one round.

        1. Mask the outcomes of all splits and the leaf values of all tables.
        2. Look up every sample's leaf in every table.
        """
        with runtime.step("infer"):
            goes_right = share_trivially(runtime, splits.goes_right, splits.shape, Z1)
            outcomes, values = mask(runtime, goes_right, leaf_values)
            by_table = [
                look_up_leaves(runtime, outcomes[table], values[table])
                for table in range(splits.shape[0])
            ]
            total = by_table[0]
            for added in by_table[1:]:
                total += added
            return total

    @classmethod
    def derive_contributions(
        cls,
        runtime: Runtime,
        leaf_values: Share,
        right_fractions: Share,
        features: IndexArray | None,
    ) -> SharedContributions:
        """Derive contributions at all leaves of all tables at once: 1 + D rounds."""
        return derive_contributions(runtime, leaf_values, right_fractions, features)

    @classmethod
    def infer_with_contributions(
        cls,
        runtime: Runtime,
        splits: AppliedSplits,
        leaf_values: Share,
        contributions: Share,
        groups: SplitGroups,
    ) -> tuple[Share, Share]:
        """Return the scores of tables and the contributions of groups of splits: one round."""
        with runtime.step("infer"):
            return look_up_contributions(runtime, splits, leaf_values, contributions, groups)

    @classmethod
    def sum_absolute_contributions(cls, runtime: Runtime, contributions: Share) -> Share:
        """Return sums of absolute contributions: two rounds for each block of contributions."""
        return sum_absolute_contributions(runtime, contributions)

    @classmethod
    def reveal_mean_contributions(
        cls, runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
    ) -> FloatArray | None:
        """Reveal means to one participant, from sums."""
        return reveal_mean_contributions(runtime, total, n_samples, bits, recipient)
