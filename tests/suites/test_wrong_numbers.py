"""Where what was computed cannot be, training ends and says so, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.boosting.trainer import Trial
from privet.errors import ResultError
from privet.gates.masked import Masked
from privet.gates.sigmoid_series import LARGEST_SCORE
from privet.runtime.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.suites.paper.table import largest_leaf
from tests.boosting.test_federation import trial

PLACES = {
    "masked": "privet.suites.masked.suite.leaf_values",
    "paper": "privet.suites.paper.table.leaf_values",
}


def bound_of(program: Trial) -> float:
    """The largest leaf value of a training that passes."""
    if program.federation.protocol == "paper":
        return largest_leaf(program.plan)
    return min(float(program.plan.largest_leaf), LARGEST_SCORE)


def damaging(place: str, change: Callable[[Share], Share]) -> Callable[..., Any]:
    """The function at a place, with one participant's share of the leaf values changed."""
    original = _function(place)

    def patched(runtime: Runtime, *arguments: Any) -> Any:
        found = original(runtime, *arguments)
        if runtime.index != 1:
            return found
        if isinstance(found, Share):
            return change(found)
        return found._replace(values=change(found.values))

    return patched


def off_by(much: int) -> Callable[[Share], Share]:
    """Add so many units to one leaf value."""

    def change(share: Share) -> Share:
        error = np.zeros(share.size, dtype=np.uint64)
        error[2] = much % (1 << 64)
        return Share(share.part + error.reshape(share.shape), Z64)

    return change


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_leaf_value_beyond_all_bounds(
    protocol: str, task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One participant's share of one leaf is off, by just more than the largest leaf value."""
    program, inputs = trial([2, 1, 2], 0, protocol, task=task, tables=1)
    place, largest = PLACES[protocol], bound_of(program)
    unit = 2**program.federation.suite.encoding.fraction_bits
    with monkeypatch.context() as patch:
        patch.setattr(place, damaging(place, off_by(round(sign * 3 * largest * unit))))
        complaint = rf"leaf values of {largest:g} and more in size: nothing of this table is kept"
        with pytest.raises(ResultError, match=complaint):
            simulate(program, 3, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(place, damaging(place, off_by(round(sign * largest / 2 * unit))))
        simulate(program, 3, inputs)


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("bit", [35, 36, 40, 47, 55, 62, 63])
def test_a_flipped_bit_of_a_leaf_value(
    protocol: str, bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any upper bit of one participant's share, which makes a leaf value far too large."""
    program, inputs = trial([2, 1, 2], 0, protocol, task="regression", tables=1)
    monkeypatch.setattr(PLACES[protocol], damaging(PLACES[protocol], off_by(1 << bit)))
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("bit", [32, 33, 34, 35])
def test_a_flipped_bit_of_a_leaf_s_sum(
    task: str, bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of first derivatives: the quotient would not fit, and may look as if it did."""
    place = PLACES["masked"]
    original = _function(place)

    def patched(runtime: Runtime, plan: Any, scales: Any, g: Share, h: Share) -> Any:
        if runtime.index == 1:
            error = g.ring.zeros(g.shape)
            error.reshape(-1)[1] = 1 << bit
            g = Share(g.part + error, g.ring)
        return original(runtime, plan, scales, g, h)

    monkeypatch.setattr(place, patched)
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=1)
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


def test_scores_beyond_what_the_sigmoid_is_right_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody's scores are moved after the first table, to just below the bound and above it."""
    place = "privet.suites.masked.samples.Samples.add_leaves"
    original = _function("privet.suites.masked.samples.Samples").add_leaves

    def moved(to: float) -> Any:
        def patched(self: Any, scores: Share, values: Masked) -> Share:
            start = np.zeros(scores.shape, dtype=np.uint64)
            start[0, 7] = round(to * 2**26) % (1 << 64)
            found: Share = original(self, scores, values)
            added: Share = self._runtime.public(start, Z64)
            return found + added

        return patched

    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=2)
    for to in (20.0, -20.0):
        monkeypatch.setattr(place, moved(to))
        with pytest.raises(ResultError, match=f"scores of {LARGEST_SCORE} and more in size"):
            simulate(program, 3, inputs)
    for to in (10.0, -10.0):
        monkeypatch.setattr(place, moved(to))
        simulate(program, 3, inputs)


def _function(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def test_a_choice_of_no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged share of the tournament's outcome."""
    place = "privet.suites.masked.cuts.best"
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
