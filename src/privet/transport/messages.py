"""Messages beside the protocol, of any length."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from privet.errors import PeerMisbehavedError
from privet.transport.channel import Channel, Expected

TAG = zlib.crc32(b"message")
_SIZE = Expected(np.dtype(np.uint64), (1,))
MAX_BYTES = 1 << 24


def send(channel: Channel, peers: Iterable[str], content: bytes, stream: int = 0) -> None:
    """Send a message to some peers."""
    for peer in peers:
        channel.send(peer, np.array([len(content)], dtype=np.uint64), TAG, stream)
        channel.send(peer, np.frombuffer(content, dtype=np.uint8), TAG, stream)


def receive(channel: Channel, peer: str, most: int = MAX_BYTES, stream: int = 0) -> bytes:
    """Wait for a message from a peer, of at most so many bytes."""
    size = int(channel.receive(peer, _SIZE, TAG, stream)[0])
    if size > most:
        raise PeerMisbehavedError(peer, f"announced a message of {size} bytes: too many")
    return channel.receive(peer, Expected(np.dtype(np.uint8), (size,)), TAG, stream).tobytes()


def pack(texts: Iterable[str]) -> bytes:
    """Return texts as one message: each in UTF-8, after its length."""
    return b"".join(
        len(content).to_bytes(4, "little") + content for content in (t.encode() for t in texts)
    )


def unpack(message: bytes) -> list[str]:
    """Return the texts of a message; raise ValueError if it is not one of texts."""
    texts, start = [], 0
    while start < len(message):
        end = start + 4 + int.from_bytes(message[start : start + 4], "little")
        if end > len(message):
            raise ValueError("a text that is longer than its message")
        texts.append(message[start + 4 : end].decode())
        start = end
    return texts


def swap(channel: Channel, content: Mapping[str, bytes]) -> dict[str, bytes]:
    """Send everybody named something, and return what each of them sends."""
    for peer, message in content.items():
        send(channel, [peer], message)
    return {peer: receive(channel, peer) for peer in content}
