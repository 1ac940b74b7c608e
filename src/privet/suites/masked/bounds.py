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
from privet.gates.gate import Later, together
from privet.gates.masked import Masked
from privet.gates.tell import tell_all
from privet.gates.threshold import compare, one, step, usual_digits
from privet.runtime.runtime import Runtime

_Opened = TypeVar("_Opened")
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

    def check(self, values: Masked, width: int, what: str, beside: Later[_Opened]) -> _Opened:
        """Compare masked values with zero, on the leading bits of their ring: none is below.

        With what else is opened then, which is returned.
        """
        runtime = self._runtime
        leading = values.map(lambda a: a.reshape(-1)).high_bits(values.ring.bits - width)
        comparing = compare.later(leading, thresholds=(0,), width=width, digits=usual_digits(width))
        reached, others = together(runtime, comparing, beside)
        within = step(runtime, reached, one(runtime, leading.shape, Z8), factors=(0, 1))
        ends = [*range(_GROUP, within.size, _GROUP), within.size]
        self._counted.append(_Counted(within.sum_slices(ends), within.size, what))
        return others

    def settle(self, beside: Later[_Opened]) -> _Opened:
        """Reveal what was compared; raise ResultError if something is out of its bounds.

        With what else is opened then, which is returned.

        Reveals: how many numbers are within their bounds: all of them, or training ends here.
        """
        counted, self._counted = self._counted, []
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
