"""Frames: one array, or one control message, as bytes on the wire or in a file.

    offset  0  2  "PV"
            2  1  version of this format
            3  1  kind: 1 array, 2 heartbeat, 3 goodbye, 4 failure notice
            4  1  type of the elements: 0 uint8, 1 uint32, 2 uint64, 3 uint16
            5  1  number of dimensions, at most 4
            6  2  stream: arrays are in order within each stream
            8  4  sequence number: count of earlier arrays on the stream
           12  4  tag: of an array, the hash of the program position, equal at both ends;
                  of a failure notice, the hash of the failed member's name, or 0 for the sender
           16 16  four lengths; zero beyond the dimensions
           32     the elements, little-endian

A control frame has no content except the tag of a failure notice. The size of an array is the
product of its lengths: no second number can contradict it. A header is checked completely, and
against the receiver's limit, before any memory is allocated.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

VERSION: Final = 1
ARRAY: Final = 1
HEARTBEAT_FRAME: Final = 2
GOODBYE: Final = 3
FAILURE_FRAME: Final = 4

_HEADER = struct.Struct("<2sBBBBHII4I")
HEADER_BYTES: Final = _HEADER.size
MAX_DIMENSIONS: Final = 4
MAX_FRAME_BYTES: Final = 1 << 30
MAX_STREAMS: Final = 64

_DTYPES: tuple[np.dtype[Any], ...] = (
    np.dtype(np.uint8),
    np.dtype(np.uint32),
    np.dtype(np.uint64),
    np.dtype(np.uint16),
)
_CONTROL = {
    HEARTBEAT_FRAME: "a sign of life",
    GOODBYE: "a goodbye",
    FAILURE_FRAME: "word of a failure",
}
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}

assert sys.byteorder == "little", "frames contain numbers as in memory: little-endian"


class FrameError(ValueError):
    """Bytes that are not a frame, or a frame that is too large."""


class Header(NamedTuple):
    """The header of a frame."""

    kind: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    sequence: int
    tag: int
    stream: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    def describe(self) -> str:
        """Describe the frame, for error messages."""
        if self.kind == ARRAY:
            stream = f" on stream {self.stream}" if self.stream else ""
            text = f"array {self.sequence}{stream} of {self.dtype} {self.shape}"
            return f"{text}, tag {self.tag:08x}"
        return _CONTROL[self.kind]


def pack_array_header(array: npt.NDArray[Any], sequence: int, tag: int, stream: int = 0) -> bytes:
    """Return the header of an array frame."""
    assert array.ndim <= MAX_DIMENSIONS, f"{array.ndim} dimensions do not fit a frame"
    assert array.nbytes <= MAX_FRAME_BYTES, f"{array.nbytes} bytes do not fit a frame"
    lengths = array.shape + (0,) * (MAX_DIMENSIONS - array.ndim)
    return _HEADER.pack(
        b"PV", VERSION, ARRAY, _CODES[array.dtype], array.ndim, stream, sequence, tag, *lengths
    )


def split_into_frames(array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Split an array into frames: unchanged if it fits one frame, and otherwise as byte arrays."""
    if array.nbytes <= MAX_FRAME_BYTES:
        return [array]
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return [content[start : start + MAX_FRAME_BYTES] for start in _starts(array.nbytes)]


