"""The base class of all runtimes: steps, tags, draws and the meter.

A *program* is a function of a runtime: `program(runtime, ...)`. It passes the runtime to gates. The
participants run it on shares; the dealer runs it without data and draws what the gates need; a
counter runs it on shapes and adds up what it costs. So its control flow may depend on public
parameters only, and on a revealed value only where the dealer need not follow.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z64, Ring, RingArray, sum_arrays
from privet.arithmetic.shares import Elements, Share
from privet.errors import ResultError
from privet.runtime.accounting import Meter
from privet.runtime.opening import NetworkModel
from privet.transport.frames import HEADER_BYTES


class Tag:
    """The running hash of what was drawn."""

    def __init__(self, start: int = 0) -> None:
        self._sequential_hash = start
        self._of_branches = 0

    @property
    def value(self) -> int:
        """What all who run the same program have in common here."""
        return (self._sequential_hash + self._of_branches) & 0xFFFFFFFF

    def update(self, step: str, kind: str, shape: tuple[int, ...], ring: Ring) -> None:
        """Hash one draw in."""
        self._sequential_hash = zlib.crc32(
            f"{step}|{kind}|{shape}|{ring.name}".encode(), self._sequential_hash
        )

    def branch(self, step: str, number: int) -> Tag:
        """Return the tag that a part of the program begins with, whichever have ended before."""
        found = Tag(self._sequential_hash)
        found.update(step, f"number {number}", (), Z64)
        return found

    def join(self, branch: Tag) -> None:
        """Hash in what a part of the program ended with, in whatever order they end."""
        self._of_branches += branch.value


class Position:
    """One place in a program; parts of it that run side by side have cursors of their own."""

    def __init__(self, n_parties: int) -> None:
        self.steps: list[str] = []
        self.path: list[int] = []
        """The numbers of the steps that have one."""
        self.step_name = ""
        self.tag = Tag()
        self.meter = Meter()
        self._corrections = [0] * n_parties
        self._first_recipient = 0
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

    def branch(self, name: str, number: int) -> Position:
        """Return a cursor in a numbered step, such as a table, that depends on no other number."""
        found = Position(len(self._corrections))
        found.steps, found.path = [*self.steps], [*self.path]
        found.enter(name, number)
        found.tag = self.tag.branch(found.step_name, number)
        found._first_recipient = number % len(self._corrections)
        return found

    def join(self, branch: Position) -> None:
        """Take note of what was done in a branch, which has come to its end."""
        with self._joining:
            self.tag.join(branch.tag)
            self.meter.add(branch.meter)

    def choose_correction_recipient(self, nbytes: int) -> int:
        """Return who gets the next correction: whoever has got the fewest bytes so far.

        Of several, the next one after whom the last branch began with.
        """
        count = len(self._corrections)
        order = [(self._first_recipient + k) % count for k in range(count)]
        turn = min(order, key=self._corrections.__getitem__)
        self._corrections[turn] += nbytes + HEADER_BYTES
        return turn


_Result = TypeVar("_Result")
Shape: TypeAlias = tuple[int, ...]
Owned: TypeAlias = Sequence[RingArray | None]
"""Arrays, each of which one participant has; None stands for those that we have not."""
Owners: TypeAlias = Sequence[int] | None
"""Who has each of them; the dealer need not know."""


class ArgmaxResult(NamedTuple):
    """Which of several things was chosen, as one participant learns it."""

    candidate: int
    detail: int
    """-1 to those who do not own it."""
    receiver_value: int | None = None
    """To whoever receives one."""


class ArgmaxCandidates(NamedTuple):
    """What one of several is chosen among, and revealed."""

    owners: tuple[int, ...]
    """Whose each of them is."""
    n_details: tuple[int, ...]
    """How many details each of them has."""
    disclosures: tuple[str, str]
    """What a thing and a detail of it are called."""
    receiver: int | None = None
    """Who learns a number of the winner, too, if anybody does."""
    receiver_disclosure: str = ""
    """What that is called."""

    def list_rows(self, participant: int) -> list[int]:
        """Return the rows of finalists that a participant receives."""
        return [0, 1 + participant, *([-1] if participant == self.receiver else [])]

    def decode_result(self, rows: RingArray, participant: int) -> tuple[int, ArgmaxResult]:
        """Return the winner's place among finalists, and what it is, by a participant's rows."""
        numbers, own = rows[:2].astype(np.int64) - 1
        place = int(np.argmax((numbers >= 0) & (numbers < len(self.owners))))
        thing, detail = int(numbers[place]), int(own[place])
        owner = self.owners[thing] if 0 <= thing < len(self.owners) else None
        if (
            owner is None
            or not -1 <= detail < self.n_details[thing]
            or (detail >= 0) != (owner == participant)
        ):
            raise ResultError(
                f"the shares of a {self.disclosures[0]} do not add up to one of {len(self.owners)}"
            )
        return place, ArgmaxResult(thing, detail, int(rows[2, place]) if len(rows) > 2 else None)


class Runtime(ABC):
    """Somebody who executes a program."""

    index: int = -1
    """Which participant this is; others are none."""

    def __init__(self, n_parties: int, network: NetworkModel | None = None) -> None:
        self.n_parties = n_parties
        self.network = network
        self._draw_position = Position(n_parties)
        self.on_progress: Callable[[int], None] | None = None
        self._slots: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        self._step_repetitions: dict[str, int] = defaultdict(int)
        self._first_open_number = 0
        self.randomness_id = ""
        """Of the dealing that we take part in, if any: random, public, never used again."""
        self._persistent_prgs: dict[int, list[Prg]] = {}
        self._background_executor: ThreadPoolExecutor | None = None

    @property
    def step_name(self) -> str:
        """Where in the program we are: the names of the steps we are in."""
        return self._draw_position.step_name

    @property
    def meter(self) -> Meter:
        """What was sent and received; of the table that we are in, if we are in one."""
        return self._draw_position.meter

    @property
    def _tag(self) -> Tag:
        return self._draw_position.tag

    @property
    def path(self) -> list[int]:
        """The numbers of the steps we are in that have one: of a table, of its level."""
        return self._draw_position.path

    @contextlib.contextmanager
    def step(self, name: str, number: int | None = None) -> Iterator[None]:
        """Name a step of the program: for the meter, the ledger, and every error message.

        What is done many times, such as a table, has a number, which is part of the place of all
        that is drawn in it. The outermost of such steps depend on no other one.
        """
        outer = self._draw_position
        assert number is None or outer.path or number >= self._first_open_number, (
            "it was left for good"
        )
        if number is None or outer.path:
            outer.enter(name, number)
        else:
            self._draw_position = outer.branch(name, number)
        started = time.perf_counter()
        yield  # after an error there is no going on, and its message wants the step it was in
        self.meter.seconds[self.step_name] += time.perf_counter() - started
        if self._draw_position is outer:
            outer.leave(number)
        else:
            outer.join(self._draw_position)
            self._draw_position = outer

    def repeated_step(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Name a step that is done any number of times, and number it by how often it was."""
        self._step_repetitions[name] += 1
        return self.step(name, self._step_repetitions[name] - 1)

    def map_tables(
        self, numbers: Sequence[int], function: Callable[[int], None], n_elements: int
    ) -> None:
        """Do some work for each number, one after the other; it is about so many elements.

        Whoever has no data may do it for several at once, so nothing that is drawn for one may
        depend on another; what the work does first is to go into a step of that number.
        """
        for number in numbers:
            function(number)

    def forget_finished_draws(self) -> None:
        """Forget what was drawn in the steps that were numbered so far: a program may never end.

        None of them can be entered again, so nothing is drawn twice.
        """
        assert not self.path
        self._first_open_number = max(self._step_repetitions.values(), default=0)
        for kind, path in list(self._slots):
            if path and path[0] < self._first_open_number:
                del self._slots[kind, path]

    def submit_background(self, function: Callable[[], _Result]) -> Future[_Result]:
        """Begin some work that can go on while we wait for the others; one after the other."""
        if self._background_executor is None:
            self._background_executor = ThreadPoolExecutor(
                max_workers=1, thread_name_prefix="background"
            )
        return self._background_executor.submit(function)

    def shut_down(self) -> None:
        """Let go of what the program worked with, when it has ended in whatever way."""
        if self._background_executor is not None:
            self._background_executor.shutdown(wait=False, cancel_futures=True)
            self._background_executor = None

    def use_persistent_masks(self, seeds: Mapping[int, Sequence[bytes]]) -> None:
        """Draw `persistent_mask` from the seeds of these participants, which the dealer has, too.

        One of each; or, with three dealers, three of our own, and two of everybody's at a dealer.
        """
        self._persistent_prgs = {owner: [Prg(each) for each in own] for owner, own in seeds.items()}

    def persistent_mask(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        """Return uniform values that are the same in every program with the owner's seed.

        None, to whoever has not got that. They may hide one thing only, and always the same.
        """
        parts = self._persistent_mask_parts(shape, ring, owner)
        return sum_arrays(parts, ring) if parts else None

    def _persistent_mask_parts(
        self, shape: tuple[int, ...], ring: Ring, owner: int
    ) -> list[RingArray]:
        """Return what each of the owner's seeds that we have gives."""
        place = self._next_place(f"lasting for {owner}", shape, ring)
        return [
            stream.uniform(place, shape, ring) for stream in self._persistent_prgs.get(owner, [])
        ]

    @abstractmethod
    def share_public(self, values: RingArray, ring: Ring) -> Share:
        """Return a share of values that everybody knows."""

    @abstractmethod
    def as_opened(self, values: RingArray, ring: Ring) -> Elements:
        """Return values that everybody knows as if they had been opened: to participants alone."""

    def zero_mask(self, shape: Shape, ring: Ring) -> Elements:
        """Return zeros, as the mask of what everybody knows."""
        return Elements(np.broadcast_to(ring.zeros(()), shape), ring)

    @abstractmethod
    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return shares, side by side, of arrays each of which one participant has.

        Whoever does not own array j passes None for it.
        """

    def share(self, values: RingArray | None, owner: int, shape: Shape, ring: Ring) -> Share:
        """Return a share of values that one participant, the owner, has; the others pass None."""
        return self.share_arrays([values], [owner], shape, ring)[0]

    @abstractmethod
    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        """Reveal a value in plain to some participants, and return it to them; None to others."""

    @abstractmethod
    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult | None:
        """Reveal one of several finalists, of which all others are veiled: uniform to everybody.

        A finalist stands for some thing. Row 0, for all, is the number of the thing plus one; row
        1 + m, for participant m, is a detail of it plus one if m owns the thing, and zero
        otherwise; the last row, if somebody receives a number, is for that participant. One round.
        Raises ResultError if there is no such thing, or it has no such detail.
        """

    @abstractmethod
    def record_disclosure(self, disclosure: str, n_elements: int) -> None:
        """Record something that all participants told each other before the program began."""

    @abstractmethod
    def announce(self, number: int | None, owner: int, disclosure: str) -> int | None:
        """Have one participant, the owner, tell a small number to all others and to the dealer.

        The others pass None. It is recorded. Returns the number; None, to whoever runs the program
        before there is anybody to tell it: a counter, or a dealer that deals ahead.
        """

    @abstractmethod
    def end_early(self) -> None:
        """Say that the program ends before its time, by what was announced.

        Of what was dealt ahead, the rest is never used.
        """

    def report_progress(self, done: int) -> None:
        """Tell whoever watches us how much of the program's work is done."""
        if self.on_progress is not None:
            self.on_progress(done)

    def update_tag(self, what: str) -> None:
        """Hash something public that the dealer and all participants must agree on into the tag."""
        self._tag.update(self.step_name, what, (), Z64)

    def _next_place(self, kind: str, shape: tuple[int, ...], ring: Ring) -> Place:
        """Return the place of the next draw of a kind, which nothing else has, and note it."""
        path = tuple(self.path)
        place = Place(kind, path, self._slots[kind, path])
        self._slots[kind, path] += 1
        self._tag.update(self.step_name, str(tuple(place)), shape, ring)
        return place

    def _find_dealer_in_role(self, role: int) -> int:
        """Return which of three dealers has a role: another one with every table, or batch."""
        return ((self.path[0] if self.path else 0) + role) % 3


class ShapeRuntime(Runtime):
    """Somebody who has no data, and of what is public and opened needs the shape alone."""

    def submit_background(self, function: Callable[[], _Result]) -> Future[_Result]:
        """Do the work at once: we never wait for the others, so there is no time to use."""
        done: Future[_Result] = Future()
        done.set_result(function())
        return done

    def share_public(self, values: RingArray, ring: Ring) -> Share:
        """Return the shape of public values."""
        return Share.unknown(values.shape, ring)

    def as_opened(self, values: RingArray, ring: Ring) -> Elements:
        """Return the shape of opened values."""
        return Elements.unknown(values.shape, ring)

    def record_disclosure(self, disclosure: str, n_elements: int) -> None:
        """Record nothing: whoever is told has a ledger."""

    def end_early(self) -> None:
        """Do nothing: whoever is supplied leaves the rest."""
