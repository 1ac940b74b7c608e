"""The argmax of many scores, in stages of groups within which all pairs are compared.

All pairs of a group are compared at once; a candidate that wins all its comparisons is the winner
of the group. Its score and its carried values are looked up by the number of its wins, and enter
the next stage. The last stage has no lookup: the carried values of candidates that lose are blinded
by uniform numbers, and all are opened. Only those of the winner are readable.

In the last stage each candidate is the best of one or more whole features. Therefore its winner
reveals only the winning feature, which all participants learn.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z8, get_integer_ring
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.gate import DeferredGate, run_deferred, run_together
from privet.gates.masked.comparison import (
    MaskedComparison,
    choose_digit_count,
    compare,
    make_lifted_one,
    multiply_by_step,
)
from privet.gates.masked.selection import blind_conditionally, look_up, lookup_size
from privet.gates.masked.truncation import defer_borrow_comparison, divide_masked_exactly
from privet.gates.masked.value import LiftedValue, MaskedValue, mask
from privet.runtime.runtime import Runtime

CARRIED_RING = get_integer_ring(48)
"""The ring of carried values; a uniform number looks like a carried value once in 2^48."""
_FINAL_DIGITS = 5  # fewer bits to blind with, since each is multiplied with long numbers
# The cost of a round, in comparisons: those whose bytes take 5 ms at 100 Mbit/s.
_ROUND_IN_PAIRS = 6000
_FINAL_PAIR = 4  # the cost of a comparison of the last stage, in others
_MAX_GROUP_SIZE = 128  # wins are counted over Z8
_GROUPS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)  # sizes to choose from

PairIndices = npt.NDArray[np.intp]
GroupSizes = tuple[int, ...]
"""The sizes of a stage's groups, which follow each other."""


@lru_cache(maxsize=64)
def plan_stages(cut_counts: tuple[int, ...]) -> tuple[GroupSizes, ...]:
    """Return the cheapest groups of every stage for features with these cut counts.

    The first stages are among the cuts of a feature, later ones among features. The last stage is
    one group.
    """
    counts = [count for count in cut_counts if count]
    features, largest = len(counts), max(counts)
    within: list[GroupSizes] = [(largest,), *((m, largest) for m in _GROUPS if m < largest)]
    among: list[GroupSizes] = [(), *((m,) for m in _GROUPS if m < features)]
    if features > _MAX_GROUP_SIZE:
        among += product(_GROUPS, repeat=2)
    if largest == 1:
        within = [()]

    def estimate_final_cost(sizes: GroupSizes) -> float:
        stages = _plan_among_features(features, sizes)
        return _estimate_cost(stages) + (_FINAL_PAIR - 1) * _count_pairs(stages[-1])

    best_within = min(
        within, key=lambda sizes: _estimate_cost(_plan_within_features(counts, sizes))
    )
    best_among = min(among, key=estimate_final_cost)
    return (
        *_plan_within_features(counts, best_within),
        *_plan_among_features(len(counts), best_among),
    )


def _plan_within_features(counts: list[int], largest: GroupSizes) -> list[GroupSizes]:
    """Return the stages in which the cuts of each feature are compared."""
    stages: list[GroupSizes] = []
    for size in largest:
        groups = [_split_evenly(count, size) for count in counts]
        stages.append(tuple(size for sizes in groups for size in sizes))
        counts = [len(sizes) for sizes in groups]
    return stages


def _plan_among_features(features: int, largest: GroupSizes) -> list[GroupSizes]:
    """Return the stages in which features are compared, including the last one."""
    stages: list[GroupSizes] = []
    for size in largest:
        stages.append(_split_evenly(features, size))
        features = len(stages[-1])
    return [*stages, (features,)]


def _estimate_cost(groups: list[GroupSizes]) -> float:
    """Return the cost of stages, in comparisons."""
    if any(max(sizes) > _MAX_GROUP_SIZE for sizes in groups):
        return math.inf
    return sum(3 * _ROUND_IN_PAIRS + _count_pairs(sizes) for sizes in groups)


