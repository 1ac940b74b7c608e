"""Processes of this machine, as its system lists them: whose workers are which."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def workers_of(head: int) -> list[int]:
    """Return the processes in which a head's workers are, and nothing else that it has started.

    They are copies of a server that it has for that, or it has started them itself.
    """
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found = []
    for child in children.get(head, ()):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"multiprocessing.forkserver" in command:
                found += children.get(child, [])
            elif b"multiprocessing.spawn" in command:
                found.append(child)
    return found


def is_there(process: int) -> bool:
    """Tell whether a process is there, and not over."""
    return process in dict(_parents())


def _parents() -> Iterator[tuple[int, int]]:
    """Yield all processes that are not over, each with its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(path.parent.name), int(parent)
