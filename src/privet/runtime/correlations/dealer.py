"""The dealer: distributes correlated randomness; knows masks, or parts of them, and no data."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, Sampler, SummedPrg, derive_seed
from privet.arithmetic.rings import Z1, Z64, Ring, RingArray, sum_arrays
from privet.arithmetic.shares import Elements, Share
from privet.errors import PeerError, PrivetError
from privet.runtime.correlations.correlation import Correlation
from privet.runtime.correlations.source import CorrelationSender
from privet.runtime.opening import NetworkModel, Payload
from privet.runtime.runtime import ArgmaxCandidates, Owned, Owners, Position, Shape, ShapeRuntime

_ROOT_CAUSE_SECONDS = 1.0  # for the cause of a failure, after one thread has failed


class OrderedDelivery:
    """Delivers the outputs of parallel tables in the order of their numbers."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = deque(numbers)
        self._held: dict[int, deque[Callable[[], None]]] = {n: deque() for n in self._numbers}
        self._changed = threading.Condition()
        self._is_cancelled = False

    def deliver(self, number: int, deliver: Callable[[], None]) -> None:
        """Deliver an output at once if it is the number's turn, and hold it until then if not."""
        self._held[number].append(deliver)
        if self._numbers and self._numbers[0] == number:
            self._deliver(number)

    def finish(self, number: int) -> None:
        """Wait for the number's turn, deliver its held outputs, and pass the turn on."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_cancelled or self._numbers[0] == number)
            if self._is_cancelled:
                return
        self._deliver(number)
        with self._changed:
            self._numbers.popleft()
            self._changed.notify_all()

    def cancel(self) -> None:
        """Release all waiting threads."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def _deliver(self, number: int) -> None:
        """Deliver held outputs; only the thread of that number calls this."""
        held = self._held[number]
        while held:
            held.popleft()()


def run_ordered_pool(
    numbers: Sequence[int], function: Callable[[OrderedDelivery, int], None], at_once: int
) -> None:
    """Call a function for `at_once` numbers in parallel; raise the first failure."""
    delivery = OrderedDelivery(numbers)

    def body(number: int) -> None:
        function(delivery, number)
        delivery.finish(number)

    pool = ThreadPoolExecutor(min(at_once, len(numbers)) or 1, thread_name_prefix="dealing")
    futures = [pool.submit(body, number) for number in numbers]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            delivery.cancel()
            wait(futures, timeout=_ROOT_CAUSE_SECONDS)
            raise _find_root_cause(futures)
    finally:
        # Threads that are still running find the channel closed, and end.
        delivery.cancel()
        pool.shutdown(wait=False, cancel_futures=True)


def _find_root_cause(futures: Iterable[Future[None]]) -> BaseException:
    """Return the failure that caused the others: not one that found the channel closed."""
    done = (future for future in futures if future.done() and not future.cancelled())
    failures = [error for future in done if (error := future.exception()) is not None]
    return min(failures, key=lambda error: isinstance(error, PeerError) and error.peer is None)


MAX_PARALLEL_TABLES = 4
"""Tables that run in parallel, if they are small: enough to hide a delay of milliseconds."""
_MAX_PARALLEL_ELEMENTS = 1 << 24
"""Elements per table up to which all of them run in parallel; each table is in memory."""
_N_STREAMS = 8
"""Streams for tables: several dealers need not run the same number of tables in parallel."""


class _ThreadState(threading.local):
    """The state of a thread that runs one table; the main thread of the program has no state."""

    position: Position | None = None
    deliver: Callable[[Callable[[], None]], None] | None = None
    stream = 0


