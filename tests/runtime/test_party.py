from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import (
    BIT_RING,
    Z32,
    Z36,
    Z64,
    Ring,
    add_counting_wraps,
    get_integer_ring,
)
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerError, PeerMisbehavedError, ResultError
from privet.runtime.accounting import LedgerEntry
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.local.launcher import simulate
from privet.runtime.opening import DEFAULT_ALL_TO_ALL_BYTES
from privet.runtime.party import Party
from privet.runtime.runtime import ArgmaxCandidates, Runtime
from tests.runtime.harness import check_count, measured, play

PARTIES = (2, 3, 5)
LARGE = DEFAULT_ALL_TO_ALL_BYTES // 8 + 3  # 64-bit elements that no longer go all-to-all


def opening_cost(nbytes: int, n_parties: int) -> Cost:
    """Return the cost of opening `nbytes` bytes, whose slices add no padding."""
    if nbytes <= DEFAULT_ALL_TO_ALL_BYTES or n_parties == 2:
        return Cost(rounds=1, online_bytes=n_parties * (n_parties - 1) * nbytes)
    return Cost(rounds=2, online_bytes=2 * (n_parties - 1) * nbytes)


def counting(counter: Runtime, _: object, shapes: list[tuple[int, ...]], rings: list[Ring]) -> None:
    """Count the openings of `opening`."""
    assert isinstance(counter, CostCounter)
    counter.count_opening(*(Share.unknown(s, r) for s, r in zip(shapes, rings, strict=True)))


def opening(runtime: Runtime, parts: list[np.ndarray], rings: list[Ring]) -> Any:
    if isinstance(runtime, Party):
        return runtime.open(*(Share(p, r) for p, r in zip(parts, rings, strict=True)))
    return None


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (LARGE,), (2, LARGE)])
@pytest.mark.parametrize("ring", [Z64, Z32, BIT_RING], ids=lambda ring: ring.name)
def test_opening_adds_shares_up(n: int, shape: tuple[int, ...], ring: Ring) -> None:
    rng = np.random.default_rng(0)
    top = (1 << ring.bits) - 1
    inputs = [[rng.integers(0, top, shape, dtype=ring.dtype, endpoint=True)] for _ in range(n)]
    views = play(partial(opening, rings=[ring]), n, inputs)
    total = ring.sum(np.stack([parts[0] for parts in inputs]), 0)
    for view in views:
        assert (view.result[0] == total).all()
        assert view.result[0].shape == shape
    assert measured(views) == opening_cost(ring.nbytes(shape), n)
    check_count(partial(counting, shapes=[shape], rings=[ring]), views)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("size", [3, LARGE])
def test_one_opening_of_several_values(n: int, size: int) -> None:
    """Open values of several rings and shapes in one opening."""
    rings = [Z64, BIT_RING, Z32, Z64]
    shapes = [(size,), (5, 3), (size, 1), (0,)]
    rng = np.random.default_rng(1)
    inputs = [
        [rng.integers(0, 255, s, dtype=r.dtype) for s, r in zip(shapes, rings, strict=True)]
        for _ in range(n)
    ]
    views = play(partial(opening, rings=rings), n, inputs)
    for view in views:
        for k, value in enumerate(view.result):
            assert (value == rings[k].sum(np.stack([parts[k] for parts in inputs]), 0)).all()
    nbytes = sum(r.nbytes(s) for s, r in zip(shapes, rings, strict=True))
    assert measured(views) == opening_cost(nbytes, n)
    check_count(partial(counting, shapes=shapes, rings=rings), views)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("length", [1, 7, 100_003])
def test_narrow_rings_are_packed(n: int, length: int) -> None:
    """Open elements of 1, 5 and 36 bits, with random upper bits, together and separately."""
    rings = [get_integer_ring(1), get_integer_ring(5), Z36]
    rng = np.random.default_rng(length)
    inputs = [
        [rng.integers(0, 255, length).astype(np.uint8) for _ in range(2)]
        + [rng.integers(0, 2**63, length, dtype=np.uint64)]
        for _ in range(n)
    ]
    for chosen in ([0, 1, 2], [0], [1], [2], [2, 2]):
        chosen_rings = [rings[k] for k in chosen]
        chosen_inputs = [[parts[k] for k in chosen] for parts in inputs]
        views = play(partial(opening, rings=chosen_rings), n, chosen_inputs)
        for view in views:
            for k, value in zip(chosen, view.result, strict=True):
                total = rings[k].sum(np.stack([parts[k] for parts in inputs]), 0)
                assert (value == rings[k].reduce_modulus(total)).all()
        program = partial(counting, shapes=[(length,)] * len(chosen), rings=chosen_rings)
        (cost,) = check_count(program, views).values()
        bits = sum(ring.bits for ring in chosen_rings) * length
        share = 2 * (n - 1) if cost.rounds == 2 else n * (n - 1)
        # Every slice of every ring can end with one partly empty byte of each chunk size.
        assert bits / 8 <= cost.online_bytes / share < bits / 8 + 2 * n * len(chosen_rings)


