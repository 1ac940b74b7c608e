"""The base class of all runtimes: steps, tags, draws and the meter.

A *program* is a function of a runtime: `program(runtime, ...)`. It passes the runtime to gates. The
participants run it on shares; the dealer runs it without data and generates the correlated
randomness of its gates; a counter runs it on shapes and adds up its cost. Therefore, its control
flow can depend on public parameters only, and on a revealed value only if the dealer need not
follow.
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
    """The running hash of all draws."""

    def __init__(self, start: int = 0) -> None:
        self._sequential_hash = start
        self._branch_sum = 0

    @property
    def value(self) -> int:
        """The hash, equal in all processes that run the same program up to here."""
        return (self._sequential_hash + self._branch_sum) & 0xFFFFFFFF

    def update(self, step: str, kind: str, shape: tuple[int, ...], ring: Ring) -> None:
        """Hash one draw in."""
        self._sequential_hash = zlib.crc32(
            f"{step}|{kind}|{shape}|{ring.name}".encode(), self._sequential_hash
        )

    def branch(self, step: str, number: int) -> Tag:
        """Return the first tag of a branch, which does not depend on branches that have ended."""
        tag = Tag(self._sequential_hash)
        tag.update(step, f"number {number}", (), Z64)
        return tag

    def join(self, branch: Tag) -> None:
        """Hash the last tag of a branch in; the order in which branches end does not matter."""
        self._branch_sum += branch.value


class Position:
    """A position in a program; branches that run in parallel have separate positions."""

    def __init__(self, n_parties: int) -> None:
        self.steps: list[str] = []
        self.path: list[int] = []
        """The numbers of the numbered steps that are entered."""
        self.step_name = ""
        self.tag = Tag()
        self.meter = Meter()
        self._corrections = [0] * n_parties
        self._first_recipient = 0
        self._joining = threading.Lock()

    def enter(self, name: str, number: int | None = None) -> None:
        """Enter a step."""
        self.steps.append(name)
        self.step_name = "/".join(self.steps)
        if number is not None:
            self.path.append(number)

    def leave(self, number: int | None = None) -> None:
        """Leave the innermost step."""
        self.steps.pop()
        self.step_name = "/".join(self.steps)
        if number is not None:
            self.path.pop()

    def branch(self, name: str, number: int) -> Position:
        """Return a position in a numbered step (such as a table), independent of other numbers."""
        position = Position(len(self._corrections))
        position.steps, position.path = [*self.steps], [*self.path]
        position.enter(name, number)
        position.tag = self.tag.branch(position.step_name, number)
        position._first_recipient = number % len(self._corrections)
        return position

    def join(self, branch: Position) -> None:
        """Add the tag and the meter of a branch that has ended."""
        with self._joining:
            self.tag.join(branch.tag)
            self.meter.add(branch.meter)

    def choose_correction_recipient(self, nbytes: int) -> int:
        """Return the recipient of the next correction: the one with the fewest bytes so far.

        Ties go to the first participant in cyclic order, starting at the branch number.
        """
        count = len(self._corrections)
        order = [(self._first_recipient + k) % count for k in range(count)]
        recipient = min(order, key=self._corrections.__getitem__)
        self._corrections[recipient] += nbytes + HEADER_BYTES
        return recipient


_Result = TypeVar("_Result")
Shape: TypeAlias = tuple[int, ...]
Owned: TypeAlias = Sequence[RingArray | None]
"""Arrays, each owned by one participant; None for arrays of other participants."""
Owners: TypeAlias = Sequence[int] | None
"""The owner of each array; None at the dealer, which need not know."""


class ArgmaxResult(NamedTuple):
    """The selected candidate, as revealed to one participant."""

    candidate: int
    detail: int
    """-1 at participants that do not own the candidate."""
    receiver_value: int | None = None
    """The revealed number, at the receiver."""


class ArgmaxCandidates(NamedTuple):
    """The candidates of an argmax, and the disclosures of its result."""

    owners: tuple[int, ...]
    """The owner of each candidate."""
    n_details: tuple[int, ...]
    """The number of details of each candidate."""
    disclosures: tuple[str, str]
    """The disclosure names of a candidate and of its detail."""
    receiver: int | None = None
    """The participant that also learns a number of the selected candidate, if any."""
    receiver_disclosure: str = ""
    """The disclosure name of that number."""

    def list_rows(self, participant: int) -> list[int]:
        """Return the rows of finalists that a participant receives."""
        return [0, 1 + participant, *([-1] if participant == self.receiver else [])]

    def decode_result(self, rows: RingArray, participant: int) -> tuple[int, ArgmaxResult]:
        """Return the position of the selected finalist, and the result in a participant's rows."""
        numbers, details = rows[:2].astype(np.int64) - 1
        position = int(np.argmax((numbers >= 0) & (numbers < len(self.owners))))
        candidate, detail = int(numbers[position]), int(details[position])
        owner = self.owners[candidate] if 0 <= candidate < len(self.owners) else None
        if (
            owner is None
            or not -1 <= detail < self.n_details[candidate]
            or (detail >= 0) != (owner == participant)
        ):
            raise ResultError(
                f"the shares of a {self.disclosures[0]} do not add up to one of {len(self.owners)}"
            )
        return position, ArgmaxResult(
            candidate, detail, int(rows[2, position]) if len(rows) > 2 else None
        )


