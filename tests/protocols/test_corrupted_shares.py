"""Corrupted shares and numbers out of range end training, with both protocols."""

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


def add_error(share: Share, units: int) -> Share:
    """Add some units to one element of a share."""
    error = share.ring.zeros((share.size,))
    error[2] = share.ring.to_elements(units)
    return Share(share.part + error.reshape(share.shape), share.ring)


def corrupt_paper_leaves(units: int) -> Callable[..., Any]:
    """Return a patch that corrupts one participant's share of a leaf value of the paper."""
    original = _function(PAPER_LEAVES)

    def patched(runtime: Runtime, *arguments: Any) -> Any:
        leaves = original(runtime, *arguments)
        return add_error(leaves, units) if runtime.index == 1 else leaves

    return patched


def corrupt_leaf_sums(units: Callable[[Any], int]) -> Callable[..., Any]:
    """Return a patch that corrupts one participant's share of a leaf's sum of gradients."""
    original = SplitSearch._leaf_sums

    def patched(self: Any, one_hot_split: MaskedValue, sums: Any) -> Share:
        leaf_sums = original(self, one_hot_split, sums)
        if sums is self._gradient_sums and self._runtime.index == 1:
            return add_error(leaf_sums, units(self._scales))
        return leaf_sums

    return patched


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_leaf_value_out_of_range_ends_training(
    task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `paper`, an error slightly above the bound in a share ends training; less does not."""
    program, inputs = trial([2, 1, 2], 0, "paper", task=task, tables=1)
    largest = compute_max_leaf_value(program.plan)
    unit = 2**program.training_spec.protocol_type.encoding.fraction_bits
    with monkeypatch.context() as patch:
        patch.setattr(PAPER_LEAVES, corrupt_paper_leaves(round(sign * 3 * largest * unit)))
        message = rf"leaf values of {largest:g} and more in size: nothing of this table is kept"
        with pytest.raises(ResultError, match=message):
            simulate(program, 3, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(PAPER_LEAVES, corrupt_paper_leaves(round(sign * largest / 2 * unit)))
        simulate(program, 3, inputs)


@pytest.mark.parametrize("bit", [35, 36, 40, 47, 55, 62, 63])
def test_flipped_bit_of_leaf_value_ends_training(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `paper`, any upper bit of one participant's share makes a leaf value far too large."""
    program, inputs = trial([2, 1, 2], 0, "paper", task="regression", tables=1)
    monkeypatch.setattr(PAPER_LEAVES, corrupt_paper_leaves(1 << bit))
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sign", [1, -1])
def test_leaf_sum_out_of_range_ends_training(
    task: str, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `masked`, |G| is at most the largest weight times y.

    The largest weight of a classification is set to 2, which no leaf of its first table reaches:
    there g is 1/2 and h is 1/4.
    """
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=1)
    original = Scales.from_plan

    def with_smaller_weight(cls: Any, plan: Any) -> Scales:
        return replace(original(plan), max_leaf_weight=Fraction(2))

    if task == "classification":
        monkeypatch.setattr(Scales, "from_plan", classmethod(with_smaller_weight))
    scales = Scales.from_plan(program.plan)
    simulate(program, 3, inputs)
    error = sign * scales.units.max_gradient_sum
    monkeypatch.setattr(MASKED_LEAF_SUMS, corrupt_leaf_sums(lambda _: error))
    largest = float(scales.max_leaf_weight * scales.learning_rate)
    message = rf"leaf values of {largest:g} and more in size: nothing of this table is kept"
    with pytest.raises(ResultError, match=message):
        simulate(program, 3, inputs)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("position", [1, 2])
def test_flipped_bit_of_leaf_sum_ends_training(
    task: str, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flip one of the top bits of the ring of gradients, which no sum uses."""
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=1)
    corrupt = corrupt_leaf_sums(lambda scales: 1 << (scales.units.g_ring.bits - position))
    monkeypatch.setattr(MASKED_LEAF_SUMS, corrupt)
    with pytest.raises(ResultError, match="leaf values of"):
        simulate(program, 3, inputs)


def test_squares_that_do_not_fit_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of a classification must fit; with a slightly larger bound they do."""
    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=1)
    original = Scales.from_plan

    def with_smaller_bound(divisor: int) -> Any:
        def from_plan(cls: Any, plan: Any) -> Scales:
            scales: Scales = original(plan)
            return replace(scales, max_score=scales.max_score / divisor)

        return classmethod(from_plan)

    monkeypatch.setattr(Scales, "from_plan", with_smaller_bound(1 << 12))
    # An earlier level can fail before checks are revealed: comparing noise can give no feature.
    message = (
        "(scores that do not fit|split feature do not add up .*): nothing of this table is kept"
    )
    with pytest.raises(ResultError, match=message):
        simulate(program, 3, inputs)
    monkeypatch.setattr(Scales, "from_plan", with_smaller_bound(4))
    simulate(program, 3, inputs)


@pytest.mark.parametrize("l2", [100.0, 1000.0, 10000.0])
def test_large_l2_passes_range_checks(l2: float) -> None:
    """Squares are far smaller than the ring they are opened in, and checked on few bits."""
    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=2, l2=l2)
    simulate(program, 3, inputs)


def test_scores_beyond_sigmoid_range_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move one score after the first table to below the bound, and above it."""
    target = "privet.protocols.masked.rows.TrainingRows.look_up_leaf_values"
    original = _function("privet.protocols.masked.rows.TrainingRows").look_up_leaf_values

    def move_score(shift: float) -> Any:
        def patched(self: Any, values: MaskedValue, ring: Ring) -> Share:
            reached: Share = original(self, values, ring)
            shifts = reached.ring.zeros(reached.shape)
            shifts[0, 7] = reached.ring.to_elements(round(shift * 2**26))
            added: Share = self._runtime.share_public(shifts, reached.ring)
            return reached + added

        return patched

    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=2)
    for shift in (20.0, -20.0):
        monkeypatch.setattr(target, move_score(shift))
        with pytest.raises(ResultError, match=f"scores of {MAX_SCORE} and more in size"):
            simulate(program, 3, inputs)
    for shift in (10.0, -10.0):
        monkeypatch.setattr(target, move_score(shift))
        simulate(program, 3, inputs)


def _function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def test_invalid_argmax_result_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupted share of the finalists' carried values leaves no winner."""
    target = "privet.protocols.masked.split_search.run_argmax"
    original = _function(target)

    def corrupt(runtime: Runtime, *arguments: Any) -> Share:
        finalists: Share = original(runtime, *arguments)
        if runtime.index != 0:
            return finalists
        error = finalists.ring.zeros(finalists.shape)
        error[0] = 1 << 20
        return Share(finalists.part + error, finalists.ring)

    monkeypatch.setattr(target, corrupt)
    program, inputs = trial([2, 1, 2], 0, "masked")
    with pytest.raises(ResultError, match="shares of a split feature do not add up to one of 5"):
        simulate(program, 3, inputs)
