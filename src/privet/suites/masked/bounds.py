"""Numbers that must lie within bounds, or training ends: nothing is built on what cannot be.

What is to be checked is compared as it comes, and revealed once a table: how many comparisons came
out as they must. All of them do, unless a share was damaged or the data ask for more than the
protocol can compute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.arithmetic.rings import integers_modulo
from privet.arithmetic.shares import Share, concatenate, stack
from privet.errors import ResultError
from privet.gates.masked import Masked, combine
from privet.gates.threshold import count_reached
from privet.runtime.runtime import Runtime
from privet.suites.masked.scales import COMPARED_BITS

_GROUP = 128  # comparisons are counted over Z8


@dataclass(frozen=True)
class _Counted:
    """How many comparisons of each group came out as they must, and what they were about."""

    counts: Share
    comparisons: int
    what: str


class Bounds:
    """What is checked in one table."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._counted: list[_Counted] = []

    def check_sizes(self, *checks: tuple[Masked, int, str]) -> None:
        """Compare masked values with bounds on their size, all of them in one opening.

        As values, the bound, and what they are. Each is compared on the leading 48 bits of its
        ring, or as many as the smallest has; a bound may be passed by a unit of these.
        """
        width = min(COMPARED_BITS, *(values.ring.bits for values, *_ in checks))
        ring, sides = integers_modulo(width), []
        for values, bound, _ in checks:
            drop = values.ring.bits - width
            flat = values.map(lambda a: a.reshape(-1))
            both = flat.map(lambda a: stack([a, -a])) + (bound + (1 << drop))
            sides.append(both.high_bits(drop).map(lambda a: a.reshape(-1).to_ring(ring)))
        within = count_reached(
            self._runtime, combine(concatenate, *sides), thresholds=(0,), width=width
        )
        start = 0
        for side, (*_, what) in zip(sides, checks, strict=True):
            self._keep(within[start : start + side.shape[0]], what)
            start += side.shape[0]

    def check_signs(self, values: Masked, width: int, what: str) -> None:
        """Compare masked values with zero, on the leading bits of their ring."""
        leading = values.map(lambda a: a.reshape(-1)).high_bits(values.ring.bits - width)
        self._keep(count_reached(self._runtime, leading, thresholds=(0,), width=width), what)

    def _keep(self, within: Share, what: str) -> None:
        ends = [*range(_GROUP, within.size, _GROUP), within.size]
        self._counted.append(_Counted(within.sum_slices(ends), within.size, what))

    def settle(self) -> None:
        """Reveal what was compared; raise ResultError if something is out of its bounds.

        Reveals: how many numbers are within their bounds: all of them, or training ends here.
        """
        counted, self._counted = self._counted, []
        everybody = list(range(self._runtime.n_parties))
        counts = concatenate([each.counts for each in counted])
        found = self._runtime.reveal(counts, everybody, "numbers within bounds")
        if found is None:
            return
        start = 0
        for each in counted:
            end = start + len(each.counts)
            if int(np.sum(found[start:end], dtype=np.int64)) != each.comparisons:
                raise ResultError(each.what)
            start = end
