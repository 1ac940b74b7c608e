"""Arrays that may be larger than memory: in files that have no name, and that nobody else can open.

They are in the folder for temporary files, which TMPDIR names, and are gone with whoever holds
them, however that ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.errors import UnavailableError

IN_MEMORY = 1 << 24
"""Bytes up to which no file is made."""


def roomy(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array to be filled: where it is large, one of a file.

    Such memory is the system's to take back whenever it is short of it, and to read anew.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    with room_for(size), tempfile.TemporaryFile() as file:
        # Now: a disk that is full when somebody writes to such memory ends the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """Say what to do if there is no room for so many bytes, or no place for any."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{_folder()}: {error.strerror or error}: {size / 1e6:,.0f} MB are to be kept there "
            "for a while: make room, or have TMPDIR name another folder"
        ) from None


def _folder() -> str:
    """Return the folder for temporary files, or just that, if none can be used."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return "the folder for temporary files"
