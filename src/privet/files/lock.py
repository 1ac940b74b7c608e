"""One run of a job at a time in a folder: two would overwrite each other's checkpoints and part.

The system lets a lock go when its process ends, however that ends: there is nothing to clean up
after a power cut, and a file that is left over locks nobody out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from privet.errors import UnavailableError
from privet.files.atomic import make_folder


@contextlib.contextmanager
def locked(folder: str | Path, job: str) -> Iterator[None]:
    """Have a folder to ourselves, as far as one job goes; raise UnavailableError if it is taken."""
    path = make_folder(folder) / f".{job}.lock"
    descriptor = _lock(path, job)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go: whoever waits for it looks again
        os.close(descriptor)


def _lock(path: Path, job: str) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):  # and not removed by who had it before
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace")
            os.close(descriptor)
            raise UnavailableError(
                f"{path.parent}: process {holder or 'unknown'} works there for the job {job!r}: "
                "wait until it has ended, or stop it"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise UnavailableError(f"{path}: cannot be locked: {error.strerror}") from None
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None


def _is_at(descriptor: int, path: Path) -> bool:
    """Tell whether a file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
