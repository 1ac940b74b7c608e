"""Who is to blame when connections end: the first that failed, not the nearest.

Whoever loses a peer tells the others whom, and hangs up on them. So of several who have failed,
some did because of others, and say so.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from privet.errors import PeerError, PeerLostError, PeerSilentError
from privet.transport.frames import FAILED, name_tag
from privet.transport.link import INTERRUPTED, Doubt, PeerLink, kin_tag


def suspects(links: Collection[PeerLink]) -> list[PeerLink]:
    """Return those that failed, and of these those that are the least likely to have followed."""
    failed = [link for link in links if link.error is not None]
    least = min((link.doubt for link in failed), default=Doubt.NONE)
    return [link for link in failed if link.doubt == least]


def may_clear_up(links: Collection[PeerLink]) -> bool:
    """Tell whether a peer that seems to be well may turn out to have failed first."""
    well = {name_tag(link.peer) for link in links if link.error is None}
    return any(
        link.blamed in well or (link.doubt in (Doubt.TORN, Doubt.LEFT) and well)
        for link in suspects(links)
    )


def accuse(links: Sequence[PeerLink], where: str, step: str | None = None) -> PeerError:
    """Return the error of the first link, which mentions the others."""
    errors = [link.error for link in links if link.error is not None]
    also = "".join(f"; also {error}" for error in errors[1:])
    error = type(errors[0])(errors[0].peer, f"{errors[0].problem}{where}{also}", step)
    error.doubt = links[0].doubt
    return error


def refuse_missed(links: Collection[PeerLink], deadline: float) -> None:
    """Raise PeerError if somebody did not say goodbye, and blame who failed, if anybody did."""
    missed = [link for link in links if not link.said_goodbye]
    failed = suspects(missed)
    for link in [] if failed else missed:
        heard = "only signs of life" if time.monotonic() - link.heard < deadline else "nothing"
        link.error = PeerSilentError(link.peer, f"{heard} heard from it")
    if missed:
        raise accuse(failed or missed, " before its goodbye")


def culprit_of(error: BaseException | None, links: Mapping[str, PeerLink]) -> int:
    """Return the tag of the one whose failure an error was, or 0: it was our own."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    who = error.peer if isinstance(error, PeerError) else None
    if who is None:
        return 0
    if any(kin_tag(who) in link.kin for link in links.values()):
        return kin_tag(who)
    return name_tag(who) if who in links else 0


def tell_failure(links: Iterable[PeerLink], culprit: int, teller: int) -> None:
    """Tell the peers whom we lost; but the culprit itself, who told us so."""
    for link in links:
        tag = name_tag(link.peer)
        reason = teller if tag == culprit else culprit
        if link.error is None and tag != reason:
            link.say(FAILED, reason)


def blame_missing(
    due: Iterable[PeerLink], started: float, deadline: float, *, sending: bool
) -> None:
    """Note of peers whom we wait for since then that they have ended, or were silent for too long.

    If we wait for them to take what we send: of those who have not taken it all.
    """
    now = time.monotonic()
    for link in due:
        if link.error is not None or (sending and not link.outgoing):
            continue
        if link.said_goodbye:
            link.error = PeerLostError(link.peer, "has ended its part")
        elif now - max(link.heard, started) > deadline:
            silence = f"nothing heard from it for {deadline:g} s"
            link.error = PeerSilentError(link.peer, silence)
