"""The network of a simulation: direct connections, or emulated delay and rate.

It needs no privileges and knows nothing of what it carries, so TLS passes unseen. A piece of data
that arrives at time t leaves when the link has sent everything before it and then the piece itself,
at the link's rate, plus the one-way delay. Connections may share a link, as on a loopback shaped as
a whole, or have their own.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from privet.errors import ParameterError
from privet.transport.rendezvous import Member, listen
from privet.transport.tls import Identity

# A piece takes the link well under a millisecond, so that what shares it takes turns; at high rates
# larger pieces take the relay less time.
_PIECE = 8192
_PIECE_SECONDS = 0.0005
# A process that sleeps wakes up late by about this much: so it sleeps less, and then looks often.
_EARLY = 0.0002
# How much a link takes in before it makes the sender wait, as a router's queue does.
_QUEUE = 1 << 20


@dataclass
class EmulatedLink:
    """A rate that everything on the link shares, and a delay."""

    delay: float
    """Seconds, one way."""
    rate: float
    """Bytes a second."""
    free_at: float = 0.0

    @property
    def chunk_bytes(self) -> int:
        """How many bytes are taken in at a time."""
        return max(_PIECE, int(self.rate * _PIECE_SECONDS))

    def schedule_arrival(self, count: int, now: float) -> float:
        """Return when that many bytes, sent now, arrive."""
        self.free_at = max(now, self.free_at) + count / self.rate
        return self.free_at + self.delay


@dataclass(frozen=True)
class Route:
    """A door of the relay: who connects to `listener` is carried to `target`."""

    listener: socket.socket
    target: tuple[str, int]
    forward_link: int
    """Which link carries what the caller sends, as an index."""
    backward_link: int


@dataclass
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    target: socket.socket
    link: EmulatedLink
    queue: deque[tuple[float, memoryview]] = field(default_factory=deque)
    queued_bytes: int = 0
    ended: bool = False  # the source will send no more
    closed: bool = False  # and that has been passed on

    def receive(self, now: float) -> None:
        try:
            content = self.source.recv(self.link.chunk_bytes)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self.ended = True
            return
        self.queue.append((self.link.schedule_arrival(len(content), now), memoryview(content)))
        self.queued_bytes += len(content)

    def deliver(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.queue and self.queue[0][0] <= now:
                due, content = self.queue[0]
                try:
                    count = self.target.send(content)
                except BlockingIOError:
                    raise
                except OSError:
                    self.queue.clear()
                    self.ended = True
                    break
                self.queued_bytes -= count
                if count == len(content):
                    self.queue.popleft()
                else:
                    self.queue[0] = (due, content[count:])
        if self.ended and not self.queue and not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)


def run_relay(routes: Sequence[Route], links: Sequence[EmulatedLink]) -> None:
    """Carry connections until this process, or the one that started it, is ended."""
    parent = multiprocessing.parent_process()
    watched = [parent.sentinel] if parent is not None else []
    doors = {route.listener: route for route in routes}
    pipes: list[_Pipe] = []
    for door in doors:
        door.setblocking(False)
    while True:
        now = time.monotonic()
        pipes = [pipe for pipe in pipes if not pipe.closed]
        readers: dict[Any, _Pipe | None] = dict.fromkeys(doors)
        readers |= {p.source: p for p in pipes if not p.ended and p.queued_bytes < _QUEUE}
        # A target is asked for room only when something is due; before that, time decides.
        writers = {p.target: p for p in pipes if p.queue and p.queue[0][0] <= now}
        times = [p.queue[0][0] for p in pipes if p.queue and p.queue[0][0] > now]
        timeout = max(0.0, min(times) - now - _EARLY) if times else None
        readable, writable, _ = select.select([*watched, *readers], list(writers), [], timeout)
        if any(ready in watched for ready in readable):
            return
        now = time.monotonic()
        for ready in readable:
            pipe = readers[ready]
            if pipe is None:
                pipes += _admit(doors[ready], links)
            else:
                pipe.receive(now)
        for pipe in pipes:
            if pipe.target in writable or pipe.ended or (pipe.queue and pipe.queue[0][0] <= now):
                pipe.deliver(now)


def _admit(route: Route, links: Sequence[EmulatedLink]) -> list[_Pipe]:
    caller, _ = route.listener.accept()
    try:
        called = socket.create_connection(route.target, timeout=5)
    except OSError:
        caller.close()
        return []
    for end in (caller, called):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return [
        _Pipe(caller, called, links[route.forward_link]),
        _Pipe(called, caller, links[route.backward_link]),
    ]


@contextlib.contextmanager
def emulate_links(routes: Sequence[Route], links: Sequence[EmulatedLink]) -> Any:
    """Run a relay in a process of its own for as long as the context lasts."""
    process = multiprocessing.get_context("spawn").Process(
        target=run_relay, args=(list(routes), list(links)), daemon=True
    )
    process.start()
    try:
        yield process
    finally:
        process.kill()  # it has nothing to end, and may have been started to ignore signals
        process.join()


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
def provide_addresses(
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

        def route(is_client: str, called: str, forward: int, backward: int) -> Route:
            door = stack.enter_context(listen())
            found[is_client][called] = door.getsockname()[:2]
            return Route(door, direct[called], forward, backward)

        routes = [
            route(name, names[called], *((0, 0) if network.shared else (calling, called)))
            for calling, name in enumerate(names)
            for called in range(calling)
        ]
        links = [EmulatedLink(delay, rate) for _ in (names[:1] if network.shared else names)]
        dealers = [name for name in found if name not in names]
        for number, dealer in enumerate(dealers):
            if network.dealer_link == "own":
                apart = [route(dealer, name, 0, 0) for name in names]
                stack.enter_context(emulate_links(apart, [EmulatedLink(delay, rate)]))
                # Two dealers have a line between them, with the full rate each way.
                for other in dealers[:number]:
                    line = [EmulatedLink(delay, rate), EmulatedLink(delay, rate)]
                    stack.enter_context(emulate_links([route(dealer, other, 0, 1)], line))
            elif network.dealer_link == "shared":
                # Where each participant has a link, the dealer's bytes take the receiver's.
                ends = [0 if network.shared else called for called in range(len(names))]
                routes += [
                    route(dealer, name, end, end) for name, end in zip(names, ends, strict=True)
                ]
        stack.enter_context(emulate_links(routes, links))
        yield {a: [member(b, address) for b, address in found[a].items()] for a in found}
