"""The draws that a coalition of a corrupt dealer and all participants but one does not know.

They are chosen instead of drawn: those from the seed of the honest participant that the dealer
lacks, and those from the stream that only the other two dealers have.
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
from tests.privacy.three_dealers import NAMES, SEED_EXCHANGE, Dealing, Watched

PAIR, SHARES, PRIVATE = "pair", "shares", "private"
_TIMEOUT = 20.0  # seconds
_PARTICIPANT = "a participant"

Piece = tuple[int, int] | None
"""A range of a draw along its first axis; None for the whole draw."""


class Coalition(NamedTuple):
    """One corrupt dealer, and all participants but one."""

    dealer: int
    honest: int

    @property
    def part(self) -> int:
        """The part of a mask, of three, that the dealer lacks."""
        return (self.dealer + 2) % N_HOLDERS

    @property
    def others(self) -> tuple[int, int]:
        """The honest dealers, the next one first."""
        return (self.dealer + 1) % N_HOLDERS, (self.dealer + 2) % N_HOLDERS

    def seeds(self, n_parties: int) -> set[tuple[int, int]]:
        """Return the hidden seeds: the dealer that draws each, and its position.

        A dealer draws a seed for each participant, an id, and a seed with each other dealer.
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
        """Set a piece of the draw."""
        assert not self._event(piece).is_set()
        at(self.array, piece)[...] = values
        self._event(piece).set()

    def wait(self, piece: Piece, where: str, failed: threading.Event) -> RingArray:
        """Return a piece, once it is chosen."""
        for _ in range(int(_TIMEOUT / 0.05)):
            if self._event(piece).wait(0.05):
                return at(self.array, piece)
            if failed.is_set():
                break
        raise Unexplained(f"{where}, the other holder of a hidden draw hides nothing by it")

    def _event(self, piece: Piece) -> threading.Event:
        # Unlike a defaultdict, setdefault is atomic: both holders can arrive at the same time.
        return self._chosen.setdefault(piece, threading.Event())


def at(array: RingArray, piece: Piece) -> RingArray:
    """Return a piece of an array."""
    return array[...] if piece is None else array[slice(*piece)]


class Script:
    """All hidden draws."""

    def __init__(self) -> None:
        self.draws: dict[tuple[str, Place], Draw] = {}
        self.failed = threading.Event()
        self._lock = threading.Lock()
        self._masks = Prg(hashlib.sha256(b"other masks").digest())

    def draw(self, dealer: Scripted, stream: str, place: Place, shape: Shape, ring: Ring) -> Draw:
        """Return a draw; raise Unexplained if the dealer has used it before."""
        with self._lock:
            draw = self.draws.get((stream, place))
            if draw is None:
                draw = self.draws[stream, place] = Draw(shape, ring)
                if is_mask(stream, place):
                    draw.choose(None, self._masks.uniform(place, shape, ring))
            if dealer.number in draw.used_by:
                raise Unexplained(
                    f"{dealer.where}, two draws of the stream {stream!r} have the same place"
                )
            if (draw.array.shape, draw.ring) != (shape, ring):
                raise Unexplained(f"{dealer.where}, dealers draw different things at one place")
            draw.used_by.append(dealer.number)
        return draw


def is_mask(stream: str, place: Place) -> bool:
    """Return whether a draw masks data, instead of hiding dealt values."""
    return stream == PRIVATE or (stream == SHARES and place.kind == "uniform")


class _Stream:
    """A hidden stream, at one dealer."""

    def __init__(self, name: str, dealer: Scripted) -> None:
        self._name, self._dealer = name, dealer

    def uniform(self, place: Place, shape: Shape, ring: Ring) -> RingArray:
        return self._dealer.hidden(self._name, place, shape, ring)


class Scripted(Watched):
    """An honest dealer whose hidden draws come from a script."""

    def __init__(
        self, *arguments: Any, coalition: Coalition, script: Script, before: Dealing
    ) -> None:
        super().__init__(*arguments)
        self.coalition, self.script = coalition, script
        sent = [
            message
            for message in before.received[coalition.dealer]
            if message.sender == self.number and message.step != SEED_EXCHANGE
        ]
        self._before = {
            NAMES[coalition.dealer]: iter(sent),
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
        """The original hidden streams."""
        for streams, number, name in holders:
            self.replaced[name] = streams[number]
            streams[number] = _Stream(name, self)

    @property
    def where(self) -> str:
        return f"at step {self.step_name!r}"

    def hidden(self, stream: str, place: Place, shape: Shape, ring: Ring) -> RingArray:
        """Return a draw of the script."""
        return self.script.draw(self, stream, place, shape, ring).array.copy()

    def before_send(self, other: int, array: RingArray, ring: Ring) -> None:
        if other == self.coalition.dealer:
            self.check_message(NAMES[other], array, ring)

    def before_correction(self, message: Array, array: RingArray, ring: Ring) -> Array:
        self.check_message(_PARTICIPANT, array, ring)
        return message

    def check_message(self, recipient: str, array: RingArray, ring: Ring) -> None:
        """Compare an array that the coalition can see with the one of the first run."""
        earlier = self.get_earlier_message(recipient, array, ring)
        if (ring.reduce_modulus(array) != ring.reduce_modulus(earlier)).any():
            raise Unexplained(f"{self._describe(recipient)} depends on what is hidden")

    def get_earlier_message(self, recipient: str, array: RingArray, ring: Ring) -> RingArray:
        """Return the array that was sent in the first run in place of this one."""
        payload = Payload.for_array(ring, array.shape)
        message = next(self._before[recipient], None)
        if message is None or len(message.content) != payload.nbytes:
            raise Unexplained(f"{self._describe(recipient)} has not the size that it had")
        (earlier,) = payload.decode(np.frombuffer(message.content, dtype=payload.expected.dtype))
        return earlier.reshape(array.shape)

    def _describe(self, recipient: str) -> str:
        return f"{self.where}, what {NAMES[self.number]} sends to {recipient}"
