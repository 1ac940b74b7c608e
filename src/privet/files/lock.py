"""One run of a job at a time in a folder: two would overwrite each other's checkpoints and part.

A service of the job may run beside a training, which makes its next model, and so may a prediction:
each of them has a lock of its own. Two of a kind would take the same seat among the others.

The system lets a lock go when its process ends, however that ends: there is nothing to clean up
after a power cut, and a file that is left over locks nobody out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from privet.errors import BusyError, UnavailableError
from privet.files.atomic import make_folder

Doing = Literal["train", "predict", "serve"]
"""What a folder is locked for: to train, align or write the table anew; to predict or export a
model; to serve it."""
_WORDS: dict[Doing, str] = {
    "train": "works there for the job",
    "predict": "predicts or exports there for the job",
    "serve": "serves there for the job",
}


@contextlib.contextmanager
def locked(folder: str | Path, job: str, doing: Doing = "train") -> Iterator[None]:
    """Have a folder to ourselves, as far as one job goes; raise BusyError if it is taken."""
    path = _path(make_folder(folder), job, doing)
    descriptor = _lock(path, f"{_WORDS[doing]} {job!r}")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go: whoever waits for it looks again
        os.close(descriptor)


def holder(folder: str | Path, job: str, doing: Doing) -> str | None:
    """Return the number of the process that has a lock; None if nobody has."""
    try:
        descriptor = os.open(_path(Path(folder), job, doing), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None


def _path(folder: Path, job: str, doing: Doing) -> Path:
    return folder / (f".{job}.lock" if doing == "train" else f".{job}@{doing}.lock")


def _read(descriptor: int) -> str:
    return os.read(descriptor, 20).decode(errors="replace") or "unknown"


def _lock(path: Path, whose: str) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):  # and not removed by who had it before
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            process = _read(descriptor)
            os.close(descriptor)
            raise BusyError(
                f"{path.parent}: process {process} {whose}: wait until it has ended, or stop it"
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