class Runtime(ABC):
    """A role that runs a program."""

    index: int = -1
    """The participant's index; -1 for other roles."""

    def __init__(self, n_parties: int, network: NetworkModel | None = None) -> None:
        self.n_parties = n_parties
        self.network = network
        self._draw_position = Position(n_parties)
        self.on_progress: Callable[[int], None] | None = None
        self._slots: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        self._step_repetitions: dict[str, int] = defaultdict(int)
        self._first_open_number = 0
        self.randomness_id = ""
        """The preprocessing run, if any: random, public, never used again."""
        self._persistent_prgs: dict[int, list[Prg]] = {}
        self._background_executor: ThreadPoolExecutor | None = None

    @property
    def step_name(self) -> str:
        """The names of all current steps, as a path."""
        return self._draw_position.step_name

    @property
    def meter(self) -> Meter:
        """The traffic so far; within a table, that of the table."""
        return self._draw_position.meter

    @property
    def _tag(self) -> Tag:
        return self._draw_position.tag

    @property
    def path(self) -> list[int]:
        """The numbers of the current numbered steps: of a table, of its level."""
        return self._draw_position.path

    @contextlib.contextmanager
    def step(self, name: str, number: int | None = None) -> Iterator[None]:
        """Name a step of the program: for the meter, the ledger, and every error message.

        A repeated step, such as a table, has a number, which is part of the place of all its draws.
        Outermost numbered steps do not depend on each other.
        """
        outer = self._draw_position
        assert number is None or outer.path or number >= self._first_open_number, (
            f"{name} {number}: a finished step cannot be entered again"
        )
        if number is None or outer.path:
            outer.enter(name, number)
        else:
            self._draw_position = outer.branch(name, number)
        started = time.perf_counter()
        yield  # an error ends the run: it leaves the step name as it is, for the error message
        self.meter.seconds[self.step_name] += time.perf_counter() - started
        if self._draw_position is outer:
            outer.leave(number)
        else:
            outer.join(self._draw_position)
            self._draw_position = outer

    def repeated_step(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Name a step that is repeated, and number it by its earlier repetitions."""
        self._step_repetitions[name] += 1
        return self.step(name, self._step_repetitions[name] - 1)

    def map_tables(
        self, numbers: Sequence[int], function: Callable[[int], None], n_elements: int
    ) -> None:
        """Call a function for each number in turn; each call works on about `n_elements` elements.

        A runtime without data can run several calls at once, so no draw of one call may depend on
        another. The function must first enter a step with its number.
        """
        for number in numbers:
            function(number)

    def forget_finished_draws(self) -> None:
        """Delete the draw counters of finished numbered steps, for programs that never end.

        These steps cannot be entered again, so no place is drawn from twice.
        """
        assert not self.path
        self._first_open_number = max(self._step_repetitions.values(), default=0)
        for kind, path in list(self._slots):
            if path and path[0] < self._first_open_number:
                del self._slots[kind, path]

    def submit_background(self, function: Callable[[], _Result]) -> Future[_Result]:
        """Start work that runs while we wait for other participants, in the order of submission."""
        if self._background_executor is None:
            self._background_executor = ThreadPoolExecutor(
                max_workers=1, thread_name_prefix="background"
            )
        return self._background_executor.submit(function)

    def shut_down(self) -> None:
        """Shut down background work, after the program has ended or failed."""
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
        """Return a share of public values."""

    @abstractmethod
    def as_opened(self, values: RingArray, ring: Ring) -> Elements:
        """Return public values as if they had been opened: only participants get the values."""

    def zero_mask(self, shape: Shape, ring: Ring) -> Elements:
        """Return zeros, as the mask of public values."""
        return Elements(np.broadcast_to(ring.zeros(()), shape), ring)

    @abstractmethod
    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return shares, stacked, of arrays that are each owned by one participant.

        Participants that do not own array j pass None for it.
        """

    def share(self, values: RingArray | None, owner: int, shape: Shape, ring: Ring) -> Share:
        """Return a share of the owner's values; the other participants pass None."""
        return self.share_arrays([values], [owner], shape, ring)[0]

    @abstractmethod
    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        """Reveal a value to the recipients, and return it to them; None to others."""

    @abstractmethod
    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult | None:
        """Reveal the selected finalist; the others are blinded: uniform to all participants.

        A finalist stands for a candidate. Row 0, for all, is the candidate's number plus one. Row
        1 + m, for participant m, is the candidate's detail plus one if m owns the candidate, and
        zero otherwise. With a receiver, the last row is a number for it. One round.
        Raises ResultError if no such candidate or detail exists.
        """

    @abstractmethod
    def record_disclosure(self, disclosure: str, n_elements: int) -> None:
        """Record values that all participants sent to each other before the program began."""

    @abstractmethod
    def announce(self, number: int | None, owner: int, disclosure: str) -> int | None:
        """Send a small number from one participant, the owner, to all others and to the dealer.

        The others pass None. The ledger records it. Returns the number, or None to a runtime
        without participants: a counter, or a dealer in offline preprocessing.
        """

    @abstractmethod
    def end_early(self) -> None:
        """End the program early, because of an announced number.

        The rest of a preprocessing file is never used.
        """

    def report_progress(self, done: int) -> None:
        """Report the amount of work done to `on_progress`."""
        if self.on_progress is not None:
            self.on_progress(done)

    def update_tag(self, content: str) -> None:
        """Hash something public that the dealer and all participants must agree on into the tag."""
        self._tag.update(self.step_name, content, (), Z64)

    def _next_place(self, kind: str, shape: tuple[int, ...], ring: Ring) -> Place:
        """Return a new, unique place for a draw of a kind, and hash it into the tag."""
        path = tuple(self.path)
        place = Place(kind, path, self._slots[kind, path])
        self._slots[kind, path] += 1
        self._tag.update(self.step_name, str(tuple(place)), shape, ring)
        return place

    def _find_dealer_in_role(self, role: int) -> int:
        """Return which of three dealers has a role; roles rotate with each table, or batch."""
        return ((self.path[0] if self.path else 0) + role) % 3


class ShapeRuntime(Runtime):
    """A runtime without data, which handles only the shapes of public and opened values."""

    def submit_background(self, function: Callable[[], _Result]) -> Future[_Result]:
        """Do the work at once: this runtime never waits for participants."""
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
        """Record nothing: only participants have a ledger."""

    def end_early(self) -> None:
        """Do nothing: participants leave the rest of their correlations unused."""
