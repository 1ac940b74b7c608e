"""Atomic writes, disk space, and locks that allow one run of a job in a folder.

A service of the job may run beside a training, which makes its next model, and so may a prediction:
each of them has a lock of its own. Two of a kind would take the same seat among the others.

The system lets a lock go when its process ends, however that ends: there is nothing to clean up
after a power cut, and a file that is left over locks nobody out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Literal

from privet.errors import BusyError, UnavailableError

_TOKEN_BYTES = 4
"""Of a file that is being written, behind its name."""


def check_writable(path: str | Path) -> None:
    """Raise UnavailableError unless a file could be written there, before hours go into it."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise UnavailableError(f"{path} is not a file but something else; give another name")
    if not path.parent.is_dir():
        raise UnavailableError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UnavailableError(f"{path.parent} cannot be written to; choose another place")


def prepare_output(path: str | Path) -> None:
    """See that a file could be written there; remove what a killed process has left of it.

    For the start of a command: whoever writes the same file meanwhile would lose it.
    """
    check_writable(path)
    path = Path(path).resolve()
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
        remove_file(left)


def check_free_space(folder: Path, nbytes: int) -> None:
    """Raise UnavailableError unless so many bytes can be written to a directory."""
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise UnavailableError(
            f"{folder}: {free / 1e6:,.0f} MB are free and {nbytes / 1e6:,.0f} MB are needed; "
            "make room, or choose another place"
        )


def make_folder(folder: str | Path) -> Path:
    """Return a directory that exists and can be written to; make it if need be."""
    folder = Path(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{folder}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnavailableError(f"{folder} cannot be written to; choose another place")
    return folder


def remove_file(path: Path) -> None:
    """Remove a file that is not needed any more."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be removed: {error.strerror}") from None


def write_atomically(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Write a file so that its name always stands for a whole one: the old or the new.

    A private one can be read by its owner alone.
    """
    check_writable(path)
    path = Path(path).resolve()  # through links, so that they stay
    part = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
    try:
        descriptor = os.open(
            part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
    finally:  # an interrupt, too, leaves nothing behind
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def remove_on_failure() -> Iterator[list[Path]]:
    """Yield a list for the names of new files, which are removed again if not all can be made.

    A name goes into the list before its file is made.
    """
    new: list[Path] = []
    try:
        yield new
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise


def append_durably(path: Path, end: int, content: bytes) -> None:
    """Write bytes behind the first `end` of a file, and wait until they are on disk.

    What lies behind these already, of a write that was cut short, is cut off.
    """
    try:
        with path.open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None


def _sync_directory(folder: Path) -> None:
    """Make sure that a new name in a directory survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LockPurpose = Literal["train", "predict", "serve"]
"""What a folder is locked for: to train, align or write the table anew; to predict or export a
model; to serve it."""
_PURPOSE_TEXTS: dict[LockPurpose, str] = {
    "train": "works there for the job",
    "predict": "predicts or exports there for the job",
    "serve": "serves there for the job",
}


@contextlib.contextmanager
def lock_job(folder: str | Path, job_name: str, purpose: LockPurpose = "train") -> Iterator[None]:
    """Have a folder to ourselves, as far as one job goes; raise BusyError if it is taken."""
    path = _make_lock_path(make_folder(folder), job_name, purpose)
    descriptor = _acquire_lock(path, f"{_PURPOSE_TEXTS[purpose]} {job_name!r}")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go: whoever waits for it looks again
        os.close(descriptor)


def find_lock_holder(folder: str | Path, job_name: str, purpose: LockPurpose) -> str | None:
    """Return the number of the process that has a lock; None if nobody has."""
    try:
        descriptor = os.open(_make_lock_path(Path(folder), job_name, purpose), os.O_RDONLY)
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


def _make_lock_path(folder: Path, job_name: str, purpose: LockPurpose) -> Path:
    return folder / (f".{job_name}.lock" if purpose == "train" else f".{job_name}@{purpose}.lock")


def _read(descriptor: int) -> str:
    return os.read(descriptor, 20).decode(errors="replace") or "unknown"


def _acquire_lock(path: Path, holder_text: str) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, path):  # and not removed by who had it before
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            process = _read(descriptor)
            os.close(descriptor)
            raise BusyError(
                f"{path.parent}: process {process} {holder_text}: wait until it has ended, or stop "
                "it"
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


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Tell whether a file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
