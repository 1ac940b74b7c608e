"""What a corrupt dealer and all participants but one do not know, chosen instead of drawn.

Of the honest participant's three seeds the one that the dealer lacks, and the stream that the
other two dealers have alone.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, NamedTuple

import numpy as np

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import N_HOLDERS
from privet.runtime.opening import Payload
from privet.runtime.runtime import Shape
from privet.transport.channel import Array
from tests.privacy.explain import Unexplained
from tests.privacy.three import MEETING, NAMES, Dealing, Watched

PAIR, SHARES, PRIVATE = "pair", "shares", "private"
_PATIENCE = 20.0
_PARTICIPANT = "a participant"

Piece = tuple[int, int] | None
"""Some of a draw, along its first axis; or all of it."""


class Coalition(NamedTuple):
    """One corrupt dealer, and all participants but one."""

    dealer: int
    honest: int

    @property
    def part(self) -> int:
        """Which of the three parts of a mask the dealer lacks."""
        return (self.dealer + 2) % N_HOLDERS

    @property
    def others(self) -> tuple[int, int]:
        """The honest dealers, the next one first."""
        return (self.dealer + 1) % N_HOLDERS, (self.dealer + 2) % N_HOLDERS

    def seeds(self, n_parties: int) -> set[tuple[int, int]]:
        """Return which of the seeds that each dealer draws, in their order, are hidden.

        A dealer draws one for each participant, a name, and one with each of the other two.
        """
        after, before = self.others
        return {(before, self.honest), (after, n_parties + 1), (before, n_parties + 2)}


class Draw:
    """One hidden draw, which is chosen piece by piece."""

    def __init__(self, shape: Shape, ring: Ring) -> None:
        self.ring, self.array = ring, ring.zeros(shape)
        self.used_by: list[int] = []
        self._chosen: dict[Piece, threading.Event] = {}

    def choose(self, piece: Piece, values: RingArray) -> None:
        """Say what a piece of it is."""
        assert not self._event(piece).is_set()
        at(self.array, piece)[...] = values
        self._event(piece).set()

    def wait(self, piece: Piece, where: str, failed: threading.Event) -> RingArray:
        """Return a piece, once it is chosen."""
        for _ in range(int(_PATIENCE / 0.05)):
            if self._event(piece).wait(0.05):
                return at(self.array, piece)
            if failed.is_set():
                break
        raise Unexplained(f"{where}, the other holder of a hidden draw hides nothing by it")

    def _event(self, piece: Piece) -> threading.Event:
        # Unlike that of a defaultdict, one operation: both holders may come at once.
        return self._chosen.setdefault(piece, threading.Event())


def at(array: RingArray, piece: Piece) -> RingArray:
    """Return a piece of a draw, or of what becomes one."""
    return array[...] if piece is None else array[slice(*piece)]


class Script:
    """All hidden draws."""

    def __init__(self) -> None:
        self.draws: dict[tuple[str, Place], Draw] = {}
        self.failed = threading.Event()
        self._lock = threading.Lock()
        self._masks = Prg(hashlib.sha256(b"other masks").digest())

    def draw(self, dealer: Scripted, stream: str, place: Place, shape: Shape, ring: Ring) -> Draw:
        """Return a draw, which a dealer must not have had before."""
        with self._lock:
            found = self.draws.get((stream, place))
            if found is None:
                found = self.draws[stream, place] = Draw(shape, ring)
                if is_mask(stream, place):
                    found.choose(None, self._masks.uniform(place, shape, ring))
            if dealer.number in found.used_by:
                raise Unexplained(
                    f"{dealer.where}, two draws of the stream {stream!r} have the same place"
                )
            if (found.array.shape, found.ring) != (shape, ring):
                raise Unexplained(f"{dealer.where}, dealers draw different things at one place")
            found.used_by.append(dealer.number)
        return found


def is_mask(stream: str, place: Place) -> bool:
    """Tell whether something is drawn to mask data, not to hide what is dealt."""
    return stream == PRIVATE or (stream == SHARES and place.kind == "uniform")


class _Stream:
    """A hidden stream, at one dealer."""

    def __init__(self, name: str, dealer: Scripted) -> None:
        self._name, self._dealer = name, dealer

    def uniform(self, place: Place, shape: Shape, ring: Ring) -> RingArray:
        return self._dealer.hidden(self._name, place, shape, ring)


class Scripted(Watched):
    """An honest dealer, whose hidden streams are those of a script."""

    def __init__(
        self, *arguments: Any, coalition: Coalition, script: Script, before: Dealing
    ) -> None:
        super().__init__(*arguments)
        self.coalition, self.script = coalition, script
        heard = before.heard[coalition.dealer]
        said = [m for m in heard if m.sender == self.number and m.step != MEETING]
        self._before = {
            NAMES[coalition.dealer]: iter(said),
            _PARTICIPANT: iter(before.corrections[self.number]),
        }
        part = (coalition.part - self.number) % N_HOLDERS
        (partner,) = {*coalition.others} - {self.number}
        holders: list[tuple[Any, int, str]] = [
            (self._dealer_peers._streams, partner, PAIR),
            (self._share_prgs[part].prgs, coalition.honest, SHARES),
            (self._private_prgs[part], coalition.honest, PRIVATE),
        ]
        self.replaced: dict[str, Prg] = {}
        """The hidden streams that would have been drawn from."""
        for streams, number, name in holders:
            self.replaced[name] = streams[number]
            streams[number] = _Stream(name, self)

    @property
    def where(self) -> str:
        return f"at step {self.step_name!r}"

    def hidden(self, stream: str, place: Place, shape: Shape, ring: Ring) -> RingArray:
        """Return what the script says."""
        return self.script.draw(self, stream, place, shape, ring).array.copy()

    def says(self, other: int, array: RingArray, ring: Ring) -> None:
        if other == self.coalition.dealer:
            self.shows(NAMES[other], array, ring)

    def corrects(self, message: Array, array: RingArray, ring: Ring) -> Array:
        self.shows(_PARTICIPANT, array, ring)
        return message

    def shows(self, to: str, array: RingArray, ring: Ring) -> None:
        """Compare an array that the coalition may see with what it saw before."""
        if (
            ring.reduce_modulus(array) != ring.reduce_modulus(self.shown_before(to, array, ring))
        ).any():
            raise Unexplained(f"{self._what(to)} depends on what is hidden")

    def shown_before(self, to: str, array: RingArray, ring: Ring) -> RingArray:
        """Return what was sent instead of an array."""
        letter, message = Payload.for_array(ring, array.shape), next(self._before[to], None)
        if message is None or len(message.content) != letter.nbytes:
            raise Unexplained(f"{self._what(to)} has not the size that it had")
        (found,) = letter.decode(np.frombuffer(message.content, dtype=letter.expected.dtype))
        return found.reshape(array.shape)

    def _what(self, to: str) -> str:
        return f"{self.where}, what {NAMES[self.number]} sends to {to}"
