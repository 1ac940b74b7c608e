"""Received values are uniform, and their shapes do not depend on the data.

False alarms: each chi-square test rejects truly uniform bytes once in 10^9 runs
(`harness.FALSE_ALARM`), and there are a few hundred of them.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z36, Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share, stack
from privet.gates.arithmetic import truncate
from privet.gates.beaver import multiply, square
from privet.gates.permute import permute
from privet.protocols.masked.argmax import CARRIED_RING, run_last_stage
from privet.protocols.paper.gates import less_than
from privet.runtime.correlations.dealer import SingleDealer
from privet.runtime.opening import Payload
from privet.runtime.party import Party
from privet.runtime.runtime import ArgmaxCandidates, Runtime
from tests.privacy.explain import explain
from tests.privacy.stage import Randomness, Session, perform
from tests.privacy.uniform import Group, unfair
from tests.runtime.harness import View, nonuniform, play

COUNT = 2000


def inputs(runtime: Runtime, data: np.ndarray | None) -> tuple[Share, Share]:
    """Two vectors, of the first two participants."""
    with runtime.step("share"):
        x = runtime.share(data, owner=0, shape=(COUNT,), ring=Z64)
        y = runtime.share(data, owner=1, shape=(COUNT,), ring=Z64)
    return x, y


def run_all_gates(runtime: Runtime, data: np.ndarray | None) -> Any:
    """A program with every gate, on the data of the first two participants."""
    x, y = inputs(runtime, data)
    product = truncate(runtime, multiply(runtime, x, y), dropped_bits=20)
    squared = square(runtime, x)
    smaller = less_than(runtime, x, y)
    owners = [0, 1]
    permutations = [np.argsort(data, kind="stable") if data is not None else None] * 2
    both = stack([x, y]).reshape(2, 1, COUNT)
    permute(runtime, both, permutations, owners)
    return runtime.reveal(
        (product + squared + smaller).sum(), recipients=[0], disclosure="checksum"
    )


def data(seed: int) -> list[np.ndarray]:
    """Small values, many of them equal, so that they are far from uniform."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 4, COUNT).astype(np.uint64) * np.uint64(seed) for _ in range(5)]


def alarms(view: View) -> list[str]:
    """Report values that are not uniform among all that a participant opened and received.

    The reveal, outside all steps, is left out. So are messages with masked permutations, which are
    not uniform bytes and have a separate test.
    """
    messages = [r.array for r in view.received if r.step not in ("", "permute")]
    corrections = [r.array for r in view.corrections if r.step]
    return nonuniform(view.opened) + nonuniform(messages + corrections)


