from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import BITS, Z32, Z64, Ring, add_counting_wraps
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerError, PeerMisbehavedError, ResultError
from privet.gates.gate import Cost, opening_cost
from privet.runtime.launcher import simulate
from privet.runtime.ledger import Disclosure
from privet.runtime.opening import ALL_TO_ALL_BYTES
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from tests.runtime.harness import play

PARTIES = (2, 3, 5)
LARGE = ALL_TO_ALL_BYTES // 8 + 3  # 64-bit elements that no longer go all-to-all


def measured(views: list[Any]) -> Cost:
    """What the meters of all participants say."""
    rounds = {view.meter.total().rounds for view in views}
    assert len(rounds) == 1
    return Cost(
        rounds=rounds.pop(),
        online=sum(view.meter.total().sent for view in views),
        offline=sum(view.meter.total("offline").received for view in views),
    )


def opening(runtime: Runtime, parts: list[np.ndarray], rings: list[Ring]) -> Any:
    if isinstance(runtime, Party):
        return runtime.open(*(Share(p, r) for p, r in zip(parts, rings, strict=True)))
    return None


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (LARGE,), (2, LARGE)])
@pytest.mark.parametrize("ring", [Z64, Z32, BITS], ids=lambda ring: ring.name)
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


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("size", [3, LARGE])
def test_one_opening_serves_many(n: int, size: int) -> None:
    """Values of several rings and shapes, in one round of messages."""
    rings = [Z64, BITS, Z32, Z64]
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


def sharing(runtime: Runtime, values: np.ndarray) -> Any:
    x = runtime.share(values, owner=1, shape=(1000,), ring=Z64)
    return runtime.reveal(x, to=[0, 1], what="x")


@pytest.mark.parametrize("n", PARTIES)
def test_sharing_and_revealing(n: int) -> None:
    inputs = [np.full(1000, index, dtype=np.uint64) for index in range(n)]
    views = play(sharing, n, inputs)
    for index, view in enumerate(views):
        if index < 2:
            assert (view.result == 1).all()
        else:
            assert view.result is None
        assert view.ledger.entries == [Disclosure("x", ("party1", "party2"), 1000, "")]
    assert measured(views).online == 8000 * ((n - 1) + 2 * (n - 1))


def public(runtime: Runtime, _: object) -> Any:
    with runtime.step("outer"), runtime.step("inner"):
        x = runtime.public(np.arange(3, dtype=np.uint64), Z64)
        first = runtime.reveal(x, to=[0], what="x")
        runtime.reveal(x[:2], to=[0], what="x")
    runtime.reveal(x, to=[0], what="x")
    return first


def test_steps_show_in_the_ledger_and_the_meter() -> None:
    views = play(public, 3)
    assert views[0].result.tolist() == [0, 1, 2]
    assert views[1].ledger.summary() == [
        Disclosure("x", ("party1",), 5, "outer/inner"),
        Disclosure("x", ("party1",), 3, ""),
    ]
    assert views[1].meter.online["outer/inner"].rounds == 2
    assert views[1].meter.online["outer/inner"].sent == 40
    assert views[1].meter.total().sent == 64


def test_counting_wraps() -> None:
    rng = np.random.default_rng(0)
    extreme = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    parts = [rng.choice(extreme, 1000) for _ in range(5)]
    total, count = add_counting_wraps(parts)

    def whole(x: int) -> int:
        return x - 2**64 if x >= 2**63 else x

    for i in range(1000):
        exact = sum(whole(int(part[i])) for part in parts)
        assert exact == whole(int(total[i])) + 2**64 * int(count.view(np.int32)[i])


def out_of_step(runtime: Runtime, _: object, change: str) -> Any:
    """A program that one participant runs differently from the dealer and the others."""
    odd = isinstance(runtime, Party) and runtime.index == 1
    for i in range(4):
        with runtime.step("odd step" if odd and change == "step" else "step"):
            shape = (3,) if odd and change == "shape" else (2,)
            ring = Z32 if odd and change == "ring" else Z64
            if isinstance(runtime, Party):
                if not (odd and change == "skip" and i == 0):
                    runtime.uniform(shape, ring)
                runtime.derived((2,), Z64)
            else:
                runtime.uniform((2,), Z64)  # type: ignore[attr-defined]
                runtime.derive(np.zeros(2, dtype=np.uint64), Z64)  # type: ignore[attr-defined]
    return None


@pytest.mark.parametrize("change", ["step", "shape", "ring", "skip"])
def test_a_participant_out_of_step_with_the_dealer_computes_nothing(change: str) -> None:
    with pytest.raises(CorrelationError, match=r"^dealer: .* lost step"):
        play(partial(out_of_step, change=change), 3)
    play(partial(out_of_step, change="none"), 3)


def too_short(runtime: Runtime, _: object) -> None:
    """The dealer ends while the participants want more."""
    if isinstance(runtime, Party):
        for _i in range(3):
            runtime.derived((2,), Z64)


def too_long(runtime: Runtime, _: object) -> None:
    """The dealer has more than the participants want."""
    if not isinstance(runtime, Party):
        for _i in range(3):
            runtime.derive(np.zeros(2, dtype=np.uint64), Z64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("program", [too_short, too_long])
def test_the_dealer_and_the_participants_end_together(program: Any) -> None:
    with pytest.raises((PeerError, CorrelationError), match="dealer"):
        play(program, 2)


def diverging(runtime: Runtime, _: object) -> None:
    if isinstance(runtime, Party):
        with runtime.step("here" if runtime.index else "there"):
            runtime.open(Share(np.zeros(3, dtype=np.uint64), Z64))


def test_participants_out_of_step_with_each_other_compute_nothing() -> None:
    with pytest.raises(PeerMisbehavedError, match=r"at step '(t?here)'.* lost step"):
        play(diverging, 3)


def test_the_dealer_cannot_open() -> None:
    from privet.runtime.dealer import Dealer

    assert not hasattr(Dealer, "open")


def test_a_choice_goes_to_all_and_its_detail_to_the_owner() -> None:
    found = simulate(partial(choosing, [2, 0, 8]), 2).results
    assert found == [(2, -1), (2, 7)]


@pytest.mark.parametrize(
    "choice", [[3, 0, 8], [2**63, 1, 0], [2, 8, 0], [0, 0, 0], [2, 0, 10], [2, 0, 2**40]]
)
def test_shares_that_do_not_add_up_to_a_choice(choice: list[int]) -> None:
    """No such thing, the detail at the wrong participant, or none at all, or beyond the last."""
    with pytest.raises(ResultError, match="the shares of a thing do not add up to one of 3"):
        simulate(partial(choosing, choice), 2)


def choosing(choice: list[int], runtime: Runtime, _: None) -> Any:
    share = runtime.public(np.array(choice, dtype=np.uint64), Z64)
    return runtime.reveal_choice(share, [0, 1, 1], 9, ("thing", "detail"))
