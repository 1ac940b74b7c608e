"""The dealer: knows masks, or parts of them, and no data."""

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

_ROOT_CAUSE_SECONDS = 1.0  # seconds for a thread to say why it failed, once another one has


class OrderedDelivery:
    """Whose turn it is to hand something over."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = deque(numbers)
        self._held: dict[int, deque[Callable[[], None]]] = {n: deque() for n in self._numbers}
        self._changed = threading.Condition()
        self._is_cancelled = False

    def deliver(self, number: int, deliver: Callable[[], None]) -> None:
        """Deliver something if it is the number's turn, and keep it until then if not."""
        self._held[number].append(deliver)
        if self._numbers and self._numbers[0] == number:
            self._deliver(number)

    def finish(self, number: int) -> None:
        """Wait for our turn, deliver all that is kept, and pass the turn on."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_cancelled or self._numbers[0] == number)
            if self._is_cancelled:
                return
        self._deliver(number)
        with self._changed:
            self._numbers.popleft()
            self._changed.notify_all()

    def cancel(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def _deliver(self, number: int) -> None:
        """Deliver what is kept, which the thread of that number alone does."""
        held = self._held[number]
        while held:
            held.popleft()()


def run_ordered_pool(
    numbers: Sequence[int], function: Callable[[OrderedDelivery, int], None], at_once: int
) -> None:
    """Work on so many numbers at once; raise what went wrong first."""
    turns = OrderedDelivery(numbers)

    def body(number: int) -> None:
        function(turns, number)
        turns.finish(number)

    pool = ThreadPoolExecutor(min(at_once, len(numbers)) or 1, thread_name_prefix="dealing")
    futures = [pool.submit(body, number) for number in numbers]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            turns.cancel()
            wait(futures, timeout=_ROOT_CAUSE_SECONDS)
            raise _reason(futures)
    finally:
        # Whoever still works finds the channel closed, and ends.
        turns.cancel()
        pool.shutdown(wait=False, cancel_futures=True)


def _reason(futures: Iterable[Future[None]]) -> BaseException:
    """Return the failure that explains the others: one that found the channel closed does not."""
    done = (future for future in futures if future.done() and not future.cancelled())
    failures = [error for future in done if (error := future.exception()) is not None]
    return min(failures, key=lambda error: isinstance(error, PeerError) and error.peer is None)


MAX_PARALLEL_TABLES = 4
"""How many tables are dealt at once, if they are small: enough to hide some milliseconds' delay."""
_MAX_PARALLEL_ELEMENTS = 1 << 24
"""Of so many elements at most; of larger ones fewer, since each is in memory."""
_N_STREAMS = 8
"""On so many streams, so that it need not be the same number at all of several dealers."""


class _ThreadState(threading.local):
    """What each thread that deals a table has of its own; the program's own thread has none."""

    position: Position | None = None
    deliver: Callable[[Callable[[], None]], None] | None = None
    stream = 0