@pytest.fixture(params=[2, 3, 5])
def n(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_received_and_opened_values_are_uniform(n: int) -> None:
    for view in play(run_all_gates, n, data(3)[:n]):
        assert alarms(view) == []


def test_shapes_and_order_of_messages_do_not_depend_on_the_data(n: int) -> None:
    first = play(run_all_gates, n, data(1)[:n])
    second = play(run_all_gates, n, data(1000)[:n])
    for one, other in zip(first, second, strict=True):
        assert one.shapes() == other.shapes()
        assert [a.shape for a in one.opened] == [a.shape for a in other.opened]
        assert one.meter == other.meter
        assert one.ledger == other.ledger


def permute_zeros(runtime: Runtime, _: object, length: int) -> Any:
    x = runtime.share_public(np.zeros((1, 1, length), dtype=np.uint64), Z64)
    identity = np.arange(length)
    return permute(runtime, x, [identity], [0])


def test_a_masked_permutation_is_uniform() -> None:
    """The identity, masked 2,000 times: every position is sent to all positions equally often."""
    from scipy.stats import chi2

    length, times = 8, 2000
    counts = np.zeros((length, length))

    def many(runtime: Runtime, data: object) -> None:
        for _ in range(times):
            permute_zeros(runtime, data, length)

    views = play(many, 2)
    for received in views[1].received:
        steps = received.array.view(np.uint32)[:length]
        counts[np.arange(length), steps] += 1
    expected = times / length
    statistic = ((counts - expected) ** 2 / expected).sum()
    # A permutation matrix has (length - 1)^2 degrees of freedom, scaled by length / (length - 1).
    assert statistic * (length - 1) / length < chi2.isf(1e-9, (length - 1) ** 2)


# The last stage of the argmax: values of finalists that lose are opened under a blind.

FEATURES = 5
BUCKETS = 8


class Final:
    """The last stage, on all participants' shares of the finalists' scores and carried values."""

    def __init__(self, n: int, finalists: int, times: int = 1) -> None:
        self.n, self.finalists, self.times = n, finalists, times
        self.owners = [feature % n for feature in range(FEATURES)]
        self.pairs = list(combinations(range(finalists), 2))

    def __call__(self, runtime: Runtime, data: tuple[RingArray, RingArray] | None) -> Any:
        """Return the local shares of the blinded values, and the argmax result."""
        scores = Share.unknown((self.finalists,), Z36)
        load = Share.unknown((1 + self.n, self.finalists), CARRIED_RING)
        if data is not None:
            scores, load = Share(data[0], Z36), Share(data[1], CARRIED_RING)
        found = []
        for _ in range(self.times):
            blinded = run_last_stage(runtime, scores, load)
            disclosures = ("feature", "bucket")
            result = runtime.reveal_argmax(
                blinded, ArgmaxCandidates(tuple(self.owners), (BUCKETS,) * FEATURES, disclosures)
            )
            found.append((blinded.part if blinded.known else None, result))
        return found

    def carried(self, features: list[int], buckets: list[int]) -> RingArray:
        """Return carried values: features for all participants, and buckets for the owners."""
        load = CARRIED_RING.zeros((1 + self.n, self.finalists))
        for i, (feature, bucket) in enumerate(zip(features, buckets, strict=True)):
            load[0, i] = feature + 1
            load[1 + self.owners[feature], i] = bucket + 1
        return load

    def shares(self, scores: list[int], load: RingArray, seed: int = 0) -> list[Any]:
        """Return all participants' shares of the finalists' scores and carried values."""
        streams = [Prg(bytes([seed + k]) * 32) for k in range(self.n - 1)]

        def split(value: RingArray, ring: Ring) -> list[RingArray]:
            place = Place("test", (), ring.bits)
            parts = [stream.uniform(place, value.shape, ring) for stream in streams]
            return [*parts, ring.subtract(value, sum(parts, start=ring.zeros(value.shape)))]

        whole = Z36.to_elements(np.array(scores, dtype=np.int64))
        return list(zip(split(whole, Z36), split(load, CARRIED_RING), strict=True))

    def find_loser(self, scores: list[int], slot: int, pair: int) -> int | None:
        """Return the finalist that a draw must blind, if any; ties go to the first."""
        first, second = self.pairs[pair]
        loser = second if scores[first] >= scores[second] else first
        return loser if loser == self.pairs[pair][slot] else None


def visible(session: Session, time: int = 0) -> RingArray:
    """Return the opened values of all finalists, to any participant: (1 + n, finalists)."""
    parts = [seen.result[time][0] for seen in session.seen]
    return CARRIED_RING.reduce_modulus(np.add.reduce(parts, dtype=np.uint64))


def blind_position(session: Session) -> int:
    """Return the position of the blind among shared draws; corrections for it come later."""
    draws = session.seen[0].runtime.draws["shared"]
    return next(i for i, draw in enumerate(draws) if draw.step.endswith("veil"))


@pytest.mark.parametrize(("n", "finalists"), [(2, 4), (3, 3)])
def test_every_element_of_a_loser_has_its_own_blind(n: int, finalists: int) -> None:
    """If any share of a draw rises by one, one element of the loser of its pair rises by one. No
    other opened value changes, and the winner's values have no blind."""
    stage = Final(n, finalists)
    scores, features = [5, -7, 9, 2][:finalists], [4, 1, 3, 0][:finalists]
    load = stage.carried(features, [6, 2, 5, 1][:finalists])
    data = stage.shares(scores, load)
    first = perform(stage, data, Randomness("veil"))
    before, place = visible(first), blind_position(first)
    for honest in range(n):
        stream = first.seen[honest].stream("shared")
        n_blinds = np.zeros(before.shape, dtype=int)
        for where in np.ndindex(*stream.drawn[place].shape):
            slot, row, pair = where
            script = [draw.copy() for draw in stream.drawn]
            script[place][where] += 1
            session = perform(stage, data, Randomness("veil", {stream.seed: script}))
            expected = CARRIED_RING.zeros(before.shape)
            if (loser := stage.find_loser(scores, slot, pair)) is not None:
                expected[row, loser] = 1
                n_blinds[row, loser] += 1
            moved = CARRIED_RING.reduce_modulus(visible(session) - before)
            assert np.array_equal(moved, expected), f"draw {where} blinds more, or something else"
            for one, other in zip(first.seen, session.seen, strict=True):
                old, new = (
                    [o for o in seen.opened if o[1] is not CARRIED_RING] for seen in (one, other)
                )
                assert all(np.array_equal(a, b) for (*_, a), (*_, b) in zip(old, new, strict=True))
        winner = int(np.argmax(scores))
        assert (np.delete(n_blinds, winner, axis=1) > 0).all(), "a loser is not blinded"
        assert (n_blinds[:, winner] == 0).all()
    assert np.array_equal(before[:, winner], load[:, winner])


@pytest.mark.parametrize(("n", "honest"), [(n, k) for n in (2, 3) for k in range(n)])
def test_blinded_values_are_consistent_with_other_losers(n: int, honest: int) -> None:
    """For other scores, features and buckets of all losers, there are draws with which the other
    participants see the same bytes. Each draw moves by the change of the loser's element."""
    stage, winner = Final(n, 4), 2
    scores, features, buckets = [5, -7, 9, 2], [4, 1, 3, 0], [6, 2, 5, 1]
    other_scores, others = [-3, 1, 2, -(1 << 33)], ([2, 2, 3, 4], [0, 7, 5, 3])
    if stage.owners[features[winner]] == honest:  # no other participant knows the winner's bucket
        others[1][winner] = 4
    load, other_load = stage.carried(features, buckets), stage.carried(*others)
    data = stage.shares(scores, load)
    session = perform(stage, data, Randomness("losers"))
    place = blind_position(session)
    draws = [seen.runtime.draws["shared"][place].part for seen in session.seen]
    rho = np.add.reduce(draws, dtype=np.uint64)
    seen_before, seen_now = load.copy(), other_load.copy()
    for slot, pair in np.ndindex(2, len(stage.pairs)):
        for total, scores_of_losers in ((seen_before, scores), (seen_now, other_scores)):
            if (loser := stage.find_loser(scores_of_losers, slot, pair)) is not None:
                total[:, loser] += rho[slot, :, pair]
    assert np.array_equal(visible(session), CARRIED_RING.reduce_modulus(seen_before)), (
        "blinds are not the draws"
    )
    moved = draws[honest].copy()
    for pair, members in enumerate(stage.pairs):
        if winner in members:
            loser = sum(members) - winner
            slot = members.index(loser)
            moved[slot, :, pair] += seen_before[:, loser] - seen_now[:, loser]
    honest_scores, honest_load = data[honest]
    change = Z36.to_elements(np.array(other_scores) - np.array(scores))
    other = honest_scores + change, honest_load + other_load - load
    found = explain(session, honest, other, blinds={place: CARRIED_RING.reduce_modulus(moved)})
    assert np.array_equal(visible(found)[:, :winner], visible(session)[:, :winner])
    assert all(seen.result[0][1][0] == features[winner] for seen in found.seen)


@pytest.mark.parametrize("n", [2, 3])
def test_blinded_values_of_losers_are_uniform(n: int) -> None:
    """Each element, and its differences from other rows and other losers."""
    times, winner = 700, 0
    stage = Final(n, 3, times)
    load = stage.carried([2, 3, 3], [1, 1, 1])
    session = perform(stage, stage.shares([7, 4, 4], load), Randomness("uniform"))
    values = np.stack([visible(session, time) for time in range(times)])
    losers = np.delete(values, winner, axis=2)  # (times, rows, losers)
    views = {
        "each": losers,
        "rows": losers[:, 1:] - losers[:, :-1],
        "losers": losers[:, :, 1:] - losers[:, :, :-1],
        "times": losers[1:] - losers[:-1],
    }
    for name, elements in views.items():
        group = Group((name,), CARRIED_RING, CARRIED_RING.reduce_modulus(elements).reshape(-1))
        assert unfair(group) == []
    opened = [value for _, ring, value in session.seen[-1].opened if ring is CARRIED_RING]
    assert np.array_equal(np.stack(opened), losers[:, [0, n]])


# Broken variants that these tests must detect.


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
    """Masks that all have the same place: each is uniform, and all are equal."""
    uniform = Prg.uniform

    def again(
        self: Prg, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        return uniform(self, Place("the same", (), 0), shape, ring, rows)

    monkeypatch.setattr(Prg, "uniform", again)


def multiply_twice(runtime: Runtime, values: np.ndarray | None) -> None:
    x, y = inputs(runtime, values)
    multiply(runtime, x, y)
    multiply(runtime, y, x)


def test_a_correct_run_raises_no_alarm(n: int) -> None:
    assert all(alarms(view) == [] for view in play(multiply_twice, n, data(3)[:n]))


@pytest.mark.usefixtures("short_masks")
def test_short_masks_are_caught(n: int) -> None:
    assert all(alarms(view) for view in play(multiply_twice, n, data(3)[:n]))


@pytest.mark.usefixtures("reused_masks")
def test_a_reused_mask_is_caught(n: int) -> None:
    views = play(multiply_twice, n, data(3)[:n])
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
        self._local_prg = Zeros(bytes(32))

    monkeypatch.setattr(Party, "__init__", broken)
    assert all(alarms(view) for view in play(run_all_gates, n, data(3)[:n]))


def test_a_correction_without_a_mask_is_caught(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dealer that sends derived values in plaintext."""

    def deal(self: SingleDealer, value: RingArray, ring: Ring) -> Elements:
        self._next_place("derived", value.shape, ring)
        payload = Payload.for_array(ring, value.shape)
        recipient = self._draw_position.choose_correction_recipient(payload.nbytes)
        self._sender.send(recipient, payload.encode([value]), self._tag.value)
        return Elements(value, ring)

    def derived(self: Party, shape: tuple[int, ...], ring: Ring) -> Share:
        self._next_place("derived", shape, ring)
        payload = Payload.for_array(ring, shape)
        if self._draw_position.choose_correction_recipient(payload.nbytes) != self.index:
            return Share(ring.zeros(shape), ring)
        message = self._receiver.receive(payload.expected, self._tag.value, self.step_name)
        return Share(payload.decode(message)[0].reshape(shape), ring)

    monkeypatch.setattr(SingleDealer, "distribute", deal)
    monkeypatch.setattr(Party, "derived", derived)
    assert any(alarms(view) for view in play(run_all_gates, n, data(3)[:n]))