def sharing(runtime: Runtime, values: np.ndarray) -> Any:
    x = runtime.share(values, owner=1, shape=(1000,), ring=Z64)
    return runtime.reveal(x, recipients=[0, 1], disclosure="x")


@pytest.mark.parametrize("n", PARTIES)
def test_sharing_and_revealing(n: int) -> None:
    inputs = [np.full(1000, index, dtype=np.uint64) for index in range(n)]
    views = play(sharing, n, inputs)
    for index, view in enumerate(views):
        if index < 2:
            assert (view.result == 1).all()
        else:
            assert view.result is None
        assert view.ledger.entries == [LedgerEntry("x", ("party1", "party2"), 1000, "")]
    assert measured(views) == Cost(2, 8000 * ((n - 1) + 2 * (n - 1)), 0)
    check_count(sharing, views)


def sharing_each(runtime: Runtime, values: list[np.ndarray | None] | None, ring: Ring) -> Any:
    owned = [None] * 4 if values is None else values
    owners = None if isinstance(runtime, Dealer) else [1, 0, 1, 1]
    shares = runtime.share_arrays(owned, owners, (3, 5), ring)
    return runtime.reveal(shares, recipients=[1], disclosure="all")


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z64, Z32, Z36], ids=lambda ring: ring.name)
def test_sharing_arrays_of_several_owners(n: int, ring: Ring) -> None:
    """Share arrays in one round, packed to the width of their ring."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << min(ring.bits, 63), (4, 3, 5)).astype(ring.dtype)
    inputs = [
        [v if owner == k else None for v, owner in zip(values, [1, 0, 1, 1], strict=True)]
        for k in range(n)
    ]
    program = partial(sharing_each, ring=ring)
    views = play(program, n, inputs)
    assert (views[1].result == values).all()
    assert [view.result for view in views[:1] + views[2:]] == [None] * (n - 1)
    # The owners send 15 and 45 elements, and one participant gets all 60: padding adds at most one
    # byte to every array.
    cost = measured(views)
    assert cost.rounds == 2
    assert 0 <= 8 * cost.online_bytes - (n - 1) * 2 * 60 * ring.bits <= (n - 1) * 8 * 5
    check_count(program, views)


def published_shapes(n: int) -> list[list[tuple[int, int]]]:
    """Return shapes of published arrays: one is empty, and some participants publish none."""
    return [[(2, 3), (5, 3)], [], [(1, 3), (0, 3), (7, 3)], [(2, 3)], []][:n]


def publishing(runtime: Runtime, local_arrays: list[np.ndarray] | None) -> Any:
    shapes = published_shapes(runtime.n_parties)
    if isinstance(runtime, Party):
        assert local_arrays is not None
        published = runtime.publish(local_arrays, shapes, Z36)
        return [(k, position, array) for k, position, array in published]
    if isinstance(runtime, CostCounter):
        runtime.count_publication(Z36, [shape for peer_shapes in shapes for shape in peer_shapes])
    return None


@pytest.mark.parametrize("n", PARTIES)
def test_publishing(n: int) -> None:
    """Each participant gets all arrays once, including its own, in one round."""
    rng = np.random.default_rng(0)
    shapes = published_shapes(n)
    arrays = [
        [rng.integers(0, 1 << 36, shape, dtype=np.uint64) for shape in peer_shapes]
        for peer_shapes in shapes
    ]
    views = play(publishing, n, arrays)
    for view in views:
        assert len(view.result) == sum(len(peer_shapes) for peer_shapes in shapes)
        found = {(k, position): array for k, position, array in view.result}
        for k, peer_shapes in enumerate(arrays):
            for position, array in enumerate(peer_shapes):
                assert (found[k, position] == array).all()
                assert found[k, position].shape == array.shape
    sent = sum(
        Z36.count_packed_bytes(rows * 3) for peer_shapes in shapes for rows, _ in peer_shapes
    )
    assert measured(views) == Cost(1, (n - 1) * sent, 0)
    check_count(publishing, views)


def opening_to_owners(runtime: Runtime, data: tuple[Any, Any] | None) -> Any:
    if isinstance(runtime, Party):
        assert data is not None
        part, notes = data
        return runtime.open_to_owners(Share(part, Z36), [1, 0, 1], notes, (Z32, 4))
    return None


@pytest.mark.parametrize("n", PARTIES)
def test_opening_to_owners(n: int) -> None:
    """Open each value only to its owner, and send each owner's note to all, in one round."""
    rng = np.random.default_rng(0)
    owners = [1, 0, 1]
    parts = rng.integers(0, 1 << 36, (n, 3, 2, 5), dtype=np.uint64)
    notes = [np.arange(4, dtype=np.uint32) + 10 * j for j in range(3)]
    inputs = [
        (parts[k], [note if o == k else None for note, o in zip(notes, owners, strict=True)])
        for k in range(n)
    ]
    views = play(opening_to_owners, n, inputs)
    total = Z36.reduce_modulus(parts.sum(axis=0, dtype=np.uint64))
    for k, view in enumerate(views):
        opened, all_notes = view.result
        assert sorted(opened) == [j for j, owner in enumerate(owners) if owner == k]
        for j, value in opened.items():
            assert (Z36.reduce_modulus(value) == total[j]).all()
        assert [note.tolist() for note in all_notes] == [note.tolist() for note in notes]
        assert len(view.opened) == owners.count(k)
    sent = 3 * (Z36.count_packed_bytes(10) + Z32.count_packed_bytes(4))
    assert measured(views) == Cost(1, (n - 1) * sent, 0)


