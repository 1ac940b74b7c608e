"""Statistical tests of uniformity for the views of participants; no element is left out.

There are two tests for each group of elements. Every *bit* of the ring must be 1 about half of the
time; 64 elements suffice to find a constant bit. In groups of at least 1,280 elements, every *byte*
must have each of its 256 values about equally often, by chi-square.

A group contains the elements of one step; small groups are joined with the next of their ring. Each
test rejects uniform elements with a probability of 10^-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, norm

from privet.arithmetic.rings import BIT_RING, Ring, RingArray

FALSE_ALARM = 1e-12
MIN_SIZE = 64
MIN_SIZE_FOR_BYTES = 1280


class Group(NamedTuple):
    """Elements of one ring that are tested together, and their steps."""

    steps: tuple[str, ...]
    ring: Ring
    elements: RingArray

    def __str__(self) -> str:
        return f"{len(self.elements)} of {self.ring.name} in {', '.join(self.steps)}"


def groups(values: Iterable[tuple[str, Ring, RingArray]]) -> list[Group]:
    """Return all elements, in groups that are large enough to be tested if possible."""
    by_step: dict[tuple[str, Ring], list[RingArray]] = {}
    for step, ring, array in values:
        by_step.setdefault((step, ring), []).append(ring.reduce_modulus(array).reshape(-1))
    joined: list[Group] = []
    for ring in dict.fromkeys(ring for _, ring in by_step):
        members = [
            Group((step,), ring, np.concatenate(arrays))
            for (step, step_ring), arrays in by_step.items()
            if step_ring is ring
        ]
        joined += _join_small(sorted(members, key=lambda group: len(group.elements)))
    return [group for group in joined if len(group.elements)]


def _join_small(members: list[Group]) -> list[Group]:
    """Join groups, smallest first, until each is large enough."""
    joined: list[Group] = []
    for group in members:
        if joined and len(joined[-1].elements) < MIN_SIZE:
            last = joined.pop()
            elements = np.concatenate([last.elements, group.elements])
            group = Group((*last.steps, *group.steps), group.ring, elements)  # noqa: PLW2901
        joined.append(group)
    return joined


def untested(tested: Iterable[Group]) -> list[str]:
    """Return the rings and steps of groups that are too small to be tested."""
    return [
        f"{group.ring.name} in {', '.join(group.steps)}"
        for group in tested
        if len(group.elements) < MIN_SIZE
    ]


def unfair(group: Group) -> list[str]:
    """Return an alarm for each bit and byte of a group that is not uniform."""
    alarms = []
    count = len(group.elements)
    width = 8 if group.ring is BIT_RING else group.ring.bits
    limit = norm.isf(FALSE_ALARM / 2) * sqrt(count) / 2
    for bit in range(width):
        ones = int(((group.elements >> group.elements.dtype.type(bit)) & 1).sum())
        if abs(ones - count / 2) > limit:
            alarms.append(f"bit {bit} is 1 in {ones} of {group}")
    if count >= MIN_SIZE_FOR_BYTES:
        words = np.ascontiguousarray(group.elements).view(np.uint8).reshape(count, -1)
        for position in range(width // 8):  # of 36 bits, the last 4 have been tested above
            counts = np.bincount(words[:, position], minlength=256)
            expected = count / 256
            statistic = ((counts - expected) ** 2 / expected).sum()
            if statistic > chi2.isf(FALSE_ALARM, 255):
                alarms.append(f"byte {position} has chi-square {statistic:.0f} in {group}")
    return alarms
