"""Inference on masked values: leaf lookup, feature contributions and importances.

Owners alone know how the training rows fall, so the mean of two leaves, that of samples that pass
and of those that fail, takes a product of shared numbers. Which tests are of one feature everybody
but the dealer knows, so whatever depends on it is local.
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
    2. Each is multiplied by 1 or -1, and all rows are added up: (G, K) over Z64.

    Cost: an opening of 32 bits, and one of a few more, for each contribution. Reveals: nothing.
    """
    groups, outputs, n_samples = contributions.shape
    block = max(1, _SIGN_BLOCK_SIZE // (groups * outputs))
    with runtime.step("importances"):
        parts = [
            _absolute(runtime, contributions[:, :, start : start + block]).sum(2)
            for start in range(0, n_samples, block)
        ]
        return reduce(add, parts)


def reveal_mean_contributions(
    runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
) -> FloatArray | None:
    """Reveal means to one participant, (G, K), from sums over so many rows.

    `bits` are fraction bits: those of sums, and those that means keep, or one more. Sums are masked
    and divided by a power of two, since their low bits would say more of single rows than anybody
    agreed to.

    Cost: an opening of each sum. Reveals: the means. Error: below one unit of what is kept.
    """
    fraction_bits, keep_bits = bits
    with runtime.step("importances"):
        shift = fraction_bits - keep_bits + n_samples.bit_length() - 1
        divided = lift_signed(runtime, mask_value(runtime, total), shift=shift).to_share(runtime)
        revealed = runtime.reveal(divided, [recipient], "mean absolute contributions")
    if revealed is None:
        return None
    unit = 2.0 ** (shift - fraction_bits) / n_samples
    found: FloatArray = signed(revealed).astype(float) * unit
    return found


def _absolute(runtime: Runtime, values: Share) -> Share:
    """Return values without their signs, over Z64."""
    masked = mask_value(runtime, values)
    width = masked.ring.bits
    reached = compare(
        runtime, masked, thresholds=(0,), width=width, digits=choose_digit_count(width)
    )
    return multiply_by_step(runtime, reached, lift_signed(runtime, masked), factors=(-1, 1))


MAX_LEAF_VALUE = 16
"""No leaf value is larger: a training would have ended."""
EXTRA_MEAN_BITS = 4
"""Fraction bits that means have beyond those of leaf values, which have 20 at most. So the
difference of two means is at most 2^29 in size, and can be lifted from a ring of 32 bits."""
SHAPLEY_WEIGHT_BITS = 28
"""Of Shapley's weights: with the bits above, as many as a word has beyond a leaf value."""
_OPENED_EXTRA_BITS = 2  # bits of a product that its opening drops; others go from the shares
_BLOCK = 1 << 20  # partial means that are derived at a time


def derive_contributions(
    runtime: Runtime, leaf_values: Share, right_fractions: Share, features: IndexArray | None
) -> SharedContributions:
    """Derive reasons from leaf values, (tables, K, 2^D) over Z32.

    `right_fractions` are those of failing, as `SecureProtocol.derive_contributions` takes them;
    `features` are tested, (tables, D), and None to the dealer.

    Cost: 1 + D openings, of 3^D elements a table and output in all. Reveals: nothing. Error: about
    D / 2^EXTRA_MEAN_BITS units of leaf values.
    """
    tables, outputs, leaves = leaf_values.shape
    depth = leaves.bit_length() - 1
    step = count_tables_per_block(outputs, depth)
    found = []
    for start in range(0, tables, step):
        block = slice(start, min(start + step, tables))
        means = _partial_means(runtime, leaf_values[block], right_fractions[block])
        tested = None if features is None else features[block]
        found.append(_combined(runtime, means, tested, depth))
    return SharedContributions(
        concatenate([reasons.contributions for reasons in found]),
        concatenate([reasons.means for reasons in found]),
    )


def count_tables_per_block(outputs: int, depth: int) -> int:
    """Return how many tables are taken together."""
    return max(1, _BLOCK // (outputs * int(3**depth)))


def estimate_contribution_memory(plan: Plan) -> int:
    """Return about how many bytes deriving takes: a dozen words for each partial mean."""
    outputs, depth = plan.objective.n_outputs, plan.params.depth
    tables = min(plan.params.tables, count_tables_per_block(outputs, depth))
    return 12 * Z64.nbytes((tables * outputs, 3**depth))


def list_contribution_constants(depth: int) -> list[object]:
    """Return Shapley's weights as they multiply shares, and what scales them."""
    every = [
        encode_coalition_weights(players, SHAPLEY_WEIGHT_BITS) for players in range(1, depth + 1)
    ]
    return [RIGHT_FRACTION_BITS, EXTRA_MEAN_BITS, SHAPLEY_WEIGHT_BITS, every]


def _partial_means(runtime: Runtime, leaf_values: Share, right_fractions: Share) -> MaskedValue:
    """Return masked partial means, (tables, K, 3^D), of leaf values.

    1. Mask the leaf values and the chances.
    2. From the last level to the first: beside passed and failed stands passed + q (failed -
       passed), with q the chance to fail, divided as it is masked.
    """
    tables, outputs, leaves = leaf_values.shape
    means, masked = mask(runtime, leaf_values * (1 << EXTRA_MEAN_BITS), right_fractions)
    for level in reversed(range(leaves.bit_length() - 1)):
        means = _with_means(runtime, means, masked.map(partial(_of_level, level=level)))
    return means.map(lambda a: a.reshape(tables, outputs, -1))


def _with_means(runtime: Runtime, means: MaskedValue, right_fractions: MaskedValue) -> MaskedValue:
    """Return the partial means of one level more, from chances of failing it: (tables, 2^m).

    Those given stand, for each outcome of it and of the m levels before, in a row.
    """
    tables, outputs = means.shape[:2]
    earlier = right_fractions.shape[1]
    sides = means.map(lambda a: a.reshape(tables, outputs, earlier, 2, -1))
    passed, failed = sides.map(lambda a: a[:, :, :, 0]), sides.map(lambda a: a[:, :, :, 1])
    chance = right_fractions.map(lambda a: a.reshape(tables, 1, earlier, 1))
    factors = [lift(runtime, chance), lift_signed(runtime, failed - passed)]
    product = polynomial(runtime, factors, [(1, (0, 1))])
    few = truncate_locally(
        runtime,
        product,
        RIGHT_FRACTION_BITS - _OPENED_EXTRA_BITS,
        get_integer_ring(Z32.bits + _OPENED_EXTRA_BITS),
    )
    (moved,) = reduce_ring(runtime, few, dropped_bits=[_OPENED_EXTRA_BITS], rings=[Z32])
    mean = map_together(_sum, passed, moved)
    every = map_together(lambda values: stack(values, axis=3), passed, failed, mean)
    return every.map(lambda a: a.reshape(tables, outputs, earlier, -1))


def _of_level(right_fractions: Elements, level: int) -> Elements:
    return right_fractions[:, (1 << level) - 1 : (2 << level) - 1]


def _sum(values: list[Elements]) -> Elements:
    return values[0] + values[1]


def _combined(
    runtime: Runtime, means: MaskedValue, features: IndexArray | None, depth: int
) -> SharedContributions:
    """Return reasons from partial means: public combinations of shares of them."""
    tables, outputs, _ = means.shape
    lifted = lift_signed(runtime, means).to_share(runtime)
    base = truncate_locally(runtime, lifted[:, :, -1], EXTRA_MEAN_BITS, Z32)
    if features is None or not lifted.known:
        return SharedContributions(Share.unknown((tables, outputs, depth, 1 << depth), Z32), base)
    parts = [
        compute_shapley_of_elements(part, tests, Z64, SHAPLEY_WEIGHT_BITS)
        for part, tests in zip(lifted.part, features.tolist(), strict=True)
    ]
    whole = Share(np.stack(parts), Z64)
    return SharedContributions(
        truncate_locally(runtime, whole, EXTRA_MEAN_BITS + SHAPLEY_WEIGHT_BITS, Z32), base
    )


def look_up_contributions(
    runtime: Runtime,
    splits: AppliedSplits,
    leaf_values: Share,
    contributions: Share,
    groups: SplitGroups,
) -> tuple[Share, Share]:
    """Return what tables add to scores, (K, N), and what groups of tests contribute: (G, K, N).

    As `SecureProtocol.infer_with_contributions`: contributions are looked up beside leaf values, in
    the same round.
    """
    tables, depth, n_samples = splits.shape
    outputs, of_tests = leaf_values.shape[1], groups.of_splits
    beside = contributions.reshape(tables, outputs * depth, -1)
    fails = share_trivially(runtime, splits.goes_right, splits.shape, Z1)
    outcomes, values = mask(runtime, fails, concatenate([leaf_values, beside], axis=1))
    scores = Share.unknown((outputs, n_samples), leaf_values.ring)
    by_group: dict[int, Share] = {}
    for table in range(tables):
        found = look_up_leaves(runtime, outcomes[table], values[table])
        scores = found[:outputs] if table == 0 else scores + found[:outputs]
        if of_tests is None:
            continue
        levels = found[outputs:].reshape(outputs, depth, n_samples)
        for level, group in enumerate(of_tests[table].tolist()):
            more = levels[:, level]
            by_group[group] = by_group[group] + more if group in by_group else more
    if of_tests is None:
        return scores, Share.unknown((groups.count, outputs, n_samples), leaf_values.ring)
    nothing = scores * 0
    return scores, stack([by_group.get(group, nothing) for group in range(groups.count)])


class MaskedInference(SecureProtocol):
    """What is done with trained tables."""

    encoding = FixedPoint(SCORE_BITS)
    supports_explanations = True

    @classmethod
    def infer(cls, runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
        """Return what tables add to the scores of every sample: one round.

        1. Mask the outcomes of all tests and the leaf values of all tables.
        2. Look every sample's leaf up in every table.
        """
        with runtime.step("infer"):
            fails = share_trivially(runtime, splits.goes_right, splits.shape, Z1)
            outcomes, values = mask(runtime, fails, leaf_values)
            found = [
                look_up_leaves(runtime, outcomes[table], values[table])
                for table in range(splits.shape[0])
            ]
            total = found[0]
            for more in found[1:]:
                total += more
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
        """Return what tables add to scores, and what groups of tests contribute: one round."""
        with runtime.step("infer"):
            return look_up_contributions(runtime, splits, leaf_values, contributions, groups)

    @classmethod
    def sum_absolute_contributions(cls, runtime: Runtime, contributions: Share) -> Share:
        """Return sums of absolute contributions: two rounds for some hundred thousand of them."""
        return sum_absolute_contributions(runtime, contributions)

    @classmethod
    def reveal_mean_contributions(
        cls, runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
    ) -> FloatArray | None:
        """Reveal means to one participant, from sums."""
        return reveal_mean_contributions(runtime, total, n_samples, bits, recipient)