def public(runtime: Runtime, _: object) -> Any:
    with runtime.step("outer"), runtime.step("inner"):
        x = runtime.share_public(np.arange(3, dtype=np.uint64), Z64)
        first = runtime.reveal(x, recipients=[0], disclosure="x")
        runtime.reveal(x[:2], recipients=[0], disclosure="x")
    runtime.reveal(x, recipients=[0], disclosure="x")
    return first


def test_steps_show_in_the_ledger_and_the_meter() -> None:
    views = play(public, 3)
    assert views[0].result.tolist() == [0, 1, 2]
    assert views[1].ledger.summarise() == [
        LedgerEntry("x", ("party1",), 5, "outer/inner"),
        LedgerEntry("x", ("party1",), 3, ""),
    ]
    assert views[1].meter.online["outer/inner"].rounds == 2
    assert views[1].meter.online["outer/inner"].sent == 40
    assert views[1].meter.sum_traffic().sent == 64
    assert check_count(public, views) == {
        "outer/inner": Cost(2, 2 * 40, 0),
        "": Cost(1, 2 * 24, 0),
    }


def test_counting_wraps() -> None:
    rng = np.random.default_rng(0)
    extreme = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    parts = [rng.choice(extreme, 1000) for _ in range(5)]
    total, count = add_counting_wraps(parts)

    def to_signed(x: int) -> int:
        return x - 2**64 if x >= 2**63 else x

    for i in range(1000):
        exact = sum(to_signed(int(part[i])) for part in parts)
        assert exact == to_signed(int(total[i])) + 2**64 * int(count.view(np.int32)[i])


def run_out_of_sync(runtime: Runtime, _: object, change: str) -> Any:
    """Run a program differently at one participant than at the dealer and the others."""
    is_changed = isinstance(runtime, Party) and runtime.index == 1
    for i in range(4):
        with runtime.step("odd step" if is_changed and change == "step" else "step"):
            shape = (3,) if is_changed and change == "shape" else (2,)
            ring = Z32 if is_changed and change == "ring" else Z64
            if isinstance(runtime, Party):
                if not (is_changed and change == "skip" and i == 0):
                    runtime.uniform(shape, ring)
                runtime.derived((2,), Z64)
            elif isinstance(runtime, Dealer):
                runtime.uniform((2,), Z64)
                runtime.distribute(np.zeros(2, dtype=np.uint64), Z64)
    return None


@pytest.mark.parametrize("change", ["step", "shape", "ring", "skip"])
def test_a_participant_out_of_sync_with_the_dealer_stops(change: str) -> None:
    with pytest.raises(CorrelationError, match=r"^dealer: .* lost step"):
        play(partial(run_out_of_sync, change=change), 3)
    play(partial(run_out_of_sync, change="none"), 3)


def too_short(runtime: Runtime, _: object) -> None:
    """Draw more at the participants than at the dealer."""
    if isinstance(runtime, Party):
        for _i in range(3):
            runtime.derived((2,), Z64)


def too_long(runtime: Runtime, _: object) -> None:
    """Distribute more at the dealer than the participants draw."""
    if isinstance(runtime, Dealer):
        for _i in range(3):
            runtime.distribute(np.zeros(2, dtype=np.uint64), Z64)


@pytest.mark.parametrize("program", [too_short, too_long])
def test_the_dealer_and_the_participants_end_together(program: Any) -> None:
    with pytest.raises((PeerError, CorrelationError), match="dealer"):
        play(program, 2)


