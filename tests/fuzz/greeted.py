"""Readers of what comes first on a connection, and of frames."""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from typing import Any, cast

import numpy as np

from privet.config.job import Job
from privet.errors import PeerError
from privet.experiments.local_federation import LocalFederation
from privet.transport.connection import FRAME_OVERHEAD_BYTES, PeerConnection
from privet.transport.frames import hash_name, pack_array_header, pack_control_header
from privet.transport.handshake import FailureNotice, Handshake, HandshakeRefusedError
from privet.transport.tls import authenticate_chain, compute_chain_fingerprint, load_identity
from tests.fuzz.readers import Reader

_NAMES = {hash_name(name): name for name in ("bank", "shop", "dealer")}
_FRAME_LIMIT = 1 << 20
_INBOX = 200 * FRAME_OVERHEAD_BYTES + _FRAME_LIMIT
"""Bytes that no case of a few kilobytes may fill an inbox with."""


class Spoken:
    """A connection on which everything was said, and comes in pieces."""

    def __init__(self, content: bytes, piece: int = 1 << 16) -> None:
        self._content = memoryview(content)
        self._piece = piece
        self.sent = b""

    def sendall(self, content: bytes) -> None:
        self.sent += content

    def settimeout(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass

    def recv(self, count: int) -> bytes:
        taken, self._content = self._content[:count], self._content[count:]
        return bytes(taken)

    def recv_into(self, target: memoryview, count: int) -> int:
        taken = self._content[: min(count, self._piece)]
        if not taken:
            raise BlockingIOError
        target[: len(taken)] = taken
        self._content = self._content[len(taken) :]
        return len(taken)


def read_frames(content: bytes) -> None:
    """Take frames in as a link does; raise what it makes of them."""
    spoken = cast("socket.socket", Spoken(content, 1 + len(content) // 3))
    link = PeerConnection("bank", spoken, _FRAME_LIMIT, _NAMES)
    link.read()
    assert link.inbox_bytes <= _INBOX, f"{link.inbox_bytes} bytes in an inbox"
    link.choose_poll_events(1 << 16)
    for stream, inbox in list(link.inbox.items()):
        while inbox:
            header, array = inbox[0]
            assert (array.dtype, array.shape) == (header.dtype, header.shape)
            link.pop_array(stream)
    assert link.inbox_bytes == 0
    if link.error is not None:
        raise link.error


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return them: what bank sends, for shop."""
    folder = local.folder / "bank"
    identity = load_identity(folder / "bank.key", folder / "bank.crt")
    own = local.folder / "shop"
    ours = load_identity(own / "shop.key", own / "shop.crt")
    pinned: dict[str, str | None] = {n: job.get_entry(n).fingerprint for n in local.member_names}
    session = bytes(range(32))
    shop = Handshake("shop", pinned, session, ours)
    in_the_clear = Handshake("shop", dict.fromkeys(pinned), session, None)
    failed = Handshake("bank", pinned, session, identity, FailureNotice("bank", 4))

    def hello(certificate: bytes) -> bytes:
        name = b"bank"
        lengths = struct.pack("<H", len(name)), struct.pack("<H", len(certificate))
        return b"PVHELLO2" + session + lengths[0] + name + lengths[1] + certificate

    def say_hello(content: bytes) -> object:
        spoken = cast("socket.socket", Spoken(content))
        return shop.exchange_hellos(spoken, {"bank"}, time.monotonic() + 5, is_client=False)

    def greet(content: bytes) -> object:
        spoken = cast("Any", Spoken(content))
        return in_the_clear.run(spoken, {"bank"}, is_client=False)

    said = Spoken(hello(b""))
    in_the_clear.exchange_hellos(cast("Any", said), {"bank"}, time.monotonic() + 5, is_client=False)
    digest = hashlib.sha256(hello(b"") + said.sent).digest()
    greeting = hello(b"") + digest + bytes(5)
    array = np.arange(20, dtype=np.uint64)
    small = np.arange(6, dtype=np.uint8).reshape(2, 3)
    frame = pack_array_header(array, 0, 7) + array.tobytes()
    other = pack_array_header(small, 0, 3, 2) + small.tobytes()
    alive, goodbye, gave_up = (pack_control_header(k, t) for k, t in ((2, 0), (3, 0), (4, 9)))
    refused = (HandshakeRefusedError, OSError)
    return {
        "frames": Reader(
            (frame + alive * 3, other + frame + goodbye, frame, alive, gave_up, other + gave_up),
            read_frames,
            "bank",
            (PeerError,),
            share=24,
        ),
        "hellos": Reader([hello(identity.certificate_chain)], say_hello, "", refused, share=4),
        "greetings": Reader([greeting], greet, "", refused, share=4),
        "notes": Reader(
            [failed._pack_notice(), shop._pack_notice()],
            lambda content: shop._unpack_notice("bank", content),
            "",
            (HandshakeRefusedError,),
            size=5,
        ),
        "certificates": Reader(
            [identity.certificate_chain, identity.certificate_chain * 2],
            lambda content: authenticate_chain(content, identity.fingerprint),
        ),
        "fingerprints": Reader([identity.certificate_chain], compute_chain_fingerprint),
    }
