"""A table's cells, to be taken one column at a time: in memory while they are few, else on disk.

On disk they are in a file like those of `arithmetic.roomy`.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref

import numpy as np

from privet.arithmetic.roomy import IN_MEMORY, room_for
from privet.arrays import FloatArray


class Store:
    """Where the cells of several columns are kept, as they come."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def put(self, values: FloatArray) -> int:
        """Keep some numbers; return where."""
        start, size = self._end, values.nbytes
        with room_for(start + size):
            self._file.seek(start)
            self._file.write(values.tobytes())
        self._end += size
        return start

    def get(self, start: int, target: FloatArray) -> None:
        """Fill an array with the numbers that are kept from there on."""
        with room_for(self._end):  # for what was put last, and is written now
            self._file.seek(start)
        target[:] = np.frombuffer(self._file.read(target.nbytes))


class StoredColumn:
    """One column in a store, which grows piece by piece."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pieces: list[tuple[int, int]] = []
        self.length = 0

    def append(self, values: FloatArray) -> None:
        """Add the next cells."""
        self._pieces.append((self._store.put(values), len(values)))
        self.length += len(values)

    def read(self) -> FloatArray:
        """Return all cells, as an array that is the caller's own."""
        values, end = np.empty(self.length), 0
        for start, length in self._pieces:
            self._store.get(start, values[end : end + length])
            end += length
        return values


def _close(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk, of which somebody has heard already
        file.close()