def _split_evenly(count: int, largest: int) -> GroupSizes:
    """Return the fewest group sizes of at most `largest` that add up to `count`, nearly equal."""
    parts = -(-count // largest)
    return tuple(count * (k + 1) // parts - count * k // parts for k in range(parts))


def _count_pairs(sizes: GroupSizes) -> int:
    return sum(size * (size - 1) // 2 for size in sizes)


def run_argmax(
    runtime: Runtime,
    scores: Share,
    groups: tuple[GroupSizes, ...],
    carried: npt.NDArray[np.int64],
    hidden_score_bits: int = 0,
) -> Share:
    """Return the carried values of the last stage, blinded except for those of the highest score.

    The inputs are (C,) scores, which leave two bits of their ring unused, and (q, C) public
    numbers; the result is (q, finalists). Ties go to the first candidate. With `hidden_score_bits`
    another row contains the scores, without that many low bits, rounded exactly.

    Cost: three openings a stage, two in the last. Reveals: nothing.
    """
    shared_carried: Share | None = None
    with runtime.step("tournament"):
        for sizes in groups[:-1]:
            with runtime.step("enter"):
                score, *masked_carried = mask(
                    runtime, *([scores] if shared_carried is None else [scores, shared_carried])
                )
            with runtime.step("compare"):
                wins = _count_wins(runtime, score, sizes)
            factors: list[MaskedValue | LiftedValue] = [score]
            if masked_carried:
                factors += [masked_carried[0][q] for q in range(len(carried))]
            else:
                factors.append(make_lifted_one(runtime, score.shape, CARRIED_RING))
            with runtime.step("select"):
                ends, last = np.cumsum(sizes).tolist(), np.repeat(sizes, sizes) - 1
                lookup = look_up(runtime, wins, factors, size=lookup_size(max(sizes) - 1))
                selected = [lookup.select_at(last, i) for i in range(len(factors))]
                if not masked_carried:
                    selected[1:] = [selected[1] * row for row in carried]
                scores = selected[0].sum_slices(ends)
                shared_carried = stack([part.sum_slices(ends) for part in selected[1:]])
        if shared_carried is None:
            shared_carried = runtime.share_public(CARRIED_RING.to_elements(carried), CARRIED_RING)
        return run_last_stage(runtime, scores, shared_carried, hidden_score_bits)


def _count_wins(runtime: Runtime, score: MaskedValue, sizes: GroupSizes) -> Share:
    """Count each candidate's wins in its group, over Z8."""
    first, second = _list_pairs(sizes)
    comparison = _defer_comparison(
        _subtract_pairs(score, first, second), choose_digit_count(score.ring.bits)
    )
    reached = run_deferred(runtime, comparison)
    bits = multiply_by_step(
        runtime, reached, make_lifted_one(runtime, first.shape, Z8), factors=(0, 1)
    )
    if not bits.known:
        return Share.unknown(score.shape, Z8)
    wins = np.zeros(score.shape, dtype=np.uint8)
    np.add.at(wins, first, bits.part)
    np.subtract.at(wins, second, bits.part)
    if runtime.index == 0:
        wins += np.bincount(second, minlength=len(wins)).astype(np.uint8)
    return Share(wins, Z8)


def run_last_stage(
    runtime: Runtime, scores: Share, carried: Share, hidden_score_bits: int = 0
) -> Share:
    """Blind the carried values of all candidates but the best.

    With `hidden_score_bits` the scores are another row of carried values.
    """
    first, second = _list_pairs((scores.size,))
    if not len(first) and not hidden_score_bits:
        return carried
    with runtime.step("enter"):
        (score,) = mask(runtime, scores)
    with runtime.step("compare"):
        comparison = _defer_comparison(_subtract_pairs(score, first, second), _FINAL_DIGITS)
        if hidden_score_bits:
            # Half a unit, to round to nearest, and to keep rounded scores from being negative.
            raised = score + (1 << (hidden_score_bits - 1))
            reached, borrowed = run_together(
                runtime, comparison, defer_borrow_comparison(raised, hidden_score_bits)
            )
            rounded = divide_masked_exactly(
                runtime, raised, hidden_score_bits, borrowed
            ).reduce_to_ring(CARRIED_RING)
            carried = concatenate([carried, rounded.reshape(1, -1)])
        else:
            reached = run_deferred(runtime, comparison)
        if not len(first):
            return carried
        blinds = blind_conditionally(runtime, reached[0], n_rows=len(carried), ring=CARRIED_RING)
    if not carried.known:
        return carried
    part = carried.part.copy()
    for blind, candidates in zip(blinds.part, (first, second), strict=True):
        np.add.at(part.T, candidates, blind.T)
    return Share(part, CARRIED_RING)


def _subtract_pairs(score: MaskedValue, first: PairIndices, second: PairIndices) -> MaskedValue:
    """Return the differences of the scores of candidate pairs."""
    return score.map(lambda x: x[first] - x[second])


def _defer_comparison(differences: MaskedValue, digits: int) -> DeferredGate[MaskedComparison]:
    """Compare differences with zero, in one opening."""
    width = differences.ring.bits
    return compare.defer(differences, thresholds=(0,), width=width, digits=digits)


@lru_cache(maxsize=16)
def _list_pairs(sizes: GroupSizes) -> tuple[PairIndices, PairIndices]:
    """Return the first and the second candidates of all pairs of all groups."""
    pairs: list[tuple[int, int]] = []
    start = 0
    for size in sizes:
        pairs += combinations(range(start, start + size), 2)
        start += size
    indices = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return indices[:, 0], indices[:, 1]
