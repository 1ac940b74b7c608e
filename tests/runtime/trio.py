"""Three dealers in threads, with all that they derive put together and checked."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from privet.arithmetic.prg import Place
from privet.arithmetic.rings import Ring, RingArray, signed
from privet.arithmetic.shares import HOLDERS, Elements, Replicated
from privet.gates.masked.histogram import _Sums
from privet.runtime.correlations.correlation import Recipe
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.correlations.replicated import Fellows, OneOfThree
from privet.runtime.correlations.source import Sink
from privet.runtime.opening import Letter
from privet.transport.memory import memory_channels

NAMES = ("dealer1", "dealer2", "dealer3")


class Carry(Replicated):
    """A carry, of which a dealer that knows the whole mask has zeros."""

    __slots__ = ()


class Corrections(Sink):
    """What participants are sent."""

    def __init__(self, fellows: Fellows, n_parties: int) -> None:
        self._fellows, self._n = fellows, n_parties

    def start(self) -> tuple[str, list[list[bytes]]]:
        return self._fellows.meet(self._n, b"")

    def send(self, party: int, array: RingArray, tag: int) -> None:
        pass

    def close(self, tag: int) -> None:
        pass


class Watched(OneOfThree):
    """One of three dealers, all of whose masks and corrections are noted."""

    def __init__(self, n_parties: int, sink: Corrections, fellows: Fellows, notes: Any) -> None:
        super().__init__(n_parties, sink, fellows)
        self.notes, self.number = notes, fellows.number
        self._last = threading.local()  # several tables are dealt at once

    def _in_order(self, deliver: Callable[[], None]) -> None:
        if isinstance(deliver, partial) and deliver.func == self._sink.send:
            self._last.correction = deliver.args[1]
        super()._in_order(deliver)

    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        found, top = super().carries(mask, places, bit)
        assert isinstance(found, Replicated)
        return Carry(*found.parts), top

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        self._last.correction = None
        found = super().derive(recipe, ring, *masks, kept=kept)
        shape = recipe.shape(*(mask.shape for mask in masks))
        path = tuple(self.path)
        place = ("derived", path, self._slots["derived", path] - 1)
        drawn = [self._draw(part, Place(*place), shape, ring).array for part in range(2)]
        self.notes[place][self.number] = (
            self.step_name,
            recipe,
            ring,
            masks,
            drawn,
            self._last.correction,
            found if kept else None,
        )
        return found


def whole(values: Sequence[Any]) -> RingArray:
    """Return what the parts that three dealers have add up to; those that two have are equal."""
    ring = values[0].ring
    parts = [[ring.reduce(part.array) for part in value.parts] for value in values]
    for k in range(HOLDERS):
        np.testing.assert_array_equal(parts[k][1], parts[(k + 1) % HOLDERS][0])
    total: RingArray = ring.reduce(sum(part[0] for part in parts[1:]) + parts[0][0])
    return total


def _small(mask: RingArray, ring: Ring) -> RingArray:
    """Return secrets as they are drawn: of any sign."""
    size = 8 * ring.dtype.itemsize - ring.bits
    return (signed(mask << ring.dtype.type(size)) >> size).view(ring.dtype)


def deal(program: Callable[[Dealer], Any], n_parties: int = 2) -> tuple[Any, list[Watched]]:
    """Run a program at three dealers; return what was noted, and them."""
    channels = memory_channels(NAMES)
    notes: Any = defaultdict(dict)
    dealers: dict[int, Watched] = {}
    failures: list[BaseException] = []

    def body(number: int) -> None:
        try:
            with channels[NAMES[number]] as channel:
                fellows = Fellows(number, NAMES, channel)
                dealers[number] = Watched(
                    n_parties, Corrections(fellows, n_parties), fellows, notes
                )
                program(dealers[number])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=body, args=(k,), daemon=True) for k in range(HOLDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return notes, [dealers[k] for k in range(HOLDERS)]


def _sums(recipes: Sequence[_Sums], masks: Sequence[RingArray]) -> RingArray:
    """Return the matrix, of which each dealer's first part is a part, times a mask."""
    position = recipes[0]._position
    ring, lattice = recipes[0]._rings[position], recipes[0]._indicators.lattice
    mask = [(_small(masks[position], ring) if lattice else masks[position], ring)]
    found = [recipe._indicators.times(0, mask)[0] for recipe in recipes]
    total: RingArray = found[0] + found[1] + found[2]
    return total


def check(notes: Any) -> Counter[str]:
    """Compare all that was derived with what one dealer derives; return how often, by gate.

    Exactly, but for waves, which may be off by a unit.
    """
    made: Counter[str] = Counter()
    for place, by_dealer in notes.items():
        step, recipe, ring, masks, _, _, kept = by_dealer[0]
        wholes = []
        for k in range(len(masks)):
            each = [by_dealer[number][3][k] for number in range(HOLDERS)]
            found = whole(each)
            wholes.append(np.zeros_like(found) if isinstance(each[0], Carry) else found)
        if isinstance(recipe, _Sums):
            expected = ring.reduce(_sums([by_dealer[k][1] for k in range(HOLDERS)], wholes))
        else:
            expected = ring.reduce(recipe.alone(*wholes))
        (message,) = [by_dealer[k][5] for k in range(HOLDERS) if by_dealer[k][5] is not None]
        (correction,) = Letter.of(ring, expected.shape).read(message)
        parts = [by_dealer[k][4][0] for k in range(HOLDERS)]
        total = ring.reduce(sum(parts[1:]) + parts[0] + correction.reshape(expected.shape))
        gate = step.rpartition("/")[2]
        difference = ring.reduce(total - expected)
        fine = difference == 0
        if gate == "series":
            fine |= (difference == 1) | (difference == ring.reduce(ring.array(-1)))
        assert fine.all(), (
            place,
            step,
            type(recipe).__name__,
            float(fine.mean()),
            [m.shape for m in masks],
            expected.shape,
            [type(m).__name__ for m in masks],
            np.argwhere(~fine)[:5],
            recipe.__dict__,
        )
        if kept is not None:
            again = whole([by_dealer[k][6] for k in range(HOLDERS)])
            np.testing.assert_array_equal(again, total)
        made[gate] += 1
    return made
