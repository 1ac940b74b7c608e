"""The best of many masked scores, in stages of groups in which each meets each.

Within a group all pairs are compared at once; a candidate that wins all its comparisons is the
group's winner. Its score and what it carries are looked up by the number of its wins, and go on to
the next stage. Nobody learns anything but what the last winner carries, when it is revealed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np

from privet.arithmetic.rings import Z8, Z32
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.lookup import lookup, lookup_size
from privet.gates.masked import Masked, combine, constant, mask
from privet.gates.threshold import count_reached
from privet.runtime.runtime import Runtime

SCORE_WIDTH = 48
"""Bits that scores are compared on: the leading ones of 64."""
# A delay is worth about as many comparisons as its 5 ms take bytes at 100 Mbit/s.
_ROUND_IN_PAIRS = 6000
_LARGEST_GROUP = 128  # wins are counted over Z8
_STAGES = 4


def group_sizes(candidates: int) -> list[int]:
    """Return the sizes of the groups of each stage: what costs least in comparisons and rounds."""
    return list(_cheapest(candidates, _STAGES)[1])


@lru_cache(maxsize=1 << 16)
def _cheapest(candidates: int, stages: int) -> tuple[int, tuple[int, ...]]:
    """Return the least cost, in comparisons, of finding the best, and the sizes of the groups."""
    opening = 3 * _ROUND_IN_PAIRS
    best: tuple[int, tuple[int, ...]] = (1 << 62, ())
    if candidates <= _LARGEST_GROUP:
        best = opening + candidates * (candidates - 1) // 2, (candidates,)
    for size in range(2, min(candidates, _LARGEST_GROUP) + 1) if stages > 1 else ():
        groups = -(-candidates // size)
        own = opening + groups * size * (size - 1) // 2
        if own >= best[0]:
            break
        rest, sizes = _cheapest(groups, stages - 1)
        best = min(best, (own + rest, (size, *sizes)))
    return best


def best(runtime: Runtime, scores: Share, carried: np.ndarray) -> Share:
    """Return what the highest score carries: of (C,) scores over Z64 and (q, C) public numbers.

    |score| < 2^61. Ties go to the first. Scores that agree to 2^-47 of 2^63 may go either way.

    Cost: three openings a stage. Reveals: nothing.
    """
    load: Share | None = None
    with runtime.step("tournament"):
        for size in group_sizes(scores.size):
            groups = -(-scores.size // size)
            with runtime.step("enter"):
                score, *loads = mask(runtime, *([scores] if load is None else [scores, load]))
            score = _grouped(runtime, score, groups * size, groups, -(1 << 61))
            with runtime.step("compare"):
                wins = _wins(runtime, score)
            factors = [score]
            if loads:
                spread = _grouped(runtime, loads[0], groups * size, groups, 0)
                factors += [spread[q] for q in range(len(carried))]
            else:
                ones = np.ones((groups, size), dtype=np.uint32)
                factors.append(constant(runtime, ones, Z32))
            with runtime.step("select"):
                selection = lookup(runtime, wins, factors, size=lookup_size(size - 1))
                picked = [selection.where(size - 1, i) for i in range(len(factors))]
            scores = picked[0].sum(1)
            if loads:
                load = stack([part.sum(1) for part in picked[1:]])
            else:
                known = np.zeros((len(carried), groups * size), dtype=np.int64)
                known[:, : carried.shape[1]] = carried
                load = stack([(picked[1] * row.reshape(groups, size)).sum(1) for row in known])
    assert load is not None
    return load[:, 0]


def _wins(runtime: Runtime, score: Masked) -> Share:
    """Count each candidate's wins in its group, over Z8: (groups, size)."""
    groups, size = score.shape
    pairs = np.array(list(combinations(range(size), 2)), dtype=np.intp).reshape(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    coarse = score.high_bits(64 - SCORE_WIDTH)
    difference = coarse.map(lambda x: x[:, first] - x[:, second])
    reached = count_reached(runtime, difference, thresholds=(0,), width=SCORE_WIDTH)
    if not reached.known:
        return Share.unknown((groups, size), Z8)
    wins = np.zeros((size, groups), dtype=np.uint8)
    np.add.at(wins, first, reached.part.T)
    np.subtract.at(wins, second, reached.part.T)
    if runtime.index == 0:
        wins += np.arange(size, dtype=np.uint8)[:, None]  # second loses what first does not win
    return Share(np.ascontiguousarray(wins.T), Z8)


def _grouped(runtime: Runtime, x: Masked, length: int, groups: int, filling: int) -> Masked:
    """Append public numbers, which have no mask, up to a length, and cut into groups."""
    missing = length - x.shape[-1]
    if missing:
        shape = (*x.shape[:-1], missing)
        fill = constant(runtime, np.full(shape, filling).astype(x.ring.dtype), x.ring)
        x = combine(lambda both: concatenate(both, axis=len(x.shape) - 1), x, fill)
    return x.map(lambda a: a.reshape(*a.shape[:-1], groups, -1))
