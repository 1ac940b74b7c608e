"""Three dealers, none of whom knows a mask, derive the same correlations as a single dealer.

Tested are whole training and prediction runs, and every gate with more shapes and rings than these
use: to the last bit, except sines and cosines, which can be off by a unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z1, Z8, Z16, Z36, Z64, get_integer_ring
from privet.arithmetic.shares import ReplicatedElements, Share
from privet.gates.masked.comparison import choose_digit_count, compare, multiply_by_step
from privet.gates.masked.polynomial import polynomial, square_lifted
from privet.gates.masked.routing import look_up_leaves, route_rows
from privet.gates.masked.selection import blind_conditionally, look_up, select
from privet.gates.masked.truncation import reduce_ring, round_exactly
from privet.gates.masked.value import LiftedValue, MaskedValue, lift, mask, mask_value
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from tests.privacy.cases import ALL_TERMS, NOISE_RISES, THREE, prediction, training
from tests.runtime.replicated_dealers import check, deal, whole


def count_sent_bytes(dealers: list[Any]) -> int:
    return sum(dealer.meter.sum_traffic("online").sent for dealer in dealers)


@pytest.mark.parametrize("task", ["regression", "classification", THREE])
def test_training_run(task: str) -> None:
    """With all optional outputs; dealers send as many bytes as are counted."""
    options: dict[str, Any] = dict(ALL_TERMS)
    if task != THREE:
        options["monotone"] = NOISE_RISES
    program, _ = training("masked", task, 3, 0, tables=2, **options)
    notes, dealers = deal(lambda dealer: program(dealer, None), 3)
    counts = check(notes)
    assert {"compare", "lift", "step", "shrink", "series", "veil", "histogram"} <= set(counts)
    counter = CostCounter(3, n_dealers=3)
    program(counter, None)
    assert count_sent_bytes(dealers) == counter.total.dealer_bytes > 0


def test_weighted_training_run() -> None:
    chosen = {"subsample": 0.7, "colsample": 0.7, "min_child_weight": 2.0, "min_gain": 0.1}
    program, _ = training("masked", "classification", 3, 0, tables=2, weighted=True, chosen=chosen)
    notes, dealers = deal(lambda dealer: program(dealer, None), 3)
    check(notes)
    counter = CostCounter(3, n_dealers=3)
    program(counter, None)
    assert count_sent_bytes(dealers) == counter.total.dealer_bytes


@pytest.mark.parametrize("explain", [None, "feature"])
def test_prediction_run(explain: Any) -> None:
    program, _ = prediction("masked", 3, 0, 1, explain=explain)
    notes, _ = deal(lambda dealer: program(dealer, None), 3)
    assert {"leaf lookup", "round off"} <= set(check(notes))


@pytest.mark.parametrize("s_holder", range(3))
def test_gates_with_other_shapes_and_rings(s_holder: int) -> None:
    """Several outputs, other rings, tables of all sizes, and products of three masks."""

    def body(dealer: Dealer) -> None:
        for ring in (Z16, Z36, Z64):
            x, goes_right = mask(dealer, Share.unknown((3, 9), ring), Share.unknown((9,), Z1))
            route_rows(dealer, goes_right, x, x.map(lambda a: a.reduce_to_ring(Z16)))
            select(dealer, x.map(lambda a: a[:, 0]), x)
            square_lifted(dealer, lift(dealer, x, shift=3, ring=Z36))
            for depth in (1, 3):
                leaves = Share.unknown((3, 1 << depth), ring)
                values, bits = mask(dealer, leaves, Share.unknown((depth, 9), Z1))
                look_up_leaves(dealer, bits, values)
        for size in (1, 2, 16, 128):
            factors: list[MaskedValue | LiftedValue] = [x[0], lift(dealer, x[1], shift=3)]
            look_up(dealer, Share.unknown((9,), Z8), factors, size=size)
        lifted = [lift(dealer, v) for v in mask(dealer, *[Share.unknown((9,), Z16)] * 3)]
        polynomial(dealer, lifted, [(5, (0, 0, 1)), (-3, (0, 1, 2)), (7, (2,)), (2, (1, 2, 2, 2))])
        for low_bits in (1, 6, 8):
            round_exactly(dealer, Share.unknown((9,), Z36), dropped_bits=low_bits)
        reduce_ring(
            dealer, Share.unknown((9,), Z64), dropped_bits=(20,), rings=(get_integer_ring(27),)
        )

    def program(dealer: Dealer) -> None:
        with dealer.step("table", s_holder):
            body(dealer)

    notes, _ = deal(program)
    counts = check(notes)
    assert counts["keep"] == 9
    assert counts["lookup"] == 8


@pytest.mark.parametrize("s_holder", range(3))
@pytest.mark.parametrize("window", ["all", "high", "low"])
@pytest.mark.parametrize("bits", [20, 27, 36])
def test_comparisons(s_holder: int, window: str, bits: int) -> None:
    """Of all bits of a mask, its high ones and its low ones, with one threshold and several."""

    def program(dealer: Dealer) -> None:
        for thresholds in ((0,), (1, 5, 9)):
            with dealer.step("table", s_holder):
                masked = mask_value(dealer, Share.unknown((50,), get_integer_ring(bits)))
                value, width = masked, bits
                if window == "high":
                    value, width = masked.drop_low_bits(5), bits - 5
                if window == "low":
                    value, width = masked.keep_low_bits(6), 7
                digits = choose_digit_count(width)
                reached = compare(dealer, value, thresholds=thresholds, width=width, digits=digits)
            # Comparison bits are used in another table, where the dealers have other roles.
            with dealer.step("table", s_holder + 1):
                factors = tuple(range(len(thresholds) + 1))
                multiply_by_step(dealer, reached, lift(dealer, masked, shift=3), factors=factors)
                blind_conditionally(dealer, reached[0], n_rows=3, ring=get_integer_ring(48))

    notes, _ = deal(program)
    counts = check(notes)
    assert counts["step"] == counts["veil"] == 2


@pytest.mark.parametrize("s_holder", range(3))
@pytest.mark.parametrize("bits", [1, 8, 27, 64])
def test_carries(s_holder: int, bits: int) -> None:
    """Carries of S + T into any bits, and single bits of the sum."""
    ring = get_integer_ring(bits)
    found: dict[int, Any] = {}

    def program(dealer: Any) -> None:
        with dealer.step("table", s_holder):
            r = dealer.uniform((9,), ring)
            places = sorted({1, bits // 3, bits // 2, bits - 1, bits})
            top = bits - 1 or None
            found[dealer.number] = (r, *dealer.derive_carries(r, places, top), places, top)

    deal(program)
    r = [found[k][0] for k in range(3)]
    s_parts = [part.array.astype(object) for part in r[s_holder].parts]
    s = sum(s_parts) % (1 << bits)
    t = ring.reduce_modulus(r[(s_holder + 2) % 3].parts[0].array).astype(object)
    assert ((s + t) % (1 << bits) == whole(r).astype(object)).all()
    carries, top = whole([found[k][1] for k in range(3)]), whole([found[k][2] for k in range(3)])
    for place, carry in zip(found[0][3], carries, strict=True):
        low = (1 << place) - 1
        assert (carry == ((s & low) + (t & low) >> place).astype(np.uint8)).all()
    if found[0][4]:
        assert (top == (whole(r).astype(object) >> found[0][4]).astype(np.uint8)).all()


def test_no_dealer_knows_a_mask() -> None:
    masks = []

    def program(dealer: Any) -> None:
        r = dealer.uniform((3,), Z64)
        masks.append(r)
        assert isinstance(r, ReplicatedElements)
        assert not isinstance(r, Share)
        with pytest.raises(TypeError, match="no dealer of three knows"):
            _ = r.array
        with pytest.raises(NotImplementedError, match="no dealer knows values"):
            dealer.distribute(np.zeros(3, np.uint64), Z64)

    deal(program)
    assert len(masks) == 3
