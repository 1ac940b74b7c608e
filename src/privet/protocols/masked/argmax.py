"""The best of many scores, in stages of groups in which each meets each.

Within a group all pairs are compared at once; a candidate that wins all its comparisons is the
group's winner. Its score and what it carries are looked up by the number of its wins, and go on to
the next stage. In the last one nobody is looked up: what candidates carry is veiled where they
lose, by uniform numbers, and opened. Only the winner's can be read.

In the last stage a group stands for whole features. So who wins there says no more than which
feature won, which is what all learn.
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
"""What candidates carry; of a uniform number, one in 2^48 looks like it."""
_FINAL_DIGITS = 5  # fewer bits to veil with, where every one is multiplied with long numbers
# A delay is worth about as many comparisons as its 5 ms take bytes at 100 Mbit/s.
_ROUND_IN_PAIRS = 6000
_FINAL_PAIR = 4  # what a comparison of the last stage costs, in others
_MAX_GROUP_SIZE = 128  # wins are counted over Z8
_GROUPS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)  # sizes to choose from

PairIndices = npt.NDArray[np.intp]
GroupSizes = tuple[int, ...]
"""The sizes of a stage's groups, which follow each other."""


@lru_cache(maxsize=64)
def plan_stages(cut_counts: tuple[int, ...]) -> tuple[GroupSizes, ...]:
    """Return the groups of every stage, of features with so many cuts: what costs least.

    First among the cuts of a feature, then among features; the last stage is one group.
    """
    counts = [count for count in cut_counts if count]
    features, largest = len(counts), max(counts)
    within: list[GroupSizes] = [(largest,), *((m, largest) for m in _GROUPS if m < largest)]
    among: list[GroupSizes] = [(), *((m,) for m in _GROUPS if m < features)]
    if features > _MAX_GROUP_SIZE:
        among += product(_GROUPS, repeat=2)
    if largest == 1:
        within = [()]

    def of_final(sizes: GroupSizes) -> float:
        found = _plan_among_features(features, sizes)
        return _estimate_cost(found) + (_FINAL_PAIR - 1) * _pairs(found[-1])

    own = min(within, key=lambda sizes: _estimate_cost(_plan_within_features(counts, sizes)))
    return _stages(counts, own, min(among, key=of_final))


def _stages(counts: list[int], within: GroupSizes, more: GroupSizes) -> tuple[GroupSizes, ...]:
    """Return the groups for given largest sizes: among own cuts, then among features."""
    return (*_plan_within_features(counts, within), *_plan_among_features(len(counts), more))


def _plan_within_features(counts: list[int], largest: GroupSizes) -> list[GroupSizes]:
    """Return the stages in which features' own cuts meet."""
    found: list[GroupSizes] = []
    for size in largest:
        groups = [_chunks(count, size) for count in counts]
        found.append(tuple(size for chunks in groups for size in chunks))
        counts = [len(chunks) for chunks in groups]
    return found


def _plan_among_features(features: int, largest: GroupSizes) -> list[GroupSizes]:
    """Return the stages in which features meet, the last one too."""
    found: list[GroupSizes] = []
    for size in largest:
        found.append(_chunks(features, size))
        features = len(found[-1])
    return [*found, (features,)]


def _estimate_cost(groups: list[GroupSizes]) -> float:
    """Return what stages cost, in comparisons."""
    if any(max(sizes) > _MAX_GROUP_SIZE for sizes in groups):
        return math.inf
    return sum(3 * _ROUND_IN_PAIRS + _pairs(sizes) for sizes in groups)