def assemble_frames(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    receive: Callable[[np.dtype[Any], tuple[int, ...]], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    """Return an array from its frames; `receive` returns one frame of a given type and shape."""
    nbytes = dtype.itemsize * math.prod(shape)
    if nbytes <= MAX_FRAME_BYTES:
        return receive(dtype, shape)
    whole: npt.NDArray[Any] = np.empty(shape, dtype=dtype)
    content = whole.reshape(-1).view(np.uint8)
    for start in _starts(nbytes):
        piece = content[start : start + MAX_FRAME_BYTES]
        piece[...] = receive(piece.dtype, piece.shape)
    return whole


def _starts(nbytes: int) -> range:
    return range(0, nbytes, MAX_FRAME_BYTES)


def pack_control_header(kind: int, tag: int = 0) -> bytes:
    """Return a control frame; `tag` is the hash of the failed member in a failure notice."""
    return _HEADER.pack(b"PV", VERSION, kind, 0, 0, 0, 0, tag, 0, 0, 0, 0)


def hash_name(name: str) -> int:
    """Return the hash of a member's name, for failure notices."""
    return zlib.crc32(name.encode())


def parse_header(content: bytes | bytearray | memoryview, limit: int = MAX_FRAME_BYTES) -> Header:
    """Parse a header; raise FrameError unless this software could have sent it."""
    if len(content) != HEADER_BYTES:
        raise FrameError(f"{len(content)} bytes are no header")
    fields = _HEADER.unpack(content)
    magic, version, kind, code, dimensions, stream, sequence, tag, *lengths = fields
    if magic != b"PV":
        raise FrameError(f"not a frame of this software: it starts with {bytes(content[:8])!r}")
    if version != VERSION:
        raise FrameError(f"a frame of version {version}; this software speaks version {VERSION}")
    if kind != ARRAY and kind not in _CONTROL:
        raise FrameError(f"a frame of the unknown kind {kind}")
    if code >= len(_DTYPES) or dimensions > MAX_DIMENSIONS or stream >= MAX_STREAMS:
        raise FrameError("a frame with a damaged header")
    if any(lengths[dimensions:]):
        raise FrameError("a frame with lengths beyond its dimensions")
    if kind != ARRAY and (
        code or dimensions or stream or sequence or (tag and kind != FAILURE_FRAME)
    ):
        raise FrameError("a control frame that carries something")
    # A length of zero would leave the other lengths unbounded, so it counts as one here.
    size = _DTYPES[code].itemsize
    for length in lengths:
        size *= length or 1
    if size > limit:
        raise FrameError(f"a frame of {size} bytes; the limit is {limit}")
    return Header(kind, _DTYPES[code], tuple(lengths[:dimensions]), sequence, tag, stream)


class FrameReader:
    """Splits a stream of bytes into frames.

    Callers write bytes into `get_buffer()`, then count them with `advance()`. Small frames pass
    through one buffer; the elements of a large frame are written directly into their array.
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._buffer = memoryview(bytearray(1 << 16))
        self._start = self._end = 0  # bytes in the buffer that are not split yet
        self._header: Header | None = None
        self._array: npt.NDArray[Any] = np.empty(0, dtype=np.uint8)
        self._rest = memoryview(b"")  # the part of the array that is still missing

    @property
    def is_idle(self) -> bool:
        """Whether the stream is between two frames."""
        return self._header is None and self._start == self._end

    @property
    def partial_header(self) -> Header | None:
        """The header of the incomplete frame, if any."""
        return self._header

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._rest if self._header is not None else self._buffer[self._end :]

    def advance(self, count: int) -> list[tuple[Header, npt.NDArray[Any]]]:
        """Count `count` more bytes, and return the frames that they complete."""
        frames: list[tuple[Header, npt.NDArray[Any]]] = []
        if self._header is not None:
            self._rest = self._rest[count:]
            if not self._rest:
                frames.append((self._header, self._array))
                self._header = None
            return frames
        self._end += count
        while self._header is None and self._end - self._start >= HEADER_BYTES:
            elements = self._start + HEADER_BYTES
            header = parse_header(self._buffer[self._start : elements], self.limit)
            size = header.nbytes if header.kind == ARRAY else 0
            n_buffered = min(size, self._end - elements)
            self._start = elements + n_buffered
            # Not zeroed: memory of announced elements costs nothing until they arrive.
            content = np.empty(size, dtype=np.uint8)
            content.data[:n_buffered] = self._buffer[elements : self._start]
            array = content.view(header.dtype)
            if header.kind == ARRAY:
                array = array.reshape(header.shape)
            if n_buffered == size:
                frames.append((header, array))
            else:
                self._header, self._array, self._rest = header, array, content.data[n_buffered:]
        # Move the remaining bytes to the front, so that the buffer always has room for a header.
        n_left = self._end - self._start
        if n_left and self._start:
            self._buffer[:n_left] = self._buffer[self._start : self._end]
        self._start, self._end = 0, n_left
        return frames
