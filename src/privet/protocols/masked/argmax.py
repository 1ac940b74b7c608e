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

from privet.arithmetic.rings import Z8, integers_modulo
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.gate import Later, alone, together
from privet.gates.masked.comparison import Comparison, compare, one, step, usual_digits
from privet.gates.masked.selection import lookup, lookup_size, veil
from privet.gates.masked.truncation import borrowing, exact_quotient
from privet.gates.masked.value import Lifted, Masked, mask
from privet.runtime.runtime import Runtime

CARRIED = integers_modulo(48)
"""What candidates carry; of a uniform number, one in 2^48 looks like it."""
_FINAL_DIGITS = 5  # fewer bits to veil with, where every one is multiplied with long numbers
# A delay is worth about as many comparisons as its 5 ms take bytes at 100 Mbit/s.
_ROUND_IN_PAIRS = 6000
_FINAL_PAIR = 4  # what a comparison of the last stage costs, in others
_LARGEST_GROUP = 128  # wins are counted over Z8
_GROUPS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)  # sizes to choose from

Indices = npt.NDArray[np.intp]
Sizes = tuple[int, ...]
"""The sizes of a stage's groups, which follow each other."""


@lru_cache(maxsize=64)
def stages(cuts: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Return the groups of every stage, of features with so many cuts: what costs least.

    First among the cuts of a feature, then among features; the last stage is one group.
    """
    counts = [count for count in cuts if count]
    features, largest = len(counts), max(counts)
    within: list[Sizes] = [(largest,), *((m, largest) for m in _GROUPS if m < largest)]
    among: list[Sizes] = [(), *((m,) for m in _GROUPS if m < features)]
    if features > _LARGEST_GROUP:
        among += product(_GROUPS, repeat=2)
    if largest == 1:
        within = [()]

    def of_final(sizes: Sizes) -> float:
        found = _among(features, sizes)
        return _cost(found) + (_FINAL_PAIR - 1) * _pairs(found[-1])

    own = min(within, key=lambda sizes: _cost(_within(counts, sizes)))
    return _stages(counts, own, min(among, key=of_final))


def _stages(counts: list[int], own: Sizes, more: Sizes) -> tuple[Sizes, ...]:
    """Return the groups for given largest sizes: among own cuts, then among features."""
    return (*_within(counts, own), *_among(len(counts), more))


def _within(counts: list[int], largest: Sizes) -> list[Sizes]:
    """Return the stages in which features' own cuts meet."""
    found: list[Sizes] = []
    for size in largest:
        groups = [_chunks(count, size) for count in counts]
        found.append(tuple(size for chunks in groups for size in chunks))
        counts = [len(chunks) for chunks in groups]
    return found


def _among(features: int, largest: Sizes) -> list[Sizes]:
    """Return the stages in which features meet, the last one too."""
    found: list[Sizes] = []
    for size in largest:
        found.append(_chunks(features, size))
        features = len(found[-1])
    return [*found, (features,)]


def _cost(groups: list[Sizes]) -> float:
    """Return what stages cost, in comparisons."""
    if any(max(sizes) > _LARGEST_GROUP for sizes in groups):
        return math.inf
    return sum(3 * _ROUND_IN_PAIRS + _pairs(sizes) for sizes in groups)


def _chunks(count: int, largest: int) -> Sizes:
    """Return a number as a sum of as few as will do, nearly equal ones."""
    parts = -(-count // largest)
    return tuple(count * (k + 1) // parts - count * k // parts for k in range(parts))


def _pairs(sizes: Sizes) -> int:
    return sum(size * (size - 1) // 2 for size in sizes)


def best(
    runtime: Runtime,
    scores: Share,
    groups: tuple[Sizes, ...],
    carried: npt.NDArray[np.int64],
    score_drop: int = 0,
) -> Share:
    """Return what the last stage's candidates carry, veiled but for that of the highest score.

    Of (C,) scores, which leave two bits of their ring, and (q, C) public numbers: (q, finalists).
    Ties go to the first. With `score_drop` one row more holds the scores themselves, without so
    many low bits, rounded exactly.

    Cost: three openings a stage, two in the last. Reveals: nothing yet.
    """
    load: Share | None = None
    with runtime.step("tournament"):
        for sizes in groups[:-1]:
            with runtime.step("enter"):
                score, *loads = mask(runtime, *([scores] if load is None else [scores, load]))
            with runtime.step("compare"):
                wins = _wins(runtime, score, sizes)
            factors: list[Masked | Lifted] = [score]
            if loads:
                factors += [loads[0][q] for q in range(len(carried))]
            else:
                factors.append(one(runtime, score.shape, CARRIED))
            with runtime.step("select"):
                ends, last = np.cumsum(sizes).tolist(), np.repeat(sizes, sizes) - 1
                selection = lookup(runtime, wins, factors, size=lookup_size(max(sizes) - 1))
                picked = [selection.where(last, i) for i in range(len(factors))]
                if not loads:
                    picked[1:] = [picked[1] * row for row in carried]
                scores = picked[0].sum_slices(ends)
                load = stack([part.sum_slices(ends) for part in picked[1:]])
        if load is None:
            load = runtime.public(CARRIED.array(carried), CARRIED)
        return _final(runtime, scores, load, score_drop)


def _wins(runtime: Runtime, score: Masked, sizes: Sizes) -> Share:
    """Count each candidate's wins in its group, over Z8."""
    first, second = _all_pairs(sizes)
    comparing = _comparing(_differences(score, first, second), usual_digits(score.ring.bits))
    reached = alone(runtime, comparing)
    bits = step(runtime, reached, one(runtime, first.shape, Z8), factors=(0, 1))
    if not bits.known:
        return Share.unknown(score.shape, Z8)
    wins = np.zeros(score.shape, dtype=np.uint8)
    np.add.at(wins, first, bits.part)
    np.subtract.at(wins, second, bits.part)
    if runtime.index == 0:
        wins += np.bincount(second, minlength=len(wins)).astype(np.uint8)
    return Share(wins, Z8)


def _final(runtime: Runtime, scores: Share, load: Share, score_drop: int = 0) -> Share:
    """Veil what all but the best carry, their scores among it if these are to be a row."""
    first, second = _all_pairs((scores.size,))
    if not len(first) and not score_drop:
        return load
    with runtime.step("enter"):
        (score,) = mask(runtime, scores)
    with runtime.step("compare"):
        comparing = _comparing(_differences(score, first, second), _FINAL_DIGITS)
        if score_drop:
            # By half a unit, so that it is the nearest one, and what was rounded below zero is not.
            raised = score + (1 << (score_drop - 1))
            reached, borrowed = together(runtime, comparing, borrowing(raised, score_drop))
            rounded = exact_quotient(runtime, raised, score_drop, borrowed).to_ring(CARRIED)
            load = concatenate([load, rounded.reshape(1, -1)])
        else:
            reached = alone(runtime, comparing)
        if not len(first):
            return load
        veils = veil(runtime, reached[0], rows=len(load), ring=CARRIED)
    if not load.known:
        return load
    carried = load.part.copy()
    for veiled, candidates in zip(veils.part, (first, second), strict=True):
        np.add.at(carried.T, candidates, veiled.T)
    return Share(carried, CARRIED)


def _differences(score: Masked, first: Indices, second: Indices) -> Masked:
    """Return by how much the scores of some candidates exceed those of others."""
    return score.map(lambda x: x[first] - x[second])


def _comparing(differences: Masked, digits: int) -> Later[Comparison]:
    """Find, with an opening, which differences are at least zero."""
    width = differences.ring.bits
    return compare.later(differences, thresholds=(0,), width=width, digits=digits)


@lru_cache(maxsize=16)
def _all_pairs(sizes: Sizes) -> tuple[Indices, Indices]:
    """Return the candidates of all pairs of all groups, those that come first and the others."""
    pairs: list[tuple[int, int]] = []
    start = 0
    for size in sizes:
        pairs += combinations(range(start, start + size), 2)
        start += size
    found = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]
