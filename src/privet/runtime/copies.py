"""Processes that are copies of one which has imported what they need, and has nothing of ours."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext


def processes_with(module: str) -> SpawnContext | ForkServerContext:
    """Return what makes processes that have imported a module, and begin to import it.

    Where there can be no server to be copied, each of them imports it itself.
    """
    if is_private(sys.version_info[:3]):
        # The server has a socket in the folder for temporary files, whose path may be too long, or
        # which may not be there.
        with contextlib.suppress(OSError):
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([module])
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


def is_private(version: tuple[int, ...]) -> bool:
    """Tell whether nobody else can reach the server of a version of Python.

    Before 3.10.9 and 3.11.1 its socket has no file on Linux, and so no rights: any user of the
    machine could have it run code as its owner (CVE-2022-42919).
    """
    return (3, 10, 9) <= version < (3, 11) or version >= (3, 11, 1)