def diverging(runtime: Runtime, _: object) -> None:
    if isinstance(runtime, Party):
        with runtime.step("here" if runtime.index else "there"):
            runtime.open(Share(np.zeros(3, dtype=np.uint64), Z64))


def test_participants_out_of_sync_with_each_other_stop() -> None:
    with pytest.raises(PeerMisbehavedError, match=r"at step '(t?here)'.* lost step"):
        play(diverging, 3)


def test_the_dealer_cannot_open() -> None:
    assert not hasattr(Dealer, "open")
    assert not hasattr(Dealer, "open_to_owners")
    assert not hasattr(Dealer, "open_with_wraps")


def test_argmax_is_revealed_to_all_and_its_detail_to_the_owner() -> None:
    """The other finalists are blinded, with numbers of no candidate."""
    program = partial(choosing, [[77, 3, 1 << 60], [5, 0, 1 << 40], [1 << 50, 8, 6]])
    views = play(program, 2)
    assert [view.result for view in views] == [(2, -1, None), (2, 7, None)]
    assert check_count(program, views) == {"": Cost(1, 2 * 2 * 3 * 8, 0)}
    # The opened rows of the other finalists, at each participant.
    assert [[v.tolist() for v in view.opened] for view in views] == [
        [[[77, 1 << 60], [5, 1 << 40]]],
        [[[77, 1 << 60], [1 << 50, 6]]],
    ]


@pytest.mark.parametrize(
    "rows", [[4, 0, 8], [0, 0, 8], [2**63, 1, 0], [3, 8, 0], [1, 0, 0], [3, 0, 10], [3, 0, 2**40]]
)
def test_invalid_argmax_results_are_rejected(rows: list[int]) -> None:
    """No such candidate, a detail at the wrong participant, no detail, or one beyond the last."""
    with pytest.raises(ResultError, match="the shares of a split do not add up to one of 3"):
        simulate(partial(choosing, [[value] for value in rows]), 2)


@pytest.mark.parametrize("receiver", [0, 1])
def test_a_number_of_the_argmax_is_revealed_to_the_receiver(receiver: int) -> None:
    """In the same round, as one more row that only the receiver gets."""
    rows = [[77, 3, 1 << 60], [5, 0, 1 << 40], [1 << 50, 8, 6], [1 << 60, 12345, 7]]
    program = partial(choosing, rows, receiver=receiver)
    views = play(program, 2)
    numbers = [12345 if k == receiver else None for k in range(2)]
    assert [view.result for view in views] == [(2, -1, numbers[0]), (2, 7, numbers[1])]
    assert check_count(program, views) == {"": Cost(1, (2 + 3) * 3 * 8, 0)}
    for view in views:
        assert view.ledger.entries[-1] == LedgerEntry("number", (f"party{receiver + 1}",), 1, "")
    assert [len(view.opened[0]) for view in views] == [3 if k == receiver else 2 for k in range(2)]


def choosing(
    finalists: list[list[int]], runtime: Runtime, _: None, receiver: int | None = None
) -> Any:
    share = runtime.share_public(np.array(finalists, dtype=np.uint64), Z64)
    candidates = ArgmaxCandidates((0, 1, 1), (9, 9, 9), ("split", "detail"), receiver, "number")
    return runtime.reveal_argmax(share, candidates)


def announcing(runtime: Runtime, number: int | None) -> int | None:
    """Announce a number of the last participant; record the number at the dealer."""
    announced = runtime.announce(number, runtime.n_parties - 1, "a number")
    if isinstance(runtime, Dealer):
        dealer_numbers.append(announced)
    return announced


dealer_numbers: list[int | None] = []


@pytest.mark.parametrize("n", PARTIES)
def test_announcing(n: int) -> None:
    """All participants and the dealer receive the number of the owner."""
    dealer_numbers.clear()
    views = play(announcing, n, [None] * (n - 1) + [7])
    names = tuple(f"party{k + 1}" for k in range(n))
    for view in views:
        assert view.result == 7
        assert view.ledger.entries == [LedgerEntry("a number", (*names, "dealer"), 1, "")]
    assert dealer_numbers == [7]
    check_count(announcing, views)
    assert measured(views) == Cost(1, 4 * (n - 1))


def test_announcing_with_offline_preprocessing() -> None:
    """The dealer receives no number, neither in preprocessing nor in the run."""
    dealer_numbers.clear()
    outcome = simulate(announcing, 3, [None, None, 9], ahead=True)
    assert outcome.results == [9, 9, 9]
    assert dealer_numbers == [None]
    assert [entry.recipients for entry in outcome.ledgers[0].entries] == [
        ("party1", "party2", "party3")
    ]