def _chunks(count: int, largest: int) -> GroupSizes:
    """Return a number as a sum of as few as will do, nearly equal ones."""
    parts = -(-count // largest)
    return tuple(count * (k + 1) // parts - count * k // parts for k in range(parts))


def _pairs(sizes: GroupSizes) -> int:
    return sum(size * (size - 1) // 2 for size in sizes)


def run_argmax(
    runtime: Runtime,
    scores: Share,
    groups: tuple[GroupSizes, ...],
    carried: npt.NDArray[np.int64],
    hidden_score_bits: int = 0,
) -> Share:
    """Return what the last stage's candidates carry, veiled but for that of the highest score.

    Of (C,) scores, which leave two bits of their ring, and (q, C) public numbers: (q, finalists).
    Ties go to the first. With `hidden_score_bits` one row more holds the scores themselves, without
    so many low bits, rounded exactly.

    Cost: three openings a stage, two in the last. Reveals: nothing yet.
    """
    load: Share | None = None
    with runtime.step("tournament"):
        for sizes in groups[:-1]:
            with runtime.step("enter"):
                score, *loads = mask(runtime, *([scores] if load is None else [scores, load]))
            with runtime.step("compare"):
                wins = _wins(runtime, score, sizes)
            factors: list[MaskedValue | LiftedValue] = [score]
            if loads:
                factors += [loads[0][q] for q in range(len(carried))]
            else:
                factors.append(make_lifted_one(runtime, score.shape, CARRIED_RING))
            with runtime.step("select"):
                ends, last = np.cumsum(sizes).tolist(), np.repeat(sizes, sizes) - 1
                selection = look_up(runtime, wins, factors, size=lookup_size(max(sizes) - 1))
                picked = [selection.select_at(last, i) for i in range(len(factors))]
                if not loads:
                    picked[1:] = [picked[1] * row for row in carried]
                scores = picked[0].sum_slices(ends)
                load = stack([part.sum_slices(ends) for part in picked[1:]])
        if load is None:
            load = runtime.share_public(CARRIED_RING.to_elements(carried), CARRIED_RING)
        return _final(runtime, scores, load, hidden_score_bits)


def _wins(runtime: Runtime, score: MaskedValue, sizes: GroupSizes) -> Share:
    """Count each candidate's wins in its group, over Z8."""
    first, second = _list_pairs(sizes)
    comparing = _defer_comparison(
        _differences(score, first, second), choose_digit_count(score.ring.bits)
    )
    reached = run_deferred(runtime, comparing)
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


def _final(runtime: Runtime, scores: Share, load: Share, hidden_score_bits: int = 0) -> Share:
    """Veil what all but the best carry, their scores among it if these are to be a row."""
    first, second = _list_pairs((scores.size,))
    if not len(first) and not hidden_score_bits:
        return load
    with runtime.step("enter"):
        (score,) = mask(runtime, scores)
    with runtime.step("compare"):
        comparing = _defer_comparison(_differences(score, first, second), _FINAL_DIGITS)
        if hidden_score_bits:
            # By half a unit, so that it is the nearest one, and what was rounded below zero is not.
            raised = score + (1 << (hidden_score_bits - 1))
            reached, borrowed = run_together(
                runtime, comparing, defer_borrow_comparison(raised, hidden_score_bits)
            )
            rounded = divide_masked_exactly(
                runtime, raised, hidden_score_bits, borrowed
            ).reduce_to_ring(CARRIED_RING)
            load = concatenate([load, rounded.reshape(1, -1)])
        else:
            reached = run_deferred(runtime, comparing)
        if not len(first):
            return load
        veils = blind_conditionally(runtime, reached[0], n_rows=len(load), ring=CARRIED_RING)
    if not load.known:
        return load
    carried = load.part.copy()
    for veiled, candidates in zip(veils.part, (first, second), strict=True):
        np.add.at(carried.T, candidates, veiled.T)
    return Share(carried, CARRIED_RING)


def _differences(score: MaskedValue, first: PairIndices, second: PairIndices) -> MaskedValue:
    """Return by how much the scores of some candidates exceed those of others."""
    return score.map(lambda x: x[first] - x[second])


def _defer_comparison(differences: MaskedValue, digits: int) -> DeferredGate[MaskedComparison]:
    """Find, with an opening, which differences are at least zero."""
    width = differences.ring.bits
    return compare.defer(differences, thresholds=(0,), width=width, digits=digits)


@lru_cache(maxsize=16)
def _list_pairs(sizes: GroupSizes) -> tuple[PairIndices, PairIndices]:
    """Return the candidates of all pairs of all groups, those that come first and the others."""
    pairs: list[tuple[int, int]] = []
    start = 0
    for size in sizes:
        pairs += combinations(range(start, start + size), 2)
        start += size
    found = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]
