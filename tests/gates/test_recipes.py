"""What is dealt can be made in two halves: by whoever knows S of the masks, and those who know T.

A whole training and prediction is dealt by a dealer that cuts every mask in two, lets a client work
on S alone and two servers on shares of that and on T, and compares with what one dealer deals.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from privet.arithmetic.rings import BITS, Z8, Z16, Z36, Z64, Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Elements, Share
from privet.gates import square as lifted_square
from privet.gates.beaver import multiply, square
from privet.gates.lookup import lookup
from privet.gates.masked import lift, mask
from privet.gates.outcomes import Z1, keep, leaf_lookup
from privet.gates.pick import pick
from privet.gates.polynomial import polynomial
from privet.gates.rounding import round_off
from privet.runtime.correlations import Sink
from privet.runtime.dealer import Dealer
from privet.runtime.recipes import Half, Linear, Product, Recipe
from tests.privacy.cases import prediction, training

RNG = np.random.default_rng(0)


def uniform(shape: tuple[int, ...], ring: Ring) -> RingArray:
    return RNG.integers(0, 1 << 63, size=shape, dtype=np.uint64).astype(ring.dtype)


def halves(x: RingArray, ring: Ring) -> tuple[RingArray, RingArray]:
    """Return two uniform arrays that add up to one."""
    first = uniform(x.shape, ring)
    return first, ring.subtract(x, first)


def in_halves(recipe: Recipe, ring: Ring, *masks: Elements) -> RingArray:
    """Return what a client and two servers make of masks, none of whom knows one."""
    cut = [halves(mask.array, mask.ring) for mask in masks]
    s, t = [c[0] for c in cut], [c[1] for c in cut]
    shared = [halves(array, ring) for array in recipe.client(*s)]
    s_parts = [halves(x, mask.ring) for x, mask in zip(s, masks, strict=True)]
    found = [
        recipe.server(Half([c[k] for c in shared], [p[k] for p in s_parts], t, first=k == 0))
        for k in range(2)
    ]
    return ring.reduce(ring.add(*found))


class NoSink(Sink):
    """For a dealer that nobody listens to."""

    def start(self) -> tuple[str, list[bytes]]:
        return "", [bytes([k]) * 32 for k in range(3)]

    def send(self, party: int, array: RingArray, tag: int) -> None:
        pass

    def close(self, tag: int) -> None:
        pass


class DealerInHalves(Dealer):
    """A dealer that makes everything a second time, in halves."""

    def __init__(self) -> None:
        super().__init__(3, NoSink())
        self.made: Counter[str] = Counter()

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements) -> Elements:
        value = super().derive(recipe, ring, *masks)
        difference = ring.reduce(ring.subtract(in_halves(recipe, ring, *masks), value.array))
        gate = self.step_name.rpartition("/")[2]
        if gate == "shrink":  # each half is shortened by itself: off by a unit, if at all
            assert ((difference == 0) | (difference == ring.reduce(ring.array(-1)))).all()
        else:
            assert not difference.any(), self.step_name
        self.made[gate] += 1
        return value


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_training(task: str) -> None:
    program, _ = training("masked", task, 3, 0, tables=1, reveal_loss=True)
    dealer = DealerInHalves()
    program(dealer, None)
    # Not comparisons and series, which are not linear in halves: their answers are dealt whole.
    expected = {"shrink", "keep", "lift", "lookup", "polynomial", "leaf lookup", "square", "pick"}
    assert set(dealer.made) == expected


def test_a_prediction() -> None:
    program, _ = prediction("masked", 3, 0, 1)
    dealer = DealerInHalves()
    program(dealer, None)
    assert set(dealer.made) == {"leaf lookup", "round off"}


@pytest.mark.parametrize(
    "ring", [Z64, Z36, Z8, Z1, integers_modulo(13), BITS], ids=lambda r: r.name
)
def test_products_and_linear_functions(ring: Ring) -> None:
    a, b = (Elements(uniform((4, 5), ring), ring) for _ in range(2))
    product = in_halves(Product(ring, ring.multiply), ring, a, b)
    assert (product == ring.reduce(ring.multiply(a.array, b.array))).all()
    total = in_halves(Linear(ring, lambda x, y: ring.add(x, y)), ring, a, b)
    assert (total == ring.reduce(ring.add(a.array, b.array))).all()


def test_gates_beyond_what_a_training_asks_of_them() -> None:
    """Several outputs, other rings, tables of all sizes, and products of three masks."""
    dealer = DealerInHalves()
    for ring in (Z16, Z36, Z64):
        x, fails = mask(dealer, Share.unknown((3, 9), ring), Share.unknown((9,), Z1))
        keep(dealer, fails, x, x.map(lambda a: a.to_ring(Z16)))
        pick(dealer, x.map(lambda a: a[:, 0]), x)
        lifted_square.square(dealer, lift(dealer, x, shift=3, ring=Z36))
        for depth in (1, 3):
            leaves = Share.unknown((3, 1 << depth), ring)
            values, bits = mask(dealer, leaves, Share.unknown((depth, 9), Z1))
            leaf_lookup(dealer, bits, values)
    for size in (1, 2, 16, 128):
        lookup(dealer, Share.unknown((9,), Z8), [x[0], lift(dealer, x[1], shift=3)], size=size)
    lifted = [lift(dealer, v) for v in mask(dealer, *[Share.unknown((9,), Z16)] * 3)]
    polynomial(dealer, lifted, [(5, (0, 0, 1)), (-3, (0, 1, 2)), (7, (2,)), (2, (1, 2, 2, 2))])
    for low_bits in (1, 6, 8):
        round_off(dealer, Share.unknown((9,), Z36), bits=low_bits)
    multiply(dealer, Share.unknown((3, 1), Z36), Share.unknown((4,), Z36))
    square(dealer, Share.unknown((4,), Z16))
    assert dealer.made == {
        "keep": 3 * 3,
        "pick": 3,
        "leaf lookup": 3 * 2 * 2,
        "lookup": 4 * 2,
        "lift": 2 + 2 + 1 + 4 * 2 + 3 * 2,
        "polynomial": 1,
        "round off": 3,
        "multiply": 1,
        "square": 2 + 2 + 1 + 1,
    }


def test_a_recipe_that_forgets_a_product_is_found_out() -> None:
    class Forgetful(Product):
        def server(self, half: Half) -> RingArray:
            return half.shared[0]

    a = Elements(uniform((50,), Z64), Z64)
    assert (in_halves(Forgetful(Z64, Z64.multiply), Z64, a, a) != a.array * a.array).any()
