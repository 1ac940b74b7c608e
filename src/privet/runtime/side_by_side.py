"""Work on several numbers at once, in threads, whose results leave in the order of the numbers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from privet.errors import PeerError

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
