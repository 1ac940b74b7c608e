"""How the participants of a simulation are connected: directly, or through an emulated link."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from privet.errors import ParameterError
from privet.transport.emulator import Link, Route, emulate
from privet.transport.identity import Identity
from privet.transport.mesh import Member, listen


@dataclass(frozen=True)
class Network:
    """How participants are connected."""

    processes: bool = True
    delay_ms: float | None = None
    mbit: float = 0.0
    shared: bool = True
    """Whether all traffic shares the rate, or every participant has its own."""

    @classmethod
    def parse(cls, text: str) -> Network:
        """Return the network of a name, or of "DELAY_MS,MBIT"."""
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
    """Yield where each member finds the others: directly, or through an emulated link.

    The dealer is not behind the link: what it sends, it can send before the participants start.
    """

    def member(name: str, address: tuple[str, int]) -> Member:
        return Member(name, *address, identities[name].fingerprint)

    direct = {name: listener.getsockname()[:2] for name, listener in listeners.items()}
    found = {name: dict(direct) for name in listeners}
    if network.delay_ms is None:
        yield {a: [member(b, address) for b, address in found[a].items()] for a in found}
        return
    rate, delay = network.mbit * 1e6 / 8, network.delay_ms / 1000
    links = [Link(delay, rate) for _ in (names[:1] if network.shared else names)]
    with contextlib.ExitStack() as stack:
        routes = []
        for called, name in enumerate(names):
            for calling in range(called + 1, len(names)):
                door = stack.enter_context(listen())
                found[names[calling]][name] = door.getsockname()[:2]
                ends = (0, 0) if network.shared else (calling, called)
                routes.append(Route(door, direct[name], *ends))
        stack.enter_context(emulate(routes, links))
        yield {a: [member(b, address) for b, address in found[a].items()] for a in found}
