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
from privet.arithmetic.shares import N_HOLDERS, Elements, ReplicatedElements
from privet.gates.masked.histogram import _HistogramSums
from privet.runtime.correlations.correlation import Correlation
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer
from privet.runtime.correlations.source import CorrelationSender
from privet.runtime.opening import Payload
from privet.transport.memory import create_memory_channels

NAMES = ("dealer1", "dealer2", "dealer3")


class Carry(ReplicatedElements):
    """A carry, of which a dealer that knows the whole mask has zeros."""

    __slots__ = ()


class Corrections(CorrelationSender):
    """What participants are sent."""

    def __init__(self, fellows: DealerPeers, n_parties: int) -> None:
        self._fellows, self._n = fellows, n_parties

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        return self._fellows.exchange_seeds(self._n, b"")

    def send(self, party: int, array: RingArray, tag: int) -> None:
        pass

    def close(self, tag: int) -> None:
        pass


class Watched(ReplicatedDealer):
    """One of three dealers, all of whose masks and corrections are noted."""

    def __init__(self, n_parties: int, sink: Corrections, fellows: DealerPeers, notes: Any) -> None:
        super().__init__(n_parties, sink, fellows)
        self.notes, self.number = notes, fellows.dealer_index
        self._last = threading.local()  # several tables are dealt at once

    def _deliver_in_order(self, deliver: Callable[[], None]) -> None:
        if isinstance(deliver, partial) and deliver.func == self._sender.send:
            self._last.correction = deliver.args[1]
        super()._deliver_in_order(deliver)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        found, top = super().derive_carries(mask, places, bit)
        assert isinstance(found, ReplicatedElements)
        return Carry(*found.parts), top

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        self._last.correction = None
        found = super().derive(correlation, ring, *masks, as_mask=as_mask)
        shape = correlation.shape(*(mask.shape for mask in masks))
        path = tuple(self.path)
        place = ("derived", path, self._slots["derived", path] - 1)
        drawn = [self._draw_part(part, Place(*place), shape, ring).array for part in range(2)]
        self.notes[place][self.number] = (
            self.step_name,
            correlation,
            ring,
            masks,
            drawn,
            self._last.correction,
            found if as_mask else None,
        )
        return found


def whole(values: Sequence[Any]) -> RingArray:
    """Return what the parts that three dealers have add up to; those that two have are equal."""
    ring = values[0].ring
    parts = [[ring.reduce_modulus(part.array) for part in value.parts] for value in values]
    for k in range(N_HOLDERS):
        np.testing.assert_array_equal(parts[k][1], parts[(k + 1) % N_HOLDERS][0])
    total: RingArray = ring.reduce_modulus(sum(part[0] for part in parts[1:]) + parts[0][0])
    return total


def _small(mask: RingArray, ring: Ring) -> RingArray:
    """Return secrets as they are drawn: of any sign."""
    size = 8 * ring.dtype.itemsize - ring.bits
    return (signed(mask << ring.dtype.type(size)) >> size).view(ring.dtype)


def deal(program: Callable[[Dealer], Any], n_parties: int = 2) -> tuple[Any, list[Watched]]:
    """Run a program at three dealers; return what was noted, and them."""
    channels = create_memory_channels(NAMES)
    notes: Any = defaultdict(dict)
    dealers: dict[int, Watched] = {}
    failures: list[BaseException] = []

    def body(number: int) -> None:
        try:
            with channels[NAMES[number]] as channel:
                fellows = DealerPeers(number, NAMES, channel)
                dealers[number] = Watched(
                    n_parties, Corrections(fellows, n_parties), fellows, notes
                )
                program(dealers[number])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=body, args=(k,), daemon=True) for k in range(N_HOLDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return notes, [dealers[k] for k in range(N_HOLDERS)]


def _sums(recipes: Sequence[_HistogramSums], masks: Sequence[RingArray]) -> RingArray:
    """Return the matrix, of which each dealer's first part is a part, times a mask."""
    position = recipes[0]._position
    ring, lattice = recipes[0]._rings[position], recipes[0]._indicators.has_lattice_masks
    mask = [(_small(masks[position], ring) if lattice else masks[position], ring)]
    found = [recipe._indicators.multiply(0, mask)[0] for recipe in recipes]
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
            each = [by_dealer[number][3][k] for number in range(N_HOLDERS)]
            found = whole(each)
            wholes.append(np.zeros_like(found) if isinstance(each[0], Carry) else found)
        if isinstance(recipe, _HistogramSums):
            expected = ring.reduce_modulus(
                _sums([by_dealer[k][1] for k in range(N_HOLDERS)], wholes)
            )
        else:
            expected = ring.reduce_modulus(recipe.compute_plain(*wholes))
        (message,) = [by_dealer[k][5] for k in range(N_HOLDERS) if by_dealer[k][5] is not None]
        (correction,) = Payload.for_array(ring, expected.shape).decode(message)
        parts = [by_dealer[k][4][0] for k in range(N_HOLDERS)]
        total = ring.reduce_modulus(sum(parts[1:]) + parts[0] + correction.reshape(expected.shape))
        gate = step.rpartition("/")[2]
        difference = ring.reduce_modulus(total - expected)
        fine = difference == 0
        if gate == "series":
            fine |= (difference == 1) | (difference == ring.reduce_modulus(ring.to_elements(-1)))
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
            again = whole([by_dealer[k][6] for k in range(N_HOLDERS)])
            np.testing.assert_array_equal(again, total)
        made[gate] += 1
    return made
