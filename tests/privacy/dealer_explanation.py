"""The messages to one of three dealers, explained by other masks.

The coalition is one corrupt dealer and all participants but one. The draws that it does not know
are *hidden* (`tests.privacy.hidden_draws`). The dealers run three times.

1. Unchanged.
2. With other masks: all masks that the honest participant draws from the hidden seed are replaced.
   Each message to the corrupt dealer, and each correction, must be what it was. Therefore the
   hidden draw that hides the message is chosen accordingly: it is drawn as zero, and when the
   message is sent, it is set to the difference (`Choosing`). The other holder of that draw waits
   until it is chosen.
3. With the chosen draws, and otherwise unchanged. The messages to the corrupt dealer, and all
   corrections, must be what they were, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import N_HOLDERS, Elements
from privet.runtime.correlations.correlation import Correlation
from privet.runtime.correlations.source import FIRST_T_HOLDER, S_HOLDER, SECOND_T_HOLDER
from privet.runtime.opening import Payload
from privet.runtime.runtime import Shape
from privet.transport.channel import Array
from tests.privacy.explain import Unexplained
from tests.privacy.hidden_draws import (
    PAIR,
    PRIVATE,
    SHARES,
    Coalition,
    Draw,
    Piece,
    Script,
    Scripted,
    at,
    is_mask,
)
from tests.privacy.three_dealers import NAMES, Dealing, Message, Watched, deal

_MANY_BITS = 64  # so many bits do not agree by chance


@dataclass
class _Pending:
    """A piece of a draw that is not chosen yet, and is zero."""

    draw: Draw
    piece: Piece
    target: RingArray
    """The dealer's array that contains the piece, possibly added to other draws."""


class Choosing(Scripted):
    """An honest dealer that chooses hidden draws so that its messages do not change."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pending: list[_Pending] = []
        """The draws that hide the next message."""
        self._awaited: list[_Pending] = []
        self._correlation: Correlation | None = None
        self._position = 0
        self._last_correction: RingArray | None = None
        """It can be sent to a dealer after it is sent to a participant."""

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        self._correlation, self._position = correlation, 0
        derived = super().derive(correlation, ring, *masks, as_mask=as_mask)
        self._correlation = None
        self._require_nothing_pending()
        return derived

    def derive_carries(self, *arguments: Any) -> tuple[Elements, Elements]:
        carries = super().derive_carries(*arguments)
        self._require_nothing_pending()
        return carries

    def _require_nothing_pending(self) -> None:
        if self._pending or self._awaited:
            raise Unexplained(f"{self.where}, a hidden draw hides nothing")

    def hidden(self, stream: str, place: Place, shape: Shape, ring: Ring) -> RingArray:
        """Return a draw: zeros in pieces that this dealer chooses, and the other's choices."""
        draw = self.script.draw(self, stream, place, shape, ring)
        if is_mask(stream, place):
            return draw.array.copy()
        array, is_chooser = ring.zeros(shape), False
        for piece, chooser in self._choosers(stream, shape):
            pending = _Pending(draw, piece, at(array, piece))
            if chooser == self.role:
                self._pending.append(pending)
                is_chooser = True
            elif is_chooser:  # the other dealer needs the local piece to choose this one
                self._awaited.append(pending)
            else:
                self._wait_for(pending)
        return array

    def _choosers(self, stream: str, shape: Shape) -> list[tuple[Piece, int]]:
        """Return the pieces of a draw, and the role of the dealer whose message each hides."""
        corrupt = (self.coalition.dealer - self._find_dealer_in_role(S_HOLDER)) % N_HOLDERS
        if stream == SHARES:  # the first T holder's part of a value, or the correction
            return [(None, FIRST_T_HOLDER if corrupt == SECOND_T_HOLDER else SECOND_T_HOLDER)]
        if corrupt == S_HOLDER:
            raise Unexplained(f"{self.where}, servers draw from the stream that they have alone")
        if corrupt == FIRST_T_HOLDER:  # openings
            return [(None, SECOND_T_HOLDER)]
        if self._correlation is not None:  # the message of the S holder
            return [(None, S_HOLDER)]
        if len(shape) == 3 and shape[0] == 3:  # two factors, which hide openings; their product
            return [((0, 2), FIRST_T_HOLDER), ((2, 3), S_HOLDER)]
        # Carries, which are opened; tables and a bit of S.
        return [(None, FIRST_T_HOLDER if len(shape) == 2 else S_HOLDER)]

    def _draw_part(self, part: int, place: Place, shape: Shape, ring: Ring) -> Elements:
        count = len(self._pending)
        drawn = super()._draw_part(part, place, shape, ring)
        for pending in self._pending[count:]:
            pending.target = drawn.array
        return drawn

    def after_receive(self) -> None:
        while self._awaited:
            self._wait_for(self._awaited.pop())

    def _wait_for(self, pending: _Pending) -> None:
        pending.target[...] = pending.draw.wait(pending.piece, self.where, self.script.failed)

    def before_correction(self, message: Array, array: RingArray, ring: Ring) -> Array:
        super().before_correction(message, array, ring)
        self._last_correction = array
        return Payload.for_array(ring, array.shape).encode([array])

    def check_message(self, recipient: str, array: RingArray, ring: Ring) -> None:
        """Choose the draw that hides an array so that it becomes the one of the first run."""
        sent = self.get_earlier_message(recipient, array, ring)
        if array is self._last_correction:
            return
        if [pending.target.size for pending in self._pending] != [array.size]:
            raise Unexplained(f"{self._describe(recipient)} is not hidden by one fresh draw")
        pending = self._pending.pop()
        if self._correlation is not None and self.role == S_HOLDER:
            chosen = self._correlation.subtract_drawn(self._position, ring, array, sent)
            self._position += 1
        else:
            chosen = ring.subtract(array, sent)
        chosen = chosen.reshape(pending.target.shape)
        pending.draw.choose(pending.piece, chosen)
        ring.add_in_place(pending.target, chosen)
        array[...] = sent


