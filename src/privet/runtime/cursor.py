"""Where in a program we are, and what follows from that: names of steps, tags, turns, a meter."""

from __future__ import annotations

import threading
import zlib

from privet.arithmetic.rings import Z64, Ring
from privet.runtime.meter import Meter
from privet.transport.frames import HEADER_BYTES


class Tag:
    """The running hash of what was drawn."""

    def __init__(self, start: int = 0) -> None:
        self._own = start
        self._of_branches = 0

    @property
    def value(self) -> int:
        """What all who run the same program have in common here."""
        return (self._own + self._of_branches) & 0xFFFFFFFF

    def note(self, step: str, kind: str, shape: tuple[int, ...], ring: Ring) -> None:
        """Hash one draw in."""
        self._own = zlib.crc32(f"{step}|{kind}|{shape}|{ring.name}".encode(), self._own)

    def branch(self, step: str, number: int) -> Tag:
        """Return the tag that a part of the program begins with, whichever have ended before."""
        found = Tag(self._own)
        found.note(step, f"number {number}", (), Z64)
        return found

    def join(self, branch: Tag) -> None:
        """Hash in what a part of the program ended with, in whatever order they end."""
        self._of_branches += branch.value


class Cursor:
    """One place in a program; parts of it that run side by side have cursors of their own."""

    def __init__(self, n_parties: int) -> None:
        self.steps: list[str] = []
        self.path: list[int] = []
        """The numbers of the steps that have one."""
        self.step_name = ""
        self.tag = Tag()
        self.meter = Meter()
        self._corrections = [0] * n_parties
        self._first = 0
        self._joining = threading.Lock()

    def enter(self, name: str, number: int | None = None) -> None:
        """Go into a step."""
        self.steps.append(name)
        self.step_name = "/".join(self.steps)
        if number is not None:
            self.path.append(number)

    def leave(self, number: int | None = None) -> None:
        """Go out of it."""
        self.steps.pop()
        self.step_name = "/".join(self.steps)
        if number is not None:
            self.path.pop()

    def branch(self, name: str, number: int) -> Cursor:
        """Return a cursor in a numbered step, such as a table, that depends on no other number."""
        found = Cursor(len(self._corrections))
        found.steps, found.path = [*self.steps], [*self.path]
        found.enter(name, number)
        found.tag = self.tag.branch(found.step_name, number)
        found._first = number % len(self._corrections)
        return found

    def join(self, branch: Cursor) -> None:
        """Take note of what was done in a branch, which has come to its end."""
        with self._joining:
            self.tag.join(branch.tag)
            self.meter.add(branch.meter)

    def next_turn(self, nbytes: int) -> int:
        """Return who gets the next correction: whoever has got the fewest bytes so far.

        Of several, the next one after whom the last branch began with.
        """
        count = len(self._corrections)
        order = [(self._first + k) % count for k in range(count)]
        turn = min(order, key=self._corrections.__getitem__)
        self._corrections[turn] += nbytes + HEADER_BYTES
        return turn
