"""How the members of a simulation are connected: directly, or through emulated links."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

from privet.errors import ParameterError
from privet.transport.emulator import Link, Route, emulate
from privet.transport.identity import Identity
from privet.transport.mesh import Member, listen

DEALER_LINKS = ("own", "shared", "none")
"""Where a dealer that is there sends: on a link of its own, of the same delay and rate; on the link
of the participants; or past all links, as if it took no time."""


@dataclass(frozen=True)
class Network:
    """How participants are connected, and the dealer with them."""

    processes: bool = True
    delay_ms: float | None = None
    mbit: float = 0.0
    shared: bool = True
    """Whether all traffic shares the rate, or every participant has its own."""
    dealer_link: str = "own"

    @classmethod
    def parse(cls, text: str, dealer_link: str = "own") -> Network:
        """Return the network of a name, or of "DELAY_MS,MBIT"."""
        if dealer_link not in DEALER_LINKS:
            raise ParameterError(
                f"dealer_link: {dealer_link!r} is none of {', '.join(DEALER_LINKS)}"
            )
        return replace(cls._parse(text), dealer_link=dealer_link)

    @classmethod
    def _parse(cls, text: str) -> Network:
        if text in _NETWORKS:
            return _NETWORKS[text]
        try:
            delay, rate = (float(part) for part in text.split(","))
        except ValueError:
            delay = rate = -1.0
        if not (0 <= delay < math.inf and 0 < rate < math.inf):
            raise ParameterError(
                f"network: {text!r} is none of {', '.join(_NETWORKS)} nor DELAY_MS,MBIT"
            )
        return cls(delay_ms=delay, mbit=rate)


_NETWORKS = {
    "memory": Network(processes=False),
    "loopback": Network(),
    "lan": Network(delay_ms=0.1, mbit=1000.0),
    "paper": Network(delay_ms=5.0, mbit=100.0),
    "paper-per-party": Network(delay_ms=5.0, mbit=100.0, shared=False),
}
NETWORKS = tuple(_NETWORKS)


@contextlib.contextmanager
def addresses(
    names: list[str],
    listeners: dict[str, socket.socket],
    identities: dict[str, Identity],
    network: Network,
) -> Iterator[dict[str, list[Member]]]:
    """Yield where each member finds the others: directly, or through emulated links.

    Listeners that are not of `names` are dealers'.
    """

    def member(name: str, address: tuple[str, int]) -> Member:
        return Member(name, *address, identities[name].fingerprint)

    direct = {name: listener.getsockname()[:2] for name, listener in listeners.items()}
    found = {name: dict(direct) for name in listeners}
    if network.delay_ms is None:
        yield {a: [member(b, address) for b, address in found[a].items()] for a in found}
        return
    rate, delay = network.mbit * 1e6 / 8, network.delay_ms / 1000
    with contextlib.ExitStack() as stack:

        def route(calling: str, called: str, forward: int, backward: int) -> Route:
            door = stack.enter_context(listen())
            found[calling][called] = door.getsockname()[:2]
            return Route(door, direct[called], forward, backward)

        routes = [
            route(name, names[called], *((0, 0) if network.shared else (calling, called)))
            for calling, name in enumerate(names)
            for called in range(calling)
        ]
        links = [Link(delay, rate) for _ in (names[:1] if network.shared else names)]
        dealers = [name for name in found if name not in names]
        for number, dealer in enumerate(dealers):
            if network.dealer_link == "own":
                apart = [route(dealer, name, 0, 0) for name in names]
                stack.enter_context(emulate(apart, [Link(delay, rate)]))
                # Two dealers have a line between them, with the full rate each way.
                for other in dealers[:number]:
                    line = [Link(delay, rate), Link(delay, rate)]
                    stack.enter_context(emulate([route(dealer, other, 0, 1)], line))
            elif network.dealer_link == "shared":
                # Where each participant has a link, the dealer's bytes take the receiver's.
                ends = [0 if network.shared else called for called in range(len(names))]
                routes += [
                    route(dealer, name, end, end) for name, end in zip(names, ends, strict=True)
                ]
        stack.enter_context(emulate(routes, links))
        yield {a: [member(b, address) for b, address in found[a].items()] for a in found}
