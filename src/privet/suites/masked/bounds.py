"""Numbers that must lie within bounds, or training ends: nothing is built on what cannot be.

What is to be checked is compared as it comes, and revealed once a table: how many comparisons came
out as they must. All of them do, unless a share was damaged or the data ask for more than the
protocol can compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from privet.arithmetic.rings import Z8
from privet.arithmetic.shares import Share, concatenate
from privet.errors import ResultError
from privet.gates.comparison import Comparison
from privet.gates.gate import Later, alone, together
from privet.gates.masked import Masked
from privet.gates.tell import tell_all
from privet.gates.threshold import compare, one, step, usual_digits
from privet.runtime.runtime import Runtime

_Opened = TypeVar("_Opened")
_GROUP = 128  # comparisons are counted over Z8


@dataclass(frozen=True)
class Counted:
    """How many comparisons of each group came out as they must, and what they were about."""

    counts: Share
    comparisons: int
    what: str


class Bounds:
    """What is checked in one table."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.counted: list[Counted] = []
        """Of all that was compared: by ourselves, or by those who worked for us."""

    def check(self, values: Masked, width: int, what: str, beside: Later[_Opened]) -> _Opened:
        """Compare masked values with zero, on the leading bits of their ring: none is below.

        With what else is opened then, which is returned.
        """
        leading = _leading(values, width)
        reached, others = together(self._runtime, _comparing(leading, width), beside)
        self._count(reached, leading, what)
        return others

    def check_alone(self, values: Masked, width: int, what: str) -> None:
        """Do the same with nothing else to be opened then."""
        leading = _leading(values, width)
        self._count(alone(self._runtime, _comparing(leading, width)), leading, what)

    def _count(self, reached: Comparison, leading: Masked, what: str) -> None:
        runtime = self._runtime
        within = step(runtime, reached, one(runtime, leading.shape, Z8), factors=(0, 1))
        ends = [*range(_GROUP, within.size, _GROUP), within.size]
        self.counted.append(Counted(within.sum_slices(ends), within.size, what))

    def settle(self, beside: Later[_Opened]) -> _Opened:
        """Reveal what was compared; raise ResultError if something is out of its bounds.

        With what else is opened then, which is returned.

        Reveals: how many numbers are within their bounds: all of them, or training ends here.
        """
        counted, self.counted = self.counted, []
        counts = concatenate([each.counts for each in counted])
        telling = tell_all.later(counts, what="numbers within bounds")
        found, others = together(self._runtime, telling, beside)
        if found is None:
            return others
        start = 0
        for each in counted:
            end = start + len(each.counts)
            if int(np.sum(found[start:end], dtype=np.int64)) != each.comparisons:
                raise ResultError(each.what)
            start = end
        return others


def _leading(values: Masked, width: int) -> Masked:
    return values.map(lambda a: a.reshape(-1)).high_bits(values.ring.bits - width)


def _comparing(leading: Masked, width: int) -> Later[Comparison]:
    return compare.later(leading, thresholds=(0,), width=width, digits=usual_digits(width))
