"""What participants see of each other is uniform, and its shape does not depend on the data.

False alarms: each chi-square test rejects truly uniform bytes once in 10^9 runs
(`harness.FALSE_ALARM`), and there are a few hundred of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share, stack
from privet.gates.beaver import multiply, square
from privet.gates.bits import less
from privet.gates.permute import permute
from privet.gates.truncate import truncate
from privet.runtime.dealer import Dealer
from privet.runtime.letters import Letter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from tests.runtime.harness import View, nonuniform, play

COUNT = 2000


def inputs(runtime: Runtime, data: np.ndarray | None) -> tuple[Share, Share]:
    """Two vectors, of the first two participants."""
    with runtime.step("share"):
        x = runtime.share(data, owner=0, shape=(COUNT,), ring=Z64)
        y = runtime.share(data, owner=1, shape=(COUNT,), ring=Z64)
    return x, y


def everything(runtime: Runtime, data: np.ndarray | None) -> Any:
    """A program with every gate in it, on the data of the first two participants."""
    x, y = inputs(runtime, data)
    product = truncate(runtime, multiply(runtime, x, y), bits=20)
    squared = square(runtime, x)
    smaller = less(runtime, x, y)
    owners = [0, 1]
    permutations = [np.argsort(data, kind="stable") if data is not None else None] * 2
    both = stack([x, y]).reshape(2, 1, COUNT)
    permute(runtime, both, permutations, owners)
    return runtime.reveal((product + squared + smaller).sum(), to=[0], what="checksum")


def data(seed: int) -> list[np.ndarray]:
    """Small values, many of them equal: the further from uniform the better."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 4, COUNT).astype(np.uint64) * np.uint64(seed) for _ in range(5)]


def alarms(view: View) -> list[str]:
    """What a participant could learn from: what it opened, and everything it received.

    Left out are the reveal, outside all steps, and the messages that hold masked permutations,
    which are no uniform bytes and have a test of their own.
    """
    messages = [r.array for r in view.received if r.step not in ("", "permute")]
    corrections = [r.array for r in view.corrections if r.step]
    return nonuniform(view.opened) + nonuniform(messages + corrections)


@pytest.fixture(params=[2, 3, 5])
def n(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_what_every_participant_receives_and_opens_is_uniform(n: int) -> None:
    for view in play(everything, n, data(3)[:n]):
        assert alarms(view) == []


def test_shapes_and_order_of_messages_do_not_depend_on_the_data(n: int) -> None:
    first = play(everything, n, data(1)[:n])
    second = play(everything, n, data(1000)[:n])
    for one, other in zip(first, second, strict=True):
        assert one.shapes() == other.shapes()
        assert [a.shape for a in one.opened] == [a.shape for a in other.opened]
        assert one.meter == other.meter
        assert one.ledger == other.ledger


def permuting(runtime: Runtime, _: object, length: int) -> Any:
    x = runtime.public(np.zeros((1, 1, length), dtype=np.uint64), Z64)
    identity = np.arange(length)
    return permute(runtime, x, [identity], [0])


def test_a_masked_permutation_is_uniform() -> None:
    """The identity, masked 2,000 times: every position goes everywhere equally often."""
    from scipy.stats import chi2

    length, times = 8, 2000
    counts = np.zeros((length, length))

    def many(runtime: Runtime, data: object) -> None:
        for _ in range(times):
            permuting(runtime, data, length)

    views = play(many, 2)
    for received in views[1].received:
        steps = received.array.view(np.uint32)[:length]
        counts[np.arange(length), steps] += 1
    expected = times / length
    statistic = ((counts - expected) ** 2 / expected).sum()
    # A permutation matrix has (length - 1)^2 degrees of freedom, scaled by length / (length - 1).
    assert statistic * (length - 1) / length < chi2.isf(1e-9, (length - 1) ** 2)


# Broken variants, which these tests must catch.


@pytest.fixture
def short_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of 63 bits."""
    uniform = Prg.uniform

    def shorter(
        self: Prg, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        values = uniform(self, place, shape, ring, rows)
        kept = np.array((1 << (ring.bits - 1)) - 1, dtype=ring.dtype)
        return np.asarray(values & kept)

    monkeypatch.setattr(Prg, "uniform", shorter)


@pytest.fixture
def reused_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that are all of one place: uniform each, the same every time."""
    uniform = Prg.uniform

    def again(
        self: Prg, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        return uniform(self, Place("the same", (), 0), shape, ring, rows)

    monkeypatch.setattr(Prg, "uniform", again)


def multiplying(runtime: Runtime, values: np.ndarray | None) -> None:
    x, y = inputs(runtime, values)
    multiply(runtime, x, y)
    multiply(runtime, y, x)


def test_a_correct_run_raises_no_alarm(n: int) -> None:
    assert all(alarms(view) == [] for view in play(multiplying, n, data(3)[:n]))


@pytest.mark.usefixtures("short_masks")
def test_short_masks_are_caught(n: int) -> None:
    assert all(alarms(view) for view in play(multiplying, n, data(3)[:n]))


@pytest.mark.usefixtures("reused_masks")
def test_a_reused_mask_is_caught(n: int) -> None:
    views = play(multiplying, n, data(3)[:n])
    for view in views:
        assert any("differences" in place for place in alarms(view))


def test_a_value_opened_without_a_mask_is_caught(n: int) -> None:
    def careless(runtime: Runtime, values: np.ndarray | None) -> None:
        x, _ = inputs(runtime, values)
        if isinstance(runtime, Party):
            with runtime.step("careless"):
                runtime.open(x)

    assert all(alarms(view) for view in play(careless, n, data(3)[:n]))


def test_inputs_sent_without_a_mask_are_caught(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that keeps its values and sends zeros, or sends them and keeps zeros."""
    init = Party.__init__

    class Zeros(Prg):
        def uniform(
            self, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
        ) -> RingArray:
            return ring.zeros(shape)

    def broken(self: Party, *arguments: Any) -> None:
        init(self, *arguments)
        self._own = Zeros(bytes(32))

    monkeypatch.setattr(Party, "__init__", broken)
    assert all(alarms(view) for view in play(everything, n, data(3)[:n]))


def test_a_correction_without_a_mask_is_caught(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dealer that hands derived values out in plain."""

    def deal(self: Dealer, value: RingArray, ring: Ring) -> Elements:
        self._next_place("derived", value.shape, ring)
        letter = Letter.of(ring, value.shape)
        turn = self._next_turn(letter.nbytes)
        self._sink.send(turn, letter.write([value]), self._tag.value)
        return Elements(value, ring)

    def derived(self: Party, shape: tuple[int, ...], ring: Ring) -> Share:
        self._next_place("derived", shape, ring)
        letter = Letter.of(ring, shape)
        if self._next_turn(letter.nbytes) != self.index:
            return Share(ring.zeros(shape), ring)
        message = self._source.receive(letter.kind, self._tag.value, self.step_name)
        return Share(letter.read(message)[0].reshape(shape), ring)

    monkeypatch.setattr(Dealer, "deal", deal)
    monkeypatch.setattr(Party, "derived", derived)
    assert any(alarms(view) for view in play(everything, n, data(3)[:n]))
