"""What the two runtimes have in common: a program runs the same on either.

A *program* is a function of a runtime: `program(runtime, ...)`. It passes the runtime to gates. The
participants run it on shares; the dealer runs it without data and draws what the gates need. So its
control flow may depend on public parameters only, and on a revealed value only where the dealer
need not follow.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.runtime.correlations import Tag
from privet.runtime.meter import Meter
from privet.transport.frames import HEADER_BYTES


class Runtime(ABC):
    """A participant or the dealer, executing a program."""

    index: int = -1
    """Which participant this is; the dealer is none."""

    def __init__(self, n_parties: int) -> None:
        self.n_parties = n_parties
        self.meter = Meter()
        self._steps: list[str] = []
        self.step_name = ""
        """Where in the program we are: the names of the steps we are in."""
        self.on_progress: Callable[[int], None] | None = None
        self._tag = Tag()
        self._corrections = [0] * n_parties

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name a step of the program: for the meter, the ledger, and every error message."""
        self._steps.append(name)
        self.step_name = "/".join(self._steps)
        started = time.perf_counter()
        yield  # after an error there is no going on, and its message wants the step it was in
        self.meter.seconds[self.step_name] += time.perf_counter() - started
        self._steps.pop()
        self.step_name = "/".join(self._steps)

    @abstractmethod
    def public(self, values: RingArray, ring: Ring) -> Share:
        """Return a share of values that everybody knows."""

    @abstractmethod
    def share_each(
        self,
        values: Sequence[RingArray | None],
        owners: Sequence[int] | None,
        shape: tuple[int, ...],
        ring: Ring,
    ) -> Share:
        """Return shares, side by side, of arrays each of which one participant has.

        Whoever does not own array j passes None for it. The dealer need not know the owners.
        """

    def share(
        self, values: RingArray | None, owner: int, shape: tuple[int, ...], ring: Ring
    ) -> Share:
        """Return a share of values that one participant, the owner, has; the others pass None."""
        return self.share_each([values], [owner], shape, ring)[0]

    @abstractmethod
    def reveal(self, value: Share, to: Sequence[int], what: str) -> RingArray | None:
        """Reveal a value in plain to some participants, and return it to them; None to others."""

    @abstractmethod
    def reveal_choice(
        self, choice: Share, owners: Sequence[int], details: int, what: tuple[str, str]
    ) -> tuple[int, int] | None:
        """Reveal which of several things was chosen to all, and a detail of it to its owner alone.

        `choice[0]` is the chosen thing; `choice[1 + m]`, which goes to m, is the detail plus one if
        participant m owns the thing, and zero otherwise. One round. Returns the thing and the
        detail, -1 to those who do not own it. Raises ResultError if there is no such thing, or it
        has no such detail of `details`.
        """

    def progress(self, done: int) -> None:
        """Tell whoever watches us how much of the program's work is done."""
        if self.on_progress is not None:
            self.on_progress(done)

    def note(self, what: str) -> None:
        """Hash something public that the dealer and all participants must agree on into the tag."""
        self._tag.note(self.step_name, what, (), Z64)

    def _next_turn(self, nbytes: int) -> int:
        """Return who gets the next correction: whoever has got the fewest bytes so far."""
        turn = self._corrections.index(min(self._corrections))
        self._corrections[turn] += nbytes + HEADER_BYTES
        return turn
