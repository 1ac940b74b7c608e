"""What all runtimes have in common: steps, places, and work in the background."""

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
    """Draws of all kinds in, before, between and after steps with numbers and without."""
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
    """Not even where a step with the same number comes again."""
    drawn: list[tuple[bytes, Place]] = []
    uniform, permutation = Prg.uniform, Prg.permutation

    def noted(
        self: Prg, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        drawn.append((self.seed, place))
        return uniform(self, place, shape, ring, rows)

    def noted_permutation(self: Prg, place: Place, length: int) -> Any:
        drawn.append((self.seed, place))
        return permutation(self, place, length)

    monkeypatch.setattr(Prg, "uniform", noted)
    monkeypatch.setattr(Prg, "permutation", noted_permutation)
    play(draws, 2)
    # The dealer draws what every participant draws, and each participant what is its own.
    counts = {key: drawn.count(key) for key in drawn}
    assert set(counts.values()) == {2}
    paths = {place.path for _, place in drawn}
    assert paths == {(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}
    kinds = {place.kind for _, place in drawn}
    assert kinds == {"uniform", "derived", "permutation for 0", "private for 1"}


def places(runtime: Runtime) -> list[Place]:
    """The places of a few draws of a table, whatever was drawn before it."""
    found = []
    with runtime.step("table", 7):
        for shape, ring in (((2,), Z64), ((3, 4), Z32)):
            found.append(runtime._next_place("uniform", shape, ring))
        with runtime.step("level", 3):
            found.append(runtime._next_place("derived", (1,), Z64))
    return found


def test_what_a_step_draws_does_not_depend_on_what_was_drawn_before() -> None:
    fresh, worn = CostCounter(2), CostCounter(2)
    draws(worn, None)
    for table in range(5):
        with worn.step("table", table):
            worn._next_place("uniform", (3,), Z64)
    worn._next_place("uniform", (3,), Z64)
    assert places(fresh) == places(worn)
    assert places(CostCounter(3)) == [
        Place("uniform", (7,), 0),
        Place("uniform", (7,), 1),
        Place("derived", (7, 3), 0),
    ]


def test_steps_have_names_and_numbers_have_places() -> None:
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
    """One participant gives a table another number."""
    odd = isinstance(runtime, Party) and runtime.index == 1
    with runtime.step("table", 1 if odd else 0):
        x = runtime.share_public(np.zeros(4, dtype=np.uint64), Z64)
        square(runtime, x)


def test_numbers_are_agreed() -> None:
    with pytest.raises(Exception, match="lost step"):
        play(numbered, 2)


class Waiting(CostCounter):
    """Somebody who has time to use while it waits for others, as a participant has."""

    submit_background = Runtime.submit_background


def test_background_work_is_done_in_turn() -> None:
    runtime = Waiting(2)
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


def test_what_has_not_begun_is_let_go_of() -> None:
    runtime = Waiting(2)
    going, end = threading.Event(), threading.Event()

    def work() -> str:
        going.set()
        end.wait(5)
        return "done"

    first = runtime.submit_background(work)
    assert going.wait(5)
    second = runtime.submit_background(lambda: "never")
    started = time.monotonic()
    runtime.shut_down()
    runtime.shut_down()
    assert time.monotonic() - started < 1  # whoever lets go does not wait
    assert second.cancelled()
    end.set()
    assert first.result(5) == "done"
    assert runtime.submit_background(lambda: "again").result(5) == "again"
    runtime.shut_down()


def everything(runtime: Runtime, values: RingArray | None) -> Any:
    """All that programs ask of any runtime, in steps."""
    with runtime.step("share"):
        x = runtime.share(values, owner=1, shape=(500,), ring=Z64)
    with runtime.step("table", 0):
        with runtime.step("products"):
            y = multiply(runtime, x, square(runtime, x))
        known = runtime.share_public(np.ones(500, dtype=np.uint64), Z64)
        runtime.reveal(y + known, recipients=[0, 1], disclosure="y")
    winner = [2, 0, 4, *[0] * (runtime.n_parties - 2)]
    finalists = runtime.share_public(np.array([winner], np.uint64).T, Z64)
    runtime.reveal_argmax(finalists, ArgmaxCandidates((0, 1), (5, 5), ("thing", "detail")))
    return None


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_counter_says_what_the_meters_will(n: int) -> None:
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
