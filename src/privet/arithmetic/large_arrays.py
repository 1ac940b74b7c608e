"""Large arrays: blocks computed on all cores, and arrays kept in temporary files.

The files are in the folder that TMPDIR names. They disappear with the process that holds them,
however it ends. The computation of a block depends only on that block, so results are the same on
any number of cores.
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
"""Bytes up to which an array is kept in memory."""


def allocate_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array; a large one is memory-mapped to a temporary file.

    The operating system can evict mapped memory when memory is short, and read it again.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= MAX_MEMORY_BYTES:
        return np.empty(shape, dtype)
    with explain_disk_full(size), tempfile.TemporaryFile() as file:
        # Reserve the space now: a write to mapped memory on a full disk ends the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)


@contextlib.contextmanager
def explain_disk_full(size: int) -> Iterator[None]:
    """Raise UnavailableError with a remedy if the temporary folder has no room for `size` bytes."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{_folder()}: {error.strerror or error}: {size / 1e6:,.0f} MB are to be kept there "
            "for a while: make room, or have TMPDIR name another folder"
        ) from None


def _folder() -> str:
    """Return the folder for temporary files, or a description if none can be used."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return "the folder for temporary files"


_Item = TypeVar("_Item")

BLOCK_ELEMENTS = 1 << 16
"""Elements of a block, which fits into a core's cache."""
MIN_PARALLEL_ELEMENTS = 1 << 18
"""Elements from which running blocks in threads saves more time than it costs."""
_thread_state = threading.local()


def count_cores() -> int:
    """Return the number of cores that this process can use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_into_blocks(count: int, size: int = BLOCK_ELEMENTS) -> list[slice]:
    """Return the slices of a vector's blocks."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def run_blocks(work: Callable[[_Item], None], items: Sequence[_Item], elements: int) -> None:
    """Call `work` for each item, in parallel if all items together have many elements."""
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
    """Return the thread pool of this process; its tasks never wait for each other."""

    def mark_thread() -> None:
        _thread_state.pool = True

    return ThreadPoolExecutor(count_cores(), thread_name_prefix="rows", initializer=mark_thread)
