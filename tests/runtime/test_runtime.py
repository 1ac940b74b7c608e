"""The base class of runtimes: steps, places and background work."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z32, Z36, Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.beaver import multiply, square
from privet.gates.permute import permute
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Cost, CostCounter, count_program_cost
from privet.runtime.party import Party
from privet.runtime.runtime import ArgmaxCandidates, Runtime
from tests.runtime.harness import check_count, measured, play


def draws(runtime: Runtime, _: object) -> Any:
    """Draw all kinds of values in, between and after numbered and unnumbered steps."""
    x = runtime.share_public(np.arange(6, dtype=np.uint64), Z64)
    for _again in range(2):
        for table in range(2):
            with runtime.step("table", table):
                x = multiply(runtime, x, x)
                for level in range(2):
                    with runtime.step("level", level), runtime.step("inner"):
                        x = square(runtime, x)
                        permute(runtime, x.reshape(1, 1, 6), [np.arange(6)], [0])
                with runtime.step("other"):
                    x = square(runtime, x)
        with runtime.step("between"):
            x = square(runtime, x)
        if not isinstance(runtime, CostCounter):
            runtime.private((2,), Z36, 1)  # type: ignore[attr-defined]
    return runtime.reveal(x, recipients=[0], disclosure="x")


def test_no_place_is_drawn_from_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if a step with the same number is repeated."""
    drawn: list[tuple[bytes, Place]] = []
    uniform, permutation = Prg.uniform, Prg.permutation

    def record_uniform(
        self: Prg, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        drawn.append((self.seed, place))
        return uniform(self, place, shape, ring, rows)

    def record_permutation(self: Prg, place: Place, length: int) -> Any:
        drawn.append((self.seed, place))
        return permutation(self, place, length)

    monkeypatch.setattr(Prg, "uniform", record_uniform)
    monkeypatch.setattr(Prg, "permutation", record_permutation)
    play(draws, 2)
    # The dealer and one participant draw from each place.
    counts = {key: drawn.count(key) for key in drawn}
    assert set(counts.values()) == {2}
    paths = {place.path for _, place in drawn}
    assert paths == {(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}
    kinds = {place.kind for _, place in drawn}
    assert kinds == {"uniform", "derived", "permutation for 0", "private for 1"}


def places(runtime: Runtime) -> list[Place]:
    """Return the places of a few draws of a table."""
    drawn = []
    with runtime.step("table", 7):
        for shape, ring in (((2,), Z64), ((3, 4), Z32)):
            drawn.append(runtime._next_place("uniform", shape, ring))
        with runtime.step("level", 3):
            drawn.append(runtime._next_place("derived", (1,), Z64))
    return drawn


def test_places_in_a_step_do_not_depend_on_earlier_draws() -> None:
    fresh, used = CostCounter(2), CostCounter(2)
    draws(used, None)
    for table in range(5):
        with used.step("table", table):
            used._next_place("uniform", (3,), Z64)
    used._next_place("uniform", (3,), Z64)
    assert places(fresh) == places(used)
    assert places(CostCounter(3)) == [
        Place("uniform", (7,), 0),
        Place("uniform", (7,), 1),
        Place("derived", (7, 3), 0),
    ]


def test_step_names_and_paths() -> None:
    runtime = CostCounter(2)
    with runtime.step("table", 2):
        assert runtime.step_name == "table"
        with runtime.step("level", 1), runtime.step("inner"):
            assert runtime.step_name == "table/level/inner"
            assert runtime.path == [2, 1]
        assert runtime.path == [2]
    assert (runtime.step_name, runtime.path) == ("", [])
    assert sorted(runtime.meter.seconds) == ["table", "table/level", "table/level/inner"]


def numbered(runtime: Runtime, _: object) -> Any:
    """Enter a table with another number at one participant."""
    is_changed = isinstance(runtime, Party) and runtime.index == 1
    with runtime.step("table", 1 if is_changed else 0):
        x = runtime.share_public(np.zeros(4, dtype=np.uint64), Z64)
        square(runtime, x)


def test_different_step_numbers_are_detected() -> None:
    with pytest.raises(Exception, match="lost step"):
        play(numbered, 2)


class BackgroundCounter(CostCounter):
    """A counter that runs background work as a participant does."""

    submit_background = Runtime.submit_background


def test_background_work_runs_in_order() -> None:
    runtime = BackgroundCounter(2)
    done: list[int] = []

    def work(number: int) -> int:
        time.sleep(0.01 if number == 0 else 0)
        done.append(number)
        return number

    futures = [runtime.submit_background(lambda k=k: work(k)) for k in range(5)]  # type: ignore[misc]
    assert [future.result(5) for future in futures] == list(range(5))
    assert done == list(range(5))

    def fails() -> None:
        raise ValueError("in the background")

    with pytest.raises(ValueError, match="in the background"):
        runtime.submit_background(fails).result(5)
    runtime.shut_down()


def test_shutdown_cancels_pending_background_work() -> None:
    runtime = BackgroundCounter(2)
    started_work, end = threading.Event(), threading.Event()

    def work() -> str:
        started_work.set()
        end.wait(5)
        return "done"

    first = runtime.submit_background(work)
    assert started_work.wait(5)
    second = runtime.submit_background(lambda: "never")
    start = time.monotonic()
    runtime.shut_down()
    runtime.shut_down()
    assert time.monotonic() - start < 1  # shutdown does not wait
    assert second.cancelled()
    end.set()
    assert first.result(5) == "done"
    assert runtime.submit_background(lambda: "again").result(5) == "again"
    runtime.shut_down()


def everything(runtime: Runtime, values: RingArray | None) -> Any:
    """Call all operations of every runtime, in steps."""
    with runtime.step("share"):
        x = runtime.share(values, owner=1, shape=(500,), ring=Z64)
    with runtime.step("table", 0):
        with runtime.step("products"):
            y = multiply(runtime, x, square(runtime, x))
        public = runtime.share_public(np.ones(500, dtype=np.uint64), Z64)
        runtime.reveal(y + public, recipients=[0, 1], disclosure="y")
    finalist = [2, 0, 4, *[0] * (runtime.n_parties - 2)]
    finalists = runtime.share_public(np.array([finalist], np.uint64).T, Z64)
    runtime.reveal_argmax(finalists, ArgmaxCandidates((0, 1), (5, 5), ("split", "detail")))
    return None


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_counter_predicts_the_meters(n: int) -> None:
    values = np.arange(500, dtype=np.uint64)
    views = play(everything, n, [values if k == 1 else None for k in range(n)])
    steps = check_count(everything, views)
    openings = n * (n - 1)
    assert steps == {
        "share": Cost(1, (n - 1) * 4000, 0),
        "table/products/square": Cost(1, openings * 4000, 4000),
        "table/products/multiply": Cost(1, openings * 8000, 4000),
        "table": Cost(1, 2 * (n - 1) * 4000, 0),
        "": Cost(1, openings * 16, 0),
    }
    assert (
        count_program_cost(everything, n, None)
        == measured(views)
        == sum(steps.values(), start=Cost())
    )


def test_a_counter_has_no_data() -> None:
    counter = CostCounter(3)
    shared = counter.share(np.ones(3, dtype=np.uint64), 0, (3,), Z64)
    for value in (
        shared,
        counter.share_public(np.ones(3, dtype=np.uint64), Z64),
        counter.as_opened(np.ones(3, dtype=np.uint64), Z64),
        multiply(counter, shared, shared),
    ):
        assert not value.known
        assert value.shape == (3,)
    runtime: Runtime = counter
    assert runtime.reveal(shared, recipients=[0], disclosure="x") is None
    assert counter.index == Dealer.index == -1


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)
    assert Cost(1, 2, 3) * 4 == Cost(4, 8, 12)
    assert CostCounter(3).total == Cost()
    counter = CostCounter(3)
    counter.count_corrections(Z36, (3,), (4,))
    counter.count_corrections(Z64)
    with counter.step("a"):
        counter.count_opening(Share.unknown((2,), Z64), Share.unknown((1,), Z36))
        counter.count_publication(Z32, [(5,), (5,)])
    assert counter.cost_by_step == {
        "": Cost(0, 0, 14 + 18),
        "a": Cost(2, 6 * (16 + 5) + 2 * 2 * 20, 0),
    }
    assert counter.total == Cost(2, 206, 32)
