"""Readers of handshakes and of frames."""

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
_MAX_INBOX_BYTES = 200 * FRAME_OVERHEAD_BYTES + _FRAME_LIMIT
"""Limit of an inbox for cases of a few kilobytes."""


class ScriptedSocket:
    """A socket whose incoming bytes are known, and arrive in pieces."""

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
        chunk, self._content = self._content[:count], self._content[count:]
        return bytes(chunk)

    def recv_into(self, target: memoryview, count: int) -> int:
        chunk = self._content[: min(count, self._piece)]
        if not chunk:
            raise BlockingIOError
        target[: len(chunk)] = chunk
        self._content = self._content[len(chunk) :]
        return len(chunk)


def read_frames(content: bytes) -> None:
    """Read frames like a connection; raise the connection's error."""
    sock = cast("socket.socket", ScriptedSocket(content, 1 + len(content) // 3))
    connection = PeerConnection("bank", sock, _FRAME_LIMIT, _NAMES)
    connection.read()
    assert connection.inbox_bytes <= _MAX_INBOX_BYTES, f"{connection.inbox_bytes} bytes in an inbox"
    connection.choose_poll_events(1 << 16)
    for stream, inbox in list(connection.inbox.items()):
        while inbox:
            header, array = inbox[0]
            assert (array.dtype, array.shape) == (header.dtype, header.shape)
            connection.pop_array(stream)
    assert connection.inbox_bytes == 0
    if connection.error is not None:
        raise connection.error


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return the readers of the bank's bytes at the shop."""
    folder = local.folder / "bank"
    identity = load_identity(folder / "bank.key", folder / "bank.crt")
    shop_folder = local.folder / "shop"
    shop_identity = load_identity(shop_folder / "shop.key", shop_folder / "shop.crt")
    pinned: dict[str, str | None] = {n: job.get_entry(n).fingerprint for n in local.member_names}
    session_id = bytes(range(32))
    shop = Handshake("shop", pinned, session_id, shop_identity)
    plain_handshake = Handshake("shop", dict.fromkeys(pinned), session_id, None)
    failed = Handshake("bank", pinned, session_id, identity, FailureNotice("bank", 4))

    def hello(certificate: bytes) -> bytes:
        name = b"bank"
        lengths = struct.pack("<H", len(name)), struct.pack("<H", len(certificate))
        return b"PVHELLO2" + session_id + lengths[0] + name + lengths[1] + certificate

    def say_hello(content: bytes) -> object:
        spoken = cast("socket.socket", ScriptedSocket(content))
        return shop.exchange_hellos(spoken, {"bank"}, time.monotonic() + 5, is_client=False)

    def run_handshake(content: bytes) -> object:
        spoken = cast("Any", ScriptedSocket(content))
        return plain_handshake.run(spoken, {"bank"}, is_client=False)

    spoken = ScriptedSocket(hello(b""))
    plain_handshake.exchange_hellos(
        cast("Any", spoken), {"bank"}, time.monotonic() + 5, is_client=False
    )
    digest = hashlib.sha256(hello(b"") + spoken.sent).digest()
    first_messages = hello(b"") + digest + bytes(5)
    array = np.arange(20, dtype=np.uint64)
    small = np.arange(6, dtype=np.uint8).reshape(2, 3)
    frame = pack_array_header(array, 0, 7) + array.tobytes()
    other = pack_array_header(small, 0, 3, 2) + small.tobytes()
    heartbeat, goodbye, failure = (pack_control_header(k, t) for k, t in ((2, 0), (3, 0), (4, 9)))
    refused = (HandshakeRefusedError, OSError)
    return {
        "frames": Reader(
            (
                frame + heartbeat * 3,
                other + frame + goodbye,
                frame,
                heartbeat,
                failure,
                other + failure,
            ),
            read_frames,
            "bank",
            (PeerError,),
            share=24,
        ),
        "hellos": Reader([hello(identity.certificate_chain)], say_hello, "", refused, share=4),
        "greetings": Reader([first_messages], run_handshake, "", refused, share=4),
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
