"""Where what was computed cannot be, training ends and says so, whatever the protocol."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.errors import ResultError
from privet.runtime.launcher import simulate
from privet.runtime.runtime import Runtime
from tests.boosting.test_federation import trial

PLACES = {
    "masked": "privet.suites.masked.suite.leaf_values",
    "paper": "privet.suites.paper.table.leaf_values",
}


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_leaf_value_beyond_all_bounds(
    protocol: str, task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One participant's share of one leaf is off, by just more than the largest leaf value."""
    program, inputs = trial([2, 1, 2], 0, protocol, task=task)
    leaf_values = _function(PLACES[protocol])
    largest = float(program.plan.largest_leaf)
    bits = program.federation.suite.encoding.fraction_bits

    def off_by(much: float) -> Any:
        def patched(runtime: Runtime, *arguments: Any) -> Share:
            found: Share = leaf_values(runtime, *arguments)
            if runtime.index != 1:
                return found
            error = np.zeros(found.shape, dtype=np.int64)
            error[2] = round(sign * much * 2**bits)
            return Share(found.part + error.view(np.uint64), Z64)

        return patched

    monkeypatch.setattr(PLACES[protocol], off_by(3 * largest))
    with pytest.raises(ResultError, match=rf"leaf values of {largest:g} and more in size: a share"):
        simulate(program, 3, inputs)
    monkeypatch.setattr(PLACES[protocol], off_by(largest / 2))
    simulate(program, 3, inputs)


def _function(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def test_a_choice_of_no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged share of the tournament's outcome."""
    place = "privet.suites.masked.table.best"
    best = _function(place)

    def damaged(runtime: Runtime, *arguments: Any) -> Share:
        found: Share = best(runtime, *arguments)
        if runtime.index != 0:
            return found
        return Share(found.part + found.ring.array([1 << 20] + [0] * (len(found) - 1)), found.ring)

    monkeypatch.setattr(place, damaged)
    program, inputs = trial([2, 1, 2], 0, "masked")
    with pytest.raises(ResultError, match="shares of a split feature do not add up to one of 5"):
        simulate(program, 3, inputs)