class Dealer(ShapeRuntime):
    """Runs a program ahead of the participants, and distributes its correlated randomness."""

    n_mask_parts = 1
    """The number of parts of each mask that this dealer has."""

    def __init__(
        self, n_parties: int, sender: CorrelationSender, network: NetworkModel | None = None
    ) -> None:
        self._thread = _ThreadState()
        super().__init__(n_parties, network)
        self._sender = sender
        self.background_seconds = 0.0
        """Computing time of all threads except the main one."""

    @property
    def _draw_position(self) -> Position:
        return self._thread.position or self._main

    @_draw_position.setter
    def _draw_position(self, position: Position) -> None:
        if self._thread.position is None:
            self._main = position
        else:
            self._thread.position = position

    def map_tables(
        self, numbers: Sequence[int], function: Callable[[int], None], n_elements: int
    ) -> None:
        """Call a function for several numbers in parallel; participants get messages in order."""
        outer, at_once = (
            self._draw_position,
            min(
                MAX_PARALLEL_TABLES,
                max(1, MAX_PARALLEL_TABLES * _MAX_PARALLEL_ELEMENTS // max(1, n_elements)),
            ),
        )
        assert not outer.path, "only outermost numbered steps run in parallel"

        def run_one(delivery: OrderedDelivery, number: int) -> None:
            state = self._thread
            state.position, state.stream = outer, 1 + number % _N_STREAMS
            state.deliver = partial(delivery.deliver, number)
            started = time.thread_time()
            try:
                function(number)
            except PrivetError as error:
                error.set_step_if_unknown(self.step_name)
                raise
            finally:
                seconds = time.thread_time() - started
                state.deliver(partial(self._add_seconds, seconds))

        run_ordered_pool(numbers, run_one, at_once)

    def _add_seconds(self, seconds: float) -> None:
        self.background_seconds += seconds

    def report_progress(self, done: int) -> None:
        """Report progress in the order of tables."""
        self._deliver_in_order(lambda: super(Dealer, self).report_progress(done))

    def _deliver_in_order(self, deliver: Callable[[], None]) -> None:
        """Deliver an output after the outputs of all earlier tables."""
        if self._thread.deliver is None:
            deliver()
        else:
            self._thread.deliver(deliver)

    @abstractmethod
    def uniform(self, shape: Shape, ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""

    @abstractmethod
    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Elements:
        """Return small numbers that the participants hold small shares of, by a sampler."""

    @abstractmethod
    def private(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return fresh uniform values that one participant knows."""

    @abstractmethod
    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Distribute shares of a value derived from masks.

        Returns the value as a mask with `as_mask`, and otherwise only its shape.
        """

    @abstractmethod
    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return the carries into some bits when S and T of a mask are added, and one of its bits.

        Both are one-bit masks, (places, *mask) and (*mask); zeros without a requested bit. No
        participant has shares of them yet. The carries depend on the current S and T: callers must
        use them at once, before the roles of several dealers change.
        """

    @abstractmethod
    def draw_persistent_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return the values of `persistent_mask`, as a mask."""

    def uniform_shares(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value; only with a single dealer."""
        raise self._unsupported_error("shares")

    def distribute(self, value: RingArray, ring: Ring) -> Elements:
        """Distribute shares of a value that only this dealer knows; only with a single dealer."""
        raise self._unsupported_error("values")

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh permutation that one participant knows; only with a single dealer."""
        raise self._unsupported_error("permutations")

    @staticmethod
    def _unsupported_error(requested: str) -> Exception:
        return NotImplementedError(f"no dealer knows {requested} with several dealers")

    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return only the shape of shared values: the dealer has no shares of them."""
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> None:
        """Learn nothing."""
        self.update_tag(f"reveal {disclosure} to {list(recipients)}")

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> None:
        """Learn nothing."""
        self.update_tag(f"reveal {candidates}")

    def announce(self, number: int | None, owner: int, disclosure: str) -> int | None:
        """Wait for the number, if participants are online."""
        self.update_tag(f"announce {disclosure}")
        return self._sender.receive_announcement(owner, self._tag.value)

    def close(self) -> None:
        """Send the closing tags."""
        self._sender.close(self._tag.value)


class SingleDealer(Dealer):
    """A single dealer, which knows all masks."""

    def __init__(
        self, n_parties: int, sender: CorrelationSender, network: NetworkModel | None = None
    ) -> None:
        super().__init__(n_parties, sender, network)
        self.randomness_id, seeds = sender.distribute_seeds()
        self.update_tag(self.randomness_id)
        self._share_prgs = [Prg(derive_seed(seed, "shares")) for seed in seeds]
        self._private_prgs = [Prg(derive_seed(seed, "private")) for seed in seeds]

    def uniform_shares(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return [prg.uniform(place, shape, ring) for prg in self._share_prgs]

    def uniform(self, shape: Shape, ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""
        return Elements(sum_arrays(self.uniform_shares(shape, ring), ring), ring)

    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Elements:
        """Return the sum of the participants' small numbers."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Elements(SummedPrg(self._share_prgs).sample(sampler, place, shape, ring), ring)

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Distribute shares of a value derived from masks."""
        value = self.distribute(correlation.compute_plain(*(mask.array for mask in masks)), ring)
        return value if as_mask else Elements.unknown(value.shape, ring)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return zero carries, because this dealer knows the whole mask, and the bit."""
        carries = self.zero_mask((len(places), *mask.shape), Z1)
        if bit is None:
            return carries, self.zero_mask(mask.shape, Z1)
        bits = (mask.array >> mask.ring.dtype.type(bit)).astype(np.uint8) & np.uint8(1)
        return carries, Elements(bits, Z1)

    def distribute(self, value: RingArray, ring: Ring) -> Elements:
        """Distribute shares of a value that only this dealer knows, and return it.

        Several dealers can only `derive` values.
        """
        place = self._next_place("derived", value.shape, ring)
        drawn = sum_arrays(
            (prg.uniform(place, value.shape, ring) for prg in self._share_prgs), ring
        )
        payload = Payload.for_array(ring, value.shape)
        correction = payload.encode([ring.subtract(value, drawn)])
        recipient = self._draw_position.choose_correction_recipient(payload.nbytes)
        self._deliver_in_order(partial(self._sender.send, recipient, correction, self._tag.value))
        return Elements(value, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows, too."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private_prgs[owner].permutation(place, length)

    def private(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return fresh uniform values that one participant knows, too."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return Elements(self._private_prgs[owner].uniform(place, shape, ring), ring)

    def draw_persistent_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return the values of `persistent_mask`, as a mask."""
        values = self.persistent_mask(shape, ring, owner)
        assert values is not None
        return Elements(values, ring)
