"""Large vectors in blocks, on all cores: numpy lets go of the interpreter while it computes.

What is done to a block depends on nothing but that block, so results are the same on any number of
cores. Small ones are not worth handing over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

_Item = TypeVar("_Item")

BLOCK = 1 << 16
"""Elements of a block, whose words stay in a core's cache."""
LARGE = 1 << 18
"""From so many elements on, handing blocks over takes less than it saves."""
_inside = threading.local()


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blocks(count: int, size: int = BLOCK) -> list[slice]:
    """Return how a vector is cut."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def each(work: Callable[[_Item], None], items: Sequence[_Item], elements: int) -> None:
    """Do some work for each item, several at once if it is about many elements in all."""
    if elements < LARGE or len(items) < 2 or count_cores() < 2 or hasattr(_inside, "pool"):
        for item in items:
            work(item)
    else:
        for _ in _pool().map(work, items):
            pass


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that all of this process share; what they do waits for no other one."""

    def begin() -> None:
        _inside.pool = True

    return ThreadPoolExecutor(count_cores(), thread_name_prefix="rows", initializer=begin)
