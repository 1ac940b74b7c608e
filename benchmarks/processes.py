"""Worker processes of a coordinator, from /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def workers_of(coordinator: int) -> list[int]:
    """Return the worker processes of a coordinator, without its other child processes.

    They are children of its fork server, or spawned by the coordinator itself.
    """
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found = []
    for child in children.get(coordinator, ()):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"multiprocessing.forkserver" in command:
                found += children.get(child, [])
            elif b"multiprocessing.spawn" in command:
                found.append(child)
    return found


def is_there(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    return process in dict(_parents())


def _parents() -> Iterator[tuple[int, int]]:
    """Yield all processes that have not ended, with their parents."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(path.parent.name), int(parent)
