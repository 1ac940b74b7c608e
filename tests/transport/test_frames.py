from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.transport.frames import (
    ARRAY,
    FAILURE_FRAME,
    GOODBYE,
    HEADER_BYTES,
    HEARTBEAT_FRAME,
    FrameError,
    FrameReader,
    Header,
    pack_array_header,
    pack_control_header,
    parse_header,
)

DTYPES = (np.uint8, np.uint32, np.uint64)


def frame(array: np.ndarray, sequence: int = 0, tag: int = 0) -> bytes:
    return pack_array_header(array, sequence, tag) + array.tobytes()


def feed(reader: FrameReader, content: bytes, step: int = 1 << 20) -> list[tuple[Header, Any]]:
    """Put bytes in, at most `step` at a time, as a connection would."""
    found = []
    while content:
        target = reader.get_buffer()
        count = min(len(target), len(content), step)
        target[:count] = content[:count]
        found += reader.advance(count)
        content = content[count:]
    return found


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
arrays = st.builds(
    lambda shape, dtype, fill: np.full(shape, fill, dtype=dtype),
    shapes,
    st.sampled_from(DTYPES),
    st.integers(0, 255),
)


@given(st.lists(arrays, max_size=8), st.integers(1, 100))
def test_reading_inverts_writing(sent: list[Any], step: int) -> None:
    stream = b"".join(frame(a, i, 1000 + i) for i, a in enumerate(sent)) + pack_control_header(
        GOODBYE
    )
    reader = FrameReader()
    *found, last = feed(reader, stream, step)
    assert len(found) == len(sent)
    for i, ((header, array), original) in enumerate(zip(found, sent, strict=True)):
        assert header == Header(ARRAY, original.dtype, original.shape, i, 1000 + i)
        assert array.dtype == original.dtype
        assert (array == original).all()
        assert array.flags.writeable
    assert last[0].kind == GOODBYE
    assert reader.is_idle


def test_a_large_frame_among_small_ones() -> None:
    large = np.arange(300_000, dtype=np.uint32)
    small = np.arange(3, dtype=np.uint8)
    stream = frame(small) + frame(large, 1) + pack_control_header(HEARTBEAT_FRAME) + frame(small, 2)
    for step in (1000, 65_536, 1 << 22):
        found = feed(FrameReader(), stream, step)
        assert [header.kind for header, _ in found] == [ARRAY, ARRAY, HEARTBEAT_FRAME, ARRAY]
        assert (found[1][1] == large).all()


HEADER = pack_array_header(np.zeros((2, 3), dtype=np.uint32), 7, 9)


@pytest.mark.parametrize(
    ("offset", "content", "complaint"),
    [
        (0, b"GET / HT", "not a frame of this software"),
        (2, b"\x02", "version 2"),
        (3, b"\x00", "unknown kind 0"),
        (3, b"\x05", "unknown kind 5"),
        (4, b"\x04", "damaged header"),
        (5, b"\x05", "damaged header"),
        (6, b"\x40", "damaged header"),
        (7, b"\x01", "damaged header"),
        (5, b"\x01", "lengths beyond its dimensions"),
        (3, b"\x02", "control frame that carries something"),
        (16, b"\xff\xff\xff\xff", "the limit is"),
        (16, b"\xff\xff\xff\xff\xff\xff\xff\xff", "the limit is"),
    ],
)
def test_a_damaged_header_is_refused(offset: int, content: bytes, complaint: str) -> None:
    damaged = HEADER[:offset] + content + HEADER[offset + len(content) :]
    with pytest.raises(FrameError, match=complaint):
        parse_header(damaged, limit=1 << 20)
    with pytest.raises(FrameError, match=complaint):
        feed(FrameReader(limit=1 << 20), damaged)


@pytest.mark.parametrize("kind", [HEARTBEAT_FRAME, GOODBYE, FAILURE_FRAME])
def test_control_frames_contain_only_the_cause_of_a_failure(kind: int) -> None:
    [(header, array)] = feed(FrameReader(), pack_control_header(kind))
    assert (header.kind, header.tag, array.size) == (kind, 0, 0)
    if kind == FAILURE_FRAME:
        assert parse_header(pack_control_header(kind, 0xDEADBEEF)).tag == 0xDEADBEEF
    for offset in (4, 5, 8) if kind == FAILURE_FRAME else (4, 5, 8, 12):
        damaged = bytearray(pack_control_header(kind))
        damaged[offset] = 1
        with pytest.raises(FrameError, match="control frame that carries something"):
            parse_header(damaged)


def test_a_truncated_header_is_refused() -> None:
    with pytest.raises(FrameError, match="31 bytes are no header"):
        parse_header(HEADER[:-1])


def _malformed(rng: random.Random) -> bytes:
    """Return random bytes, or a frame with an error."""
    shape = tuple(rng.randrange(4) for _ in range(rng.randrange(5)))
    good = frame(
        np.zeros(shape, dtype=rng.choice(DTYPES)), rng.getrandbits(32), rng.getrandbits(32)
    )
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randrange(100))
    if kind == 1:  # truncated
        return good[: rng.randrange(len(good))]
    if kind == 2:  # wrong lengths
        return good[:16] + rng.randbytes(16) + good[32:]
    if kind == 3:
        good = pack_control_header(rng.choice((HEARTBEAT_FRAME, GOODBYE, FAILURE_FRAME)))
    damaged = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def test_a_hundred_thousand_malformed_frames() -> None:
    """They are read as frames or raise FrameError, and memory stays below the limit."""
    rng = random.Random(5)
    limit = 1 << 16
    refused = 0
    tracemalloc.start()
    for _ in range(100_000):
        try:
            for header, array in feed(FrameReader(limit), _malformed(rng)):
                assert header.kind in (ARRAY, HEARTBEAT_FRAME, GOODBYE, FAILURE_FRAME)
                assert array.nbytes <= limit
        except FrameError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 50_000
    assert peak < 4 << 20


def test_header_size() -> None:
    assert len(HEADER) == HEADER_BYTES == 32
