"""The network of a simulation: direct connections, or emulated delay and rate.

A relay process emulates links. It needs no privileges, and does not look into the data that it
forwards, so TLS passes unchanged. A chunk that arrives leaves when the link has sent all earlier
chunks and then the chunk itself, at the link's rate, plus the one-way delay. Connections can share
a link, or have separate links.
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

# A chunk occupies the link for well under a millisecond, so that connections on it take turns; at
# high rates, larger chunks cost the relay less time.
_MIN_CHUNK_BYTES = 8192
_CHUNK_SECONDS = 0.0005
# A sleeping process wakes up late by about this much: it sleeps for less, and then polls.
_EARLY_WAKE_SECONDS = 0.0002
# Bytes that a link queues before the sender must wait, as in a router.
_MAX_QUEUED_BYTES = 1 << 20


@dataclass
class EmulatedLink:
    """A rate that all connections on the link share, and a delay."""

    delay: float
    """Seconds, one way."""
    rate: float
    """Bytes a second."""
    free_at: float = 0.0

    @property
    def chunk_bytes(self) -> int:
        """Bytes that the relay receives at a time."""
        return max(_MIN_CHUNK_BYTES, int(self.rate * _CHUNK_SECONDS))

    def schedule_arrival(self, count: int, now: float) -> float:
        """Return the arrival time of `count` bytes that are sent now."""
        self.free_at = max(now, self.free_at) + count / self.rate
        return self.free_at + self.delay


@dataclass(frozen=True)
class Route:
    """A relayed address: connections to `listener` are forwarded to `target`."""

    listener: socket.socket
    target: tuple[str, int]
    forward_link: int
    """Index of the link for bytes from the caller."""
    backward_link: int


@dataclass
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    target: socket.socket
    link: EmulatedLink
    queue: deque[tuple[float, memoryview]] = field(default_factory=deque)
    queued_bytes: int = 0
    ended: bool = False  # the source sends no more
    closed: bool = False  # the end was passed on to the target

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
    """Forward connections until this process or its parent ends."""
    parent = multiprocessing.parent_process()
    parent_sentinels = [parent.sentinel] if parent is not None else []
    routes_by_listener = {route.listener: route for route in routes}
    pipes: list[_Pipe] = []
    for listener in routes_by_listener:
        listener.setblocking(False)
    while True:
        now = time.monotonic()
        pipes = [pipe for pipe in pipes if not pipe.closed]
        readers: dict[Any, _Pipe | None] = dict.fromkeys(routes_by_listener)
        readers |= {
            p.source: p for p in pipes if not p.ended and p.queued_bytes < _MAX_QUEUED_BYTES
        }
        # Poll a target for writing only if a chunk is due; before that, wait for the due time.
        writers = {p.target: p for p in pipes if p.queue and p.queue[0][0] <= now}
        times = [p.queue[0][0] for p in pipes if p.queue and p.queue[0][0] > now]
        timeout = max(0.0, min(times) - now - _EARLY_WAKE_SECONDS) if times else None
        readable, writable, _ = select.select(
            [*parent_sentinels, *readers], list(writers), [], timeout
        )
        if any(ready in parent_sentinels for ready in readable):
            return
        now = time.monotonic()
        for ready in readable:
            pipe = readers[ready]
            if pipe is None:
                pipes += _admit(routes_by_listener[ready], links)
            else:
                pipe.receive(now)
        for pipe in pipes:
            if pipe.target in writable or pipe.ended or (pipe.queue and pipe.queue[0][0] <= now):
                pipe.deliver(now)


def _admit(route: Route, links: Sequence[EmulatedLink]) -> list[_Pipe]:
    caller, _ = route.listener.accept()
    try:
        target = socket.create_connection(route.target, timeout=5)
    except OSError:
        caller.close()
        return []
    for end in (caller, target):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return [
        _Pipe(caller, target, links[route.forward_link]),
        _Pipe(target, caller, links[route.backward_link]),
    ]


@contextlib.contextmanager
def emulate_links(routes: Sequence[Route], links: Sequence[EmulatedLink]) -> Any:
    """Run a relay in a separate process for the duration of the context."""
    process = multiprocessing.get_context("spawn").Process(
        target=run_relay, args=(list(routes), list(links)), daemon=True
    )
    process.start()
    try:
        yield process
    finally:
        process.kill()  # it has no state to save, and may ignore other signals
        process.join()


DEALER_LINKS = ("own", "shared", "none")
"""Where a dealer that is there sends: on a link of its own, of the same delay and rate; on the link
of the participants; or past all links, as if it took no time."""


@dataclass(frozen=True)
class Network:
    """The connections between participants, and to the dealer."""

    processes: bool = True
    delay_ms: float | None = None
    mbit: float = 0.0
    shared: bool = True
    """Whether all traffic shares the rate, or each participant has a separate link."""
    dealer_link: str = "own"

    @classmethod
    def parse(cls, text: str, dealer_link: str = "own") -> Network:
        """Return a network by its name, or from "DELAY_MS,MBIT"."""
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
    """Yield the addresses of the other members for each member: direct, or through emulated links.

    Listeners whose names are not in `names` belong to dealers.
    """

    def member(name: str, address: tuple[str, int]) -> Member:
        return Member(name, *address, identities[name].fingerprint)

    direct = {name: listener.getsockname()[:2] for name, listener in listeners.items()}
    addresses = {name: dict(direct) for name in listeners}
    if network.delay_ms is None:
        yield {
            name: [member(other, address) for other, address in addresses[name].items()]
            for name in addresses
        }
        return
    rate, delay = network.mbit * 1e6 / 8, network.delay_ms / 1000
    with contextlib.ExitStack() as stack:

        def route(caller: str, callee: str, forward: int, backward: int) -> Route:
            relay_listener = stack.enter_context(listen())
            addresses[caller][callee] = relay_listener.getsockname()[:2]
            return Route(relay_listener, direct[callee], forward, backward)

        routes = [
            route(
                name,
                names[callee_index],
                *((0, 0) if network.shared else (caller_index, callee_index)),
            )
            for caller_index, name in enumerate(names)
            for callee_index in range(caller_index)
        ]
        links = [EmulatedLink(delay, rate) for _ in (names[:1] if network.shared else names)]
        dealers = [name for name in addresses if name not in names]
        for number, dealer in enumerate(dealers):
            if network.dealer_link == "own":
                dealer_routes = [route(dealer, name, 0, 0) for name in names]
                stack.enter_context(emulate_links(dealer_routes, [EmulatedLink(delay, rate)]))
                # Two dealers have a separate connection, with the full rate in each direction.
                for other in dealers[:number]:
                    dealer_links = [EmulatedLink(delay, rate), EmulatedLink(delay, rate)]
                    stack.enter_context(emulate_links([route(dealer, other, 0, 1)], dealer_links))
            elif network.dealer_link == "shared":
                # With one link for each participant, the dealer's bytes use the recipient's link.
                link_indices = [0 if network.shared else index for index in range(len(names))]
                routes += [
                    route(dealer, name, link_index, link_index)
                    for name, link_index in zip(names, link_indices, strict=True)
                ]
        stack.enter_context(emulate_links(routes, links))
        yield {
            name: [member(other, address) for other, address in addresses[name].items()]
            for name in addresses
        }
