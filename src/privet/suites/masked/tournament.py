"""The best of many masked scores, in stages of groups in which each meets each.

Within a group all pairs are compared at once; a candidate that wins all its comparisons is the
group's winner. Its score and what it carries are looked up by the number of its wins, and go on to
the next stage. Nobody learns anything but what the last winner carries, when it is revealed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np

from privet.arithmetic.rings import Z8, Z32, Z64
from privet.arithmetic.shares import Share, stack
from privet.gates.gate import Cost
from privet.gates.lookup import Lookup, lookup, lookup_size
from privet.gates.masked import Mask, Masked, OpenMasked, combine, mask, unmasked
from privet.gates.threshold import DIGIT_BITS, CountReached, count_reached
from privet.runtime.runtime import Runtime
from privet.suites.masked.division import shifted

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

    Cost: `best_cost`: three openings a stage. Reveals: nothing.
    """
    load: Share | None = None
    with runtime.step("tournament"):
        for size in group_sizes(scores.size):
            groups = -(-scores.size // size)
            with runtime.step("enter"):
                entered = [scores] if load is None else [scores, load]
                masked = mask(runtime, *entered)
                score, payload = (masked, None) if load is None else masked
            score = _padded(runtime, score, groups * size, -(1 << 61)).map(
                lambda a, n=groups: a.reshape(*a.shape[:-1], n, -1)
            )
            with runtime.step("compare"):
                wins = _wins(runtime, score)
            factors = [score]
            if payload is None:
                ones = np.ones((groups, size), dtype=np.uint32)
                factors.append(unmasked(runtime, ones, Z32))
            else:
                spread = _padded(runtime, payload, groups * size, 0).map(
                    lambda a, n=groups: a.reshape(len(a), n, -1)
                )
                factors += [spread.map(lambda a, q=q: a[q]) for q in range(spread.shape[0])]
            with runtime.step("select"):
                selection = lookup(runtime, wins, factors, size=lookup_size(size - 1))
                won = (np.arange(lookup_size(size - 1)) == size - 1).astype(np.int64)
                picked = [selection.pick(won, i) for i in range(len(factors))]
            scores = picked[0].sum(1)
            if payload is None:
                width = groups * size
                known = np.zeros((len(carried), width), dtype=np.int64)
                known[:, : carried.shape[1]] = carried
                load = stack([(picked[1] * row.reshape(groups, size)).sum(1) for row in known])
            else:
                load = stack([part.sum(1) for part in picked[1:]])
    assert load is not None
    return load[:, 0]


def best_cost(candidates: int, carried: int, n_parties: int) -> Cost:
    """Return the cost of `best`."""
    cost, left, first = Cost(), candidates, True
    for size in group_sizes(candidates):
        groups = -(-left // size)
        shapes = [((left,), Z64)] + ([] if first else [((carried, left), Z32)])
        cost += OpenMasked.cost(shapes, n_parties)
        pairs = groups * size * (size - 1) // 2
        cost += CountReached.cost(pairs, 1, SCORE_WIDTH, DIGIT_BITS, n_parties)
        factors = [(Z64, 1)] + [(Z32, 1)] * (1 if first else carried)
        cost += Lookup.cost((groups, size), lookup_size(size - 1), factors, n_parties)
        left, first = groups, False
    return cost


def _wins(runtime: Runtime, score: Masked) -> Share:
    """Count each candidate's wins in its group, over Z8: (groups, size)."""
    groups, size = score.shape
    pairs = np.array(list(combinations(range(size), 2)), dtype=np.intp).reshape(-1, 2)
    coarse = shifted(score, 64 - SCORE_WIDTH)
    first, second = pairs[:, 0], pairs[:, 1]
    difference = _difference(coarse, first, second)
    reached = count_reached(runtime, difference, [0], SCORE_WIDTH)
    if not reached.known:
        return Share.unknown((groups, size), Z8)
    wins = np.zeros((size, groups), dtype=np.uint8)
    np.add.at(wins, first, reached.part.T)
    np.subtract.at(wins, second, reached.part.T)
    if runtime.index == 0:
        wins += np.arange(size, dtype=np.uint8)[:, None]  # second loses what first does not win
    return Share(np.ascontiguousarray(wins.T), Z8)


def _difference(x: Masked, first: np.ndarray, second: np.ndarray) -> Masked:
    public = None if x.public is None else x.public[:, first] - x.public[:, second]
    if x.mask.value is None:
        shape = (x.shape[0], len(first))
        return Masked(x.ring, Mask(shape), public)
    value = x.mask.value[:, first] - x.mask.value[:, second]
    return Masked(x.ring, Mask(value.shape, value=value), public)


def _padded(runtime: Runtime, x: Masked, length: int, filling: int) -> Masked:
    """Append public numbers, which have no mask."""
    missing = length - x.shape[-1]
    if not missing:
        return x
    shape = (*x.shape[:-1], missing)
    fill = np.full(shape, filling).astype(x.ring.dtype)
    return combine(lambda *both: np.concatenate(both, axis=-1), x, unmasked(runtime, fill, x.ring))
