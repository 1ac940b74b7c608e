"""Large arrays: blocks computed on all cores, and arrays kept in temporary files.

They are in the folder for temporary files, which TMPDIR names, and are gone with whoever holds
them, however that ends.

What is done to a block depends on nothing but that block, so results are the same on any number of
cores. Small ones are not worth handing over.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privet.errors import UnavailableError

MAX_MEMORY_BYTES = 1 << 24
"""Bytes up to which no file is made."""


def allocate_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array to be filled: where it is large, one of a file.

    Such memory is the system's to take back whenever it is short of it, and to read anew.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= MAX_MEMORY_BYTES:
        return np.empty(shape, dtype)
    with explain_disk_full(size), tempfile.TemporaryFile() as file:
        # Now: a disk that is full when somebody writes to such memory ends the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)


@contextlib.contextmanager
def explain_disk_full(size: int) -> Iterator[None]:
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


_Item = TypeVar("_Item")

BLOCK_ELEMENTS = 1 << 16
"""Elements of a block, whose words stay in a core's cache."""
MIN_PARALLEL_ELEMENTS = 1 << 18
"""From so many elements on, handing blocks over takes less than it saves."""
_thread_state = threading.local()


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_into_blocks(count: int, size: int = BLOCK_ELEMENTS) -> list[slice]:
    """Return how a vector is cut."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def run_blocks(work: Callable[[_Item], None], items: Sequence[_Item], elements: int) -> None:
    """Do some work for each item, several at once if it is about many elements in all."""
    if (
        elements < MIN_PARALLEL_ELEMENTS
        or len(items) < 2
        or count_cores() < 2
        or hasattr(_thread_state, "pool")
    ):
        for item in items:
            work(item)
    else:
        for _ in _pool().map(work, items):
            pass


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that all of this process share; what they do waits for no other one."""

    def begin() -> None:
        _thread_state.pool = True

    return ThreadPoolExecutor(count_cores(), thread_name_prefix="rows", initializer=begin)
