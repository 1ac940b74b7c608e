"""Connected channels of every kind, for the conformance tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from privet.runtime.local.network import EmulatedLink, Route, emulate_links
from privet.transport.channel import Channel
from privet.transport.connection import PeerConnection
from privet.transport.memory import create_memory_channels
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.sockets import SocketChannel
from privet.transport.tls import create_identity

Connect = Callable[..., dict[str, Channel]]
NAMES = ("ann", "bob", "cid")


@contextlib.contextmanager
def mesh(
    kind: str, folder: Path, deadline: float, names: tuple[str, ...] = NAMES
) -> Iterator[dict[str, Channel]]:
    """Connect channels over sockets: tcp, tls, or emulated (tls through a relay)."""
    with contextlib.ExitStack() as stack:
        listeners = {name: stack.enter_context(listen()) for name in names}
        identities = {n: create_identity(n, folder) if kind != "tcp" else None for n in names}
        addresses = {name: listener.getsockname()[:2] for name, listener in listeners.items()}
        if kind == "emulated":
            relays = {name: stack.enter_context(listen()) for name in names}
            routes = [Route(relays[name], addresses[name], 0, 0) for name in names]
            stack.enter_context(emulate_links(routes, [EmulatedLink(delay=0.002, rate=50e6)]))
            addresses = {name: relay.getsockname()[:2] for name, relay in relays.items()}
        members = []
        for name in names:
            identity = identities[name]
            fingerprint = None if identity is None else identity.fingerprint
            host, port = addresses[name]
            members.append(Member(name, host, port, fingerprint))
        connections: dict[str, dict[str, PeerConnection]] = {}

        def connect(name: str) -> None:
            connections[name] = connect_members(
                name, members, listeners[name], identity=identities[name], timeout=20
            )

        threads = [threading.Thread(target=connect, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield {name: SocketChannel(name, connections[name], deadline) for name in names}


@pytest.fixture(params=["memory", "tcp", "tls", "emulated"])
def channels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Channel]]:
    """Three connected channels, with a peer timeout of two seconds."""
    if request.param == "memory":
        yield dict(create_memory_channels(NAMES, peer_timeout=2.0))
        return
    with mesh(request.param, tmp_path, deadline=2.0) as connected:
        yield connected
        for channel in connected.values():
            channel.abort()
