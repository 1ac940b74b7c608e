"""Three dealers in threads, whose derived values are combined and checked."""

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
    """A carry, which is zero at a dealer that knows the whole mask."""

    __slots__ = ()


class DiscardingSender(CorrelationSender):
    """A sender that discards all messages to participants."""

    def __init__(self, dealer_peers: DealerPeers, n_parties: int) -> None:
        self._dealer_peers, self._n = dealer_peers, n_parties

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        return self._dealer_peers.exchange_seeds(self._n, b"")

    def send(self, party: int, array: RingArray, tag: int) -> None:
        pass

    def close(self, tag: int) -> None:
        pass


class RecordingDealer(ReplicatedDealer):
    """One of three dealers, which records all its masks and corrections."""

    def __init__(
        self, n_parties: int, sender: DiscardingSender, dealer_peers: DealerPeers, records: Any
    ) -> None:
        super().__init__(n_parties, sender, dealer_peers)
        self.records, self.number = records, dealer_peers.dealer_index
        self._last = threading.local()  # several tables run in parallel

    def _deliver_in_order(self, deliver: Callable[[], None]) -> None:
        if isinstance(deliver, partial) and deliver.func == self._sender.send:
            self._last.correction = deliver.args[1]
        super()._deliver_in_order(deliver)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        carries, bits = super().derive_carries(mask, places, bit)
        assert isinstance(carries, ReplicatedElements)
        return Carry(*carries.parts), bits

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        self._last.correction = None
        value = super().derive(correlation, ring, *masks, as_mask=as_mask)
        shape = correlation.shape(*(mask.shape for mask in masks))
        path = tuple(self.path)
        place = ("derived", path, self._slots["derived", path] - 1)
        drawn = [self._draw_part(part, Place(*place), shape, ring).array for part in range(2)]
        self.records[place][self.number] = (
            self.step_name,
            correlation,
            ring,
            masks,
            drawn,
            self._last.correction,
            value if as_mask else None,
        )
        return value


def whole(values: Sequence[Any]) -> RingArray:
    """Return the sum of the three dealers' parts; check that common parts are equal."""
    ring = values[0].ring
    parts = [[ring.reduce_modulus(part.array) for part in value.parts] for value in values]
    for k in range(N_HOLDERS):
        np.testing.assert_array_equal(parts[k][1], parts[(k + 1) % N_HOLDERS][0])
    total: RingArray = ring.reduce_modulus(sum(part[0] for part in parts[1:]) + parts[0][0])
    return total


def _small(mask: RingArray, ring: Ring) -> RingArray:
    """Return secrets as drawn, as signed numbers."""
    size = 8 * ring.dtype.itemsize - ring.bits
    return (signed(mask << ring.dtype.type(size)) >> size).view(ring.dtype)


def deal(program: Callable[[Dealer], Any], n_parties: int = 2) -> tuple[Any, list[RecordingDealer]]:
    """Run a program at three dealers; return the records, and the dealers."""
    channels = create_memory_channels(NAMES)
    records: Any = defaultdict(dict)
    dealers: dict[int, RecordingDealer] = {}
    failures: list[BaseException] = []

    def body(number: int) -> None:
        try:
            with channels[NAMES[number]] as channel:
                dealer_peers = DealerPeers(number, NAMES, channel)
                dealers[number] = RecordingDealer(
                    n_parties, DiscardingSender(dealer_peers, n_parties), dealer_peers, records
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
    return records, [dealers[k] for k in range(N_HOLDERS)]


def _sums(correlations: Sequence[_HistogramSums], masks: Sequence[RingArray]) -> RingArray:
    """Return the matrix (the sum of the dealers' first parts) times a mask."""
    position = correlations[0]._position
    ring, lattice = correlations[0]._rings[position], correlations[0]._indicators.has_lattice_masks
    mask = [(_small(masks[position], ring) if lattice else masks[position], ring)]
    products = [correlation._indicators.multiply(0, mask)[0] for correlation in correlations]
    total: RingArray = products[0] + products[1] + products[2]
    return total


def check(records: Any) -> Counter[str]:
    """Compare all derived values with those of a single dealer; return their count by gate.

    The values must be equal, except sine and cosine terms, which can differ by one unit.
    """
    counts: Counter[str] = Counter()
    for place, by_dealer in records.items():
        step, correlation, ring, masks, _, _, as_mask = by_dealer[0]
        sums = []
        for k in range(len(masks)):
            parts_of_mask = [by_dealer[number][3][k] for number in range(N_HOLDERS)]
            mask_sum = whole(parts_of_mask)
            sums.append(
                np.zeros_like(mask_sum) if isinstance(parts_of_mask[0], Carry) else mask_sum
            )
        if isinstance(correlation, _HistogramSums):
            expected = ring.reduce_modulus(_sums([by_dealer[k][1] for k in range(N_HOLDERS)], sums))
        else:
            expected = ring.reduce_modulus(correlation.compute_plain(*sums))
        (message,) = [by_dealer[k][5] for k in range(N_HOLDERS) if by_dealer[k][5] is not None]
        (correction,) = Payload.for_array(ring, expected.shape).decode(message)
        parts = [by_dealer[k][4][0] for k in range(N_HOLDERS)]
        total = ring.reduce_modulus(sum(parts[1:]) + parts[0] + correction.reshape(expected.shape))
        gate = step.rpartition("/")[2]
        difference = ring.reduce_modulus(total - expected)
        is_equal = difference == 0
        if gate == "series":
            is_equal |= (difference == 1) | (
                difference == ring.reduce_modulus(ring.to_elements(-1))
            )
        assert is_equal.all(), (
            place,
            step,
            type(correlation).__name__,
            float(is_equal.mean()),
            [m.shape for m in masks],
            expected.shape,
            [type(m).__name__ for m in masks],
            np.argwhere(~is_equal)[:5],
            correlation.__dict__,
        )
        if as_mask is not None:
            value = whole([by_dealer[k][6] for k in range(N_HOLDERS)])
            np.testing.assert_array_equal(value, total)
        counts[gate] += 1
    return counts
