"""Where what was computed cannot be, training ends and says so, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest

from privet.arithmetic.rings import Ring
from privet.arithmetic.shares import Share
from privet.errors import ResultError
from privet.gates.masked.functions import MAX_SCORE
from privet.gates.masked.value import MaskedValue
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.split_search import SplitSearch
from privet.protocols.paper.protocol import compute_max_leaf_value
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from tests.boosting.test_federation import trial

PAPER_LEAVES = "privet.protocols.paper.protocol.compute_leaf_values"
MASKED_LEAF_SUMS = "privet.protocols.masked.split_search.SplitSearch._leaf_sums"


def off_by(share: Share, much: int) -> Share:
    """Add so many units to one element."""
    error = share.ring.zeros((share.size,))
    error[2] = share.ring.to_elements(much)
    return Share(share.part + error.reshape(share.shape), share.ring)


def damaged_paper_leaves(much: int) -> Callable[..., Any]:
    """The paper's leaf values, with one participant's share of one of them changed."""
    original = _function(PAPER_LEAVES)

    def patched(runtime: Runtime, *arguments: Any) -> Any:
        found = original(runtime, *arguments)
        return off_by(found, much) if runtime.index == 1 else found

    return patched


def damaged_leaf_sums(much: Callable[[Any], int]) -> Callable[..., Any]:
    """Leaves' sums of first derivatives, with one participant's share of one of them changed."""
    original = SplitSearch._leaf_sums

    def patched(self: Any, chosen: MaskedValue, sums: Any) -> Share:
        found = original(self, chosen, sums)
        first = sums is self._gradient_sums
        return off_by(found, much(self._scales)) if first and self._runtime.index == 1 else found

    return patched


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_leaf_value_beyond_all_bounds(
    task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the paper's protocol: one participant's share of one leaf is off, by just too much."""
    program, inputs = trial([2, 1, 2], 0, "paper", task=task, tables=1)
    largest = compute_max_leaf_value(program.plan)
    unit = 2**program.training_spec.protocol_type.encoding.fraction_bits
    with monkeypatch.context() as patch:
        patch.setattr(PAPER_LEAVES, damaged_paper_leaves(round(sign * 3 * largest * unit)))
        complaint = rf"leaf values of {largest:g} and more in size: nothing of this table is kept"
        with pytest.raises(ResultError, match=complaint):
            simulate(program, 3, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(PAPER_LEAVES, damaged_paper_leaves(round(sign * largest / 2 * unit)))
        simulate(program, 3, inputs)


@pytest.mark.parametrize("bit", [35, 36, 40, 47, 55, 62, 63])
def test_a_flipped_bit_of_a_leaf_value(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the paper's: any upper bit of one participant's share makes it far too large."""
    program, inputs = trial([2, 1, 2], 0, "paper", task="regression", tables=1)
    monkeypatch.setattr(PAPER_LEAVES, damaged_paper_leaves(1 << bit))
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_leaf_s_sum_beyond_all_bounds(
    task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the masked one |G| is at most the largest weight times y. A classification's is set to
    2, which no leaf of its first table reaches: there g is 1/2 and h is 1/4."""
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=1)
    original = Scales.from_plan

    def lighter(cls: Any, plan: Any) -> Scales:
        return replace(original(plan), max_leaf_weight=Fraction(2))

    if task == "classification":
        monkeypatch.setattr(Scales, "from_plan", classmethod(lighter))
    scales = Scales.from_plan(program.plan)
    simulate(program, 3, inputs)
    most = sign * scales.units.max_gradient_sum
    monkeypatch.setattr(MASKED_LEAF_SUMS, damaged_leaf_sums(lambda _: most))
    largest = float(scales.max_leaf_weight * scales.learning_rate)
    complaint = rf"leaf values of {largest:g} and more in size: nothing of this table is kept"
    with pytest.raises(ResultError, match=complaint):
        simulate(program, 3, inputs)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("below", [1, 2])
def test_a_flipped_bit_of_a_leaf_s_sum(
    task: str, below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of first derivatives: the top bits of their ring, which no sum has."""
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=1)
    damage = damaged_leaf_sums(lambda scales: 1 << (scales.units.g_ring.bits - below))
    monkeypatch.setattr(MASKED_LEAF_SUMS, damage)
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


def test_squares_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classification whose scores are larger than there is room for; a little more will do."""
    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=1)
    original = Scales.from_plan

    def smaller(by: int) -> Any:
        def of(cls: Any, plan: Any) -> Scales:
            scales: Scales = original(plan)
            return replace(scales, max_score=scales.max_score / by)

        return classmethod(of)

    monkeypatch.setattr(Scales, "from_plan", smaller(1 << 12))
    # Or, at a level before they are told: what comes out of comparing nonsense may be no feature.
    words = "(scores that do not fit|split feature do not add up .*): nothing of this table is kept"
    with pytest.raises(ResultError, match=words):
        simulate(program, 3, inputs)
    monkeypatch.setattr(Scales, "from_plan", smaller(4))
    simulate(program, 3, inputs)


@pytest.mark.parametrize("l2", [100.0, 1000.0, 10000.0])
def test_much_l2_is_nothing_wrong(l2: float) -> None:
    """Squares are far below what they are opened in, and checked on few bits."""
    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=2, l2=l2)
    simulate(program, 3, inputs)


def test_scores_beyond_what_the_sigmoid_is_right_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody's scores are moved after the first table, to just below the bound and above it."""
    place = "privet.protocols.masked.rows.TrainingRows.look_up_leaf_values"
    original = _function("privet.protocols.masked.rows.TrainingRows").look_up_leaf_values

    def moved(to: float) -> Any:
        def patched(self: Any, values: MaskedValue, ring: Ring) -> Share:
            found: Share = original(self, values, ring)
            start = found.ring.zeros(found.shape)
            start[0, 7] = found.ring.to_elements(round(to * 2**26))
            added: Share = self._runtime.share_public(start, found.ring)
            return found + added

        return patched

    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=2)
    for to in (20.0, -20.0):
        monkeypatch.setattr(place, moved(to))
        with pytest.raises(ResultError, match=f"scores of {MAX_SCORE} and more in size"):
            simulate(program, 3, inputs)
    for to in (10.0, -10.0):
        monkeypatch.setattr(place, moved(to))
        simulate(program, 3, inputs)


def _function(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def test_a_choice_of_no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged share of what the finalists carry: nobody won."""
    place = "privet.protocols.masked.split_search.run_argmax"
    best = _function(place)

    def damaged(runtime: Runtime, *arguments: Any) -> Share:
        found: Share = best(runtime, *arguments)
        if runtime.index != 0:
            return found
        error = found.ring.zeros(found.shape)
        error[0] = 1 << 20
        return Share(found.part + error, found.ring)

    monkeypatch.setattr(place, damaged)
    program, inputs = trial([2, 1, 2], 0, "masked")
    with pytest.raises(ResultError, match="shares of a split feature do not add up to one of 5"):
        simulate(program, 3, inputs)
