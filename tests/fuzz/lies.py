"""The bytes that a liar sends instead of a frame."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import numpy as np

from privet.transport.frames import (
    FAILURE_FRAME,
    GOODBYE,
    HEADER_BYTES,
    HEARTBEAT_FRAME,
    hash_name,
    pack_array_header,
    pack_control_header,
)

Lie = Callable[[random.Random, bytes], bytes]
"""Turns a frame, header and elements, into other bytes."""


def _flip(chance: random.Random, frame: bytes, start: int, end: int) -> bytes:
    changed = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _of_header(chance: random.Random, frame: bytes) -> bytes:
    return _flip(chance, frame, 0, min(HEADER_BYTES, len(frame)))


def _of_elements(chance: random.Random, frame: bytes) -> bytes:
    return _flip(chance, frame, min(HEADER_BYTES, len(frame) - 1), len(frame))


def _other_lengths(chance: random.Random, frame: bytes) -> bytes:
    """Announce an array of any size."""
    lengths = [chance.choice([0, 1, 7, 1 << 20, (1 << 32) - 1]) for _ in range(4)]
    dimensions = chance.randint(0, 5)
    return frame[:5] + bytes([dimensions]) + frame[6:16] + struct.pack("<4I", *lengths) + frame[32:]


def _control(chance: random.Random, frame: bytes) -> bytes:
    """Insert a goodbye, a failure notice of any member, or many heartbeats."""
    tag = chance.choice([0, hash_name("bank"), hash_name("shop"), chance.getrandbits(32)])
    control_frames = [
        pack_control_header(GOODBYE),
        pack_control_header(FAILURE_FRAME, tag),
        pack_control_header(HEARTBEAT_FRAME) * 1000,
    ]
    return chance.choice(control_frames) + (frame if chance.random() < 0.5 else b"")


LIES: dict[str, Lie] = {
    "flipped bits of the header": _of_header,
    "flipped bits of the elements": _of_elements,
    "other lengths": _other_lengths,
    "a control frame": _control,
    "cut short": lambda chance, frame: frame[: chance.randrange(len(frame))],
    "twice": lambda _, frame: frame + frame,
    "nothing": lambda _, __: b"",
    "noise": lambda chance, frame: chance.randbytes(len(frame)),
}


def _largest(_: random.Random, frame: bytes) -> bytes:
    return frame[:HEADER_BYTES] + b"\xff" * (len(frame) - HEADER_BYTES)


LIES["the largest elements"] = _largest
_ALL = list(LIES.values())
_OTHER = np.arange(6, dtype=np.uint16)
_EXTRA = [
    pack_control_header(HEARTBEAT_FRAME),
    pack_control_header(GOODBYE),
    pack_control_header(FAILURE_FRAME, hash_name("dealer")),
    pack_control_header(FAILURE_FRAME),
    *(pack_array_header(_OTHER, n, 7, stream) + _OTHER.tobytes() for n, stream in ((0, 0), (0, 2))),
]
"""Valid frames that a peer can send at any time."""


def lying_frames(chance: random.Random, expected: Sequence[bytes]) -> bytes:
    """Return valid and invalid frames: the expected ones, others between, and one or two lies.

    Most sequences are short, as a reader rarely continues after the first lie.
    """
    draw = chance.random
    frames = list(expected)
    while draw() < 0.4:
        frames.insert(int((len(frames) + 1) * draw()), _EXTRA[int(len(_EXTRA) * draw())])
    for _ in range(1 if draw() < 0.8 else 2):
        at = int(len(frames) * draw())
        if frames[at]:
            frames[at] = _ALL[int(len(_ALL) * draw())](chance, frames[at])
    return b"".join(frames)