class Dealer(ShapeRuntime):
    """Runs a program ahead of the participants and sends what its gates derive."""

    n_mask_parts = 1
    """In how many parts we have every mask."""

    def __init__(
        self, n_parties: int, sender: CorrelationSender, network: NetworkModel | None = None
    ) -> None:
        self._thread = _ThreadState()
        super().__init__(n_parties, network)
        self._sender = sender
        self.background_seconds = 0.0
        """How long other threads than that of the program have computed."""

    @property
    def _draw_position(self) -> Position:
        return self._thread.position or self._main

    @_draw_position.setter
    def _draw_position(self, cursor: Position) -> None:
        if self._thread.position is None:
            self._main = cursor
        else:
            self._thread.position = cursor

    def map_tables(
        self, numbers: Sequence[int], function: Callable[[int], None], n_elements: int
    ) -> None:
        """Do some work for several numbers at once; what is sent to participants is in order."""
        outer, at_once = (
            self._draw_position,
            min(
                MAX_PARALLEL_TABLES,
                max(1, MAX_PARALLEL_TABLES * _MAX_PARALLEL_ELEMENTS // max(1, n_elements)),
            ),
        )
        assert not outer.path, "what is done side by side are the outermost steps with a number"

        def one(turns: OrderedDelivery, number: int) -> None:
            own = self._thread
            own.position, own.stream = outer, 1 + number % _N_STREAMS
            own.deliver = partial(turns.deliver, number)
            started = time.thread_time()
            try:
                function(number)
            except PrivetError as error:
                error.set_step_if_unknown(self.step_name)
                raise
            finally:
                seconds = time.thread_time() - started
                own.deliver(partial(self._add_seconds, seconds))

        run_ordered_pool(numbers, one, at_once)

    def _add_seconds(self, seconds: float) -> None:
        self.background_seconds += seconds

    def report_progress(self, done: int) -> None:
        """Tell whoever watches us, in order."""
        self._deliver_in_order(lambda: super(Dealer, self).report_progress(done))

    def _deliver_in_order(self, deliver: Callable[[], None]) -> None:
        """Do something when all tables before ours have done it."""
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
        """Give the participants shares of a value that follows from masks.

        Return it as a mask of its own if it is `as_mask`; its shape, if not.
        """

    @abstractmethod
    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return what carries into some bits as S and T of a mask are added, and one of its bits.

        Masks over one bit, (places, *mask) and (*mask); zeros where no bit is asked for. Nobody is
        given shares of them yet. Carries are those of S and T as they are now: they are used at
        once, before the roles of several dealers change.
        """

    @abstractmethod
    def draw_persistent_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return what `persistent_mask` does, as a mask."""

    def uniform_shares(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value; to a sole dealer alone."""
        raise self._unsupported_error("shares")

    def distribute(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know; as a sole dealer alone."""
        raise self._unsupported_error("values")

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows; to a sole dealer alone."""
        raise self._unsupported_error("permutations")

    @staticmethod
    def _unsupported_error(requested: str) -> Exception:
        return NotImplementedError(f"of several dealers none knows {requested}")

    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return what a dealer has of shared values: their shape."""
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> None:
        """Learn nothing."""
        self.update_tag(f"reveal {disclosure} to {list(recipients)}")

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> None:
        """Learn nothing."""
        self.update_tag(f"reveal {candidates}")

    def announce(self, number: int | None, owner: int, disclosure: str) -> int | None:
        """Wait for the number, if anybody is there."""
        self.update_tag(f"announce {disclosure}")
        return self._sender.receive_announcement(owner, self._tag.value)

    def close(self) -> None:
        """Say that there is no more to come."""
        self._sender.close(self._tag.value)


class SingleDealer(Dealer):
    """The only one, who knows all masks."""

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
        """Return the sum of small numbers that each participant has."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Elements(SummedPrg(self._share_prgs).sample(sampler, place, shape, ring), ring)

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Give the participants shares of a value that follows from masks."""
        value = self.distribute(correlation.compute_plain(*(mask.array for mask in masks)), ring)
        return value if as_mask else Elements.unknown(value.shape, ring)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return no carries, since we know the mask whole, and the bit."""
        carries = self.zero_mask((len(places), *mask.shape), Z1)
        if bit is None:
            return carries, self.zero_mask(mask.shape, Z1)
        found = (mask.array >> mask.ring.dtype.type(bit)).astype(np.uint8) & np.uint8(1)
        return carries, Elements(found, Z1)

    def distribute(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know, and return it.

        `derive` can be done by several.
        """
        place = self._next_place("derived", value.shape, ring)
        drawn = sum_arrays(
            (prg.uniform(place, value.shape, ring) for prg in self._share_prgs), ring
        )
        letter = Payload.for_array(ring, value.shape)
        correction = letter.encode([ring.subtract(value, drawn)])
        turn = self._draw_position.choose_correction_recipient(letter.nbytes)
        self._deliver_in_order(partial(self._sender.send, turn, correction, self._tag.value))
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
        """Return what `persistent_mask` does, as a mask."""
        found = self.persistent_mask(shape, ring, owner)
        assert found is not None
        return Elements(found, ring)