def explain(
    program: Callable[[Any], Any], n_parties: int, before: Dealing, coalition: Coalition
) -> None:
    """Explain the view of a coalition by other masks; raise Unexplained if that is impossible."""
    moved = coalition.seeds(n_parties)
    chosen = Script()
    kind: Any = partial(Choosing, coalition=coalition, script=chosen, before=before)
    _play(program, n_parties, kind, moved, coalition, chosen)
    script = Script()
    script.draws = chosen.draws
    users = {key: draw.used_by for key, draw in chosen.draws.items()}
    for draw in script.draws.values():
        draw.used_by = []
    kind = partial(Scripted, coalition=coalition, script=script, before=before)
    after = _play(program, n_parties, kind, moved, coalition, script)
    _compare(before.received[coalition.dealer], after.received[coalition.dealer], coalition)
    for number in range(N_HOLDERS):
        _compare(before.corrections[number], after.corrections[number], coalition)
    _check_draws(before, after, coalition, script, users)


def _play(
    program: Callable[[Any], Any],
    n_parties: int,
    kind: Callable[..., Watched],
    moved: set[tuple[int, int]],
    coalition: Coalition,
    script: Script,
) -> Dealing:
    kinds = [Watched if k == coalition.dealer else kind for k in range(N_HOLDERS)]
    return deal(program, n_parties, kinds, moved, script.failed)


def _compare(before: list[Message], after: list[Message], coalition: Coalition) -> None:
    for one, other in zip(before, after, strict=True):
        if one != other:
            message = f"{NAMES[one.sender]} sends, as seen by {NAMES[coalition.dealer]}"
            raise Unexplained(f"at step {one.step!r}, what {message}, depends on what is hidden")


def _check_draws(
    before: Dealing,
    after: Dealing,
    coalition: Coalition,
    script: Script,
    users: dict[Any, list[int]],
) -> None:
    """Check that both holders draw all hidden draws once, and that seeds and masks have changed.

    The draw that hides a value which no dealer keeps is drawn by one dealer and the participant.
    """
    streams = _hidden_streams(before, coalition)
    for number in coalition.others:
        dealer = after.dealers[number]
        assert isinstance(dealer, Scripted)
        for name, stream in dealer.replaced.items():
            if stream.seed == streams[name].seed:
                raise Unexplained(
                    f"the seed of a stream that {NAMES[coalition.dealer]} lacks does not depend "
                    "on others"
                )
    for (name, place), draw in script.draws.items():
        assert sorted(draw.used_by) == sorted(users[name, place])
        if name == PAIR or is_mask(name, place):
            assert sorted(draw.used_by) == sorted(coalition.others)
        if is_mask(name, place) and draw.ring.bits * draw.array.size >= _MANY_BITS:
            old = streams[name].uniform(place, draw.array.shape, draw.ring)
            assert (draw.ring.reduce_modulus(old) != draw.ring.reduce_modulus(draw.array)).any(), (
                place
            )


def _hidden_streams(before: Dealing, coalition: Coalition) -> dict[str, Prg]:
    """Return the hidden streams of the honest dealers in the first run."""
    number, other = coalition.others
    dealer, part = before.dealers[number], (coalition.part - number) % N_HOLDERS
    return {
        PAIR: dealer._dealer_peers.get_pair_prg(other),
        SHARES: dealer._share_prgs[part].prgs[coalition.honest],
        PRIVATE: dealer._private_prgs[part][coalition.honest],
    }
