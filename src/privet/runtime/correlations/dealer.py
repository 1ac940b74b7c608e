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

from privet.arithmetic.prg import Prg, Sampler, Sum, derive_seed
from privet.arithmetic.rings import Z1, Z64, Ring, RingArray, total
from privet.arithmetic.shares import Elements, Share
from privet.errors import PeerError, PrivetError
from privet.runtime.correlations.correlation import Recipe
from privet.runtime.correlations.source import Sink
from privet.runtime.opening import Letter, Link
from privet.runtime.runtime import Blind, Cursor, Owned, Owners, Shape, Things

_TOGETHER = 1.0  # seconds for a thread to say why it failed, once another one has


class Turns:
    """Whose turn it is to hand something over."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = deque(numbers)
        self._held: dict[int, deque[Callable[[], None]]] = {n: deque() for n in self._numbers}
        self._changed = threading.Condition()
        self._given_up = False

    def hand_over(self, number: int, deliver: Callable[[], None]) -> None:
        """Deliver something if it is the number's turn, and keep it until then if not."""
        self._held[number].append(deliver)
        if self._numbers and self._numbers[0] == number:
            self._deliver(number)

    def end(self, number: int) -> None:
        """Wait for our turn, deliver all that is kept, and pass the turn on."""
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or self._numbers[0] == number)
            if self._given_up:
                return
        self._deliver(number)
        with self._changed:
            self._numbers.popleft()
            self._changed.notify_all()

    def give_up(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def _deliver(self, number: int) -> None:
        """Deliver what is kept, which the thread of that number alone does."""
        held = self._held[number]
        while held:
            held.popleft()()


def side_by_side(numbers: Sequence[int], work: Callable[[Turns, int], None], at_once: int) -> None:
    """Work on so many numbers at once; raise what went wrong first."""
    turns = Turns(numbers)

    def body(number: int) -> None:
        work(turns, number)
        turns.end(number)

    pool = ThreadPoolExecutor(min(at_once, len(numbers)) or 1, thread_name_prefix="dealing")
    futures = [pool.submit(body, number) for number in numbers]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            turns.give_up()
            wait(futures, timeout=_TOGETHER)
            raise _reason(futures)
    finally:
        # Whoever still works finds the channel closed, and ends.
        turns.give_up()
        pool.shutdown(wait=False, cancel_futures=True)


def _reason(futures: Iterable[Future[None]]) -> BaseException:
    """Return the failure that explains the others: one that found the channel closed does not."""
    done = (future for future in futures if future.done() and not future.cancelled())
    failures = [error for future in done if (error := future.exception()) is not None]
    return min(failures, key=lambda error: isinstance(error, PeerError) and error.peer is None)


AT_ONCE = 4
"""How many tables are dealt at once, if they are small: enough to hide some milliseconds' delay."""
_SMALL = 1 << 24
"""Of so many elements at most; of larger ones fewer, since each is in memory."""
_STREAMS = 8
"""On so many streams, so that it need not be the same number at all of several dealers."""


class _Thread(threading.local):
    """What each thread that deals a table has of its own; the program's own thread has none."""

    at: Cursor | None = None
    deliver: Callable[[Callable[[], None]], None] | None = None
    stream = 0


class Dealer(Blind):
    """Runs a program ahead of the participants and sends what its gates derive."""

    parts = 1
    """In how many parts we have every mask."""

    def __init__(self, n_parties: int, sink: Sink, link: Link | None = None) -> None:
        self._thread = _Thread()
        super().__init__(n_parties, link)
        self._sink = sink
        self.seconds_aside = 0.0
        """How long other threads than that of the program have computed."""

    @property
    def _at(self) -> Cursor:
        return self._thread.at or self._main

    @_at.setter
    def _at(self, cursor: Cursor) -> None:
        if self._thread.at is None:
            self._main = cursor
        else:
            self._thread.at = cursor

    def each(self, numbers: Sequence[int], work: Callable[[int], None], size: int) -> None:
        """Do some work for several numbers at once; what is sent to participants is in order."""
        outer, at_once = self._at, min(AT_ONCE, max(1, AT_ONCE * _SMALL // max(1, size)))
        assert not outer.path, "what is done side by side are the outermost steps with a number"

        def one(turns: Turns, number: int) -> None:
            own = self._thread
            own.at, own.stream = outer, 1 + number % _STREAMS
            own.deliver = partial(turns.hand_over, number)
            started = time.thread_time()
            try:
                work(number)
            except PrivetError as error:
                error.note_step(self.step_name)
                raise
            finally:
                seconds = time.thread_time() - started
                own.deliver(partial(self._add_seconds, seconds))

        side_by_side(numbers, one, at_once)

    def _add_seconds(self, seconds: float) -> None:
        self.seconds_aside += seconds

    def progress(self, done: int) -> None:
        """Tell whoever watches us, in order."""
        self._in_order(lambda: super(Dealer, self).progress(done))

    def _in_order(self, deliver: Callable[[], None]) -> None:
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
    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Give the participants shares of a value that follows from masks.

        Return it as a mask of its own if it is `kept`; its shape, if not.
        """

    @abstractmethod
    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return what carries into some bits as S and T of a mask are added, and one of its bits.

        Masks over one bit, (places, *mask) and (*mask); zeros where no bit is asked for. Nobody is
        given shares of them yet. Carries are those of S and T as they are now: they are used at
        once, before the roles of several dealers change.
        """

    @abstractmethod
    def lasting_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return what `lasting` does, as a mask."""

    def uniform_parts(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value; to a sole dealer alone."""
        raise self._several("shares")

    def deal(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know; as a sole dealer alone."""
        raise self._several("values")

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows; to a sole dealer alone."""
        raise self._several("permutations")

    @staticmethod
    def _several(what: str) -> Exception:
        return NotImplementedError(f"of several dealers none knows {what}")

    def share_each(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return what a dealer has of shared values: their shape."""
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, to: Sequence[int], what: str) -> None:
        """Learn nothing."""
        self.note(f"reveal {what} to {list(to)}")

    def reveal_winner(self, finalists: Share, things: Things) -> None:
        """Learn nothing."""
        self.note(f"reveal {things}")

    def announce(self, number: int | None, owner: int, what: str) -> int | None:
        """Wait for the number, if anybody is there."""
        self.note(f"announce {what}")
        return self._sink.hear(owner, self._tag.value)

    def close(self) -> None:
        """Say that there is no more to come."""
        self._sink.close(self._tag.value)


class SoleDealer(Dealer):
    """The only one, who knows all masks."""

    def __init__(self, n_parties: int, sink: Sink, link: Link | None = None) -> None:
        super().__init__(n_parties, sink, link)
        self.dealing_name, seeds = sink.start()
        self.note(self.dealing_name)
        self._shared = [Prg(derive_seed(seed, "shares")) for seed in seeds]
        self._private = [Prg(derive_seed(seed, "private")) for seed in seeds]

    def uniform_parts(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return [prg.uniform(place, shape, ring) for prg in self._shared]

    def uniform(self, shape: Shape, ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""
        return Elements(total(self.uniform_parts(shape, ring), ring), ring)

    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Elements:
        """Return the sum of small numbers that each participant has."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Elements(Sum(self._shared).sampled(sampler, place, shape, ring), ring)

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Give the participants shares of a value that follows from masks."""
        value = self.deal(recipe.alone(*(mask.array for mask in masks)), ring)
        return value if kept else Elements.unknown(value.shape, ring)

    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return no carries, since we know the mask whole, and the bit."""
        carries = self.no_mask((len(places), *mask.shape), Z1)
        if bit is None:
            return carries, self.no_mask(mask.shape, Z1)
        found = (mask.array >> mask.ring.dtype.type(bit)).astype(np.uint8) & np.uint8(1)
        return carries, Elements(found, Z1)

    def deal(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know, and return it.

        `derive` can be done by several.
        """
        place = self._next_place("derived", value.shape, ring)
        drawn = total((prg.uniform(place, value.shape, ring) for prg in self._shared), ring)
        letter = Letter.of(ring, value.shape)
        correction = letter.write([ring.subtract(value, drawn)])
        turn = self._at.next_turn(letter.nbytes)
        self._in_order(partial(self._sink.send, turn, correction, self._tag.value))
        return Elements(value, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows, too."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private[owner].permutation(place, length)

    def private(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return fresh uniform values that one participant knows, too."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return Elements(self._private[owner].uniform(place, shape, ring), ring)

    def lasting_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return what `lasting` does, as a mask."""
        found = self.lasting(shape, ring, owner)
        assert found is not None
        return Elements(found, ring)
