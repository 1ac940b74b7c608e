"""Atomic writes, disk space checks, and locks that allow one run of a job in a folder.

Training, prediction and serving have separate locks, because a service or a prediction can run
while the next model is trained. Two runs of one purpose would connect as the same participant.

The operating system releases a lock when its process ends for any reason, so a lock file that is
left over, such as after a power cut, blocks no later run.
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
"""The length of the random suffix of a temporary file."""


def check_writable(path: str | Path) -> None:
    """Raise UnavailableError unless `path` can be written; call it before a long computation."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise UnavailableError(f"{path} is not a file but something else; give another name")
    if not path.parent.is_dir():
        raise UnavailableError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UnavailableError(f"{path.parent} cannot be written to; choose another place")


def prepare_output(path: str | Path) -> None:
    """Check that a file can be written; remove temporary files that a killed process left.

    Only for the start of a command: it also removes the temporary file of a process that is
    writing the same path.
    """
    check_writable(path)
    path = Path(path).resolve()
    for leftover in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
        remove_file(leftover)


def check_free_space(folder: Path, nbytes: int) -> None:
    """Raise UnavailableError unless `nbytes` bytes are free in a directory."""
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise UnavailableError(
            f"{folder}: {free / 1e6:,.0f} MB are free and {nbytes / 1e6:,.0f} MB are needed; "
            "make room, or choose another place"
        )


def make_folder(folder: str | Path) -> Path:
    """Create a directory unless it exists; raise UnavailableError unless it is writable."""
    folder = Path(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{folder}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnavailableError(f"{folder} cannot be written to; choose another place")
    return folder


def remove_file(path: Path) -> None:
    """Remove a file if it exists; raise UnavailableError if that fails."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be removed: {error.strerror}") from None


def write_atomically(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a mixture.

    Only its owner can read a private file.
    """
    check_writable(path)
    path = Path(path).resolve()  # follow symbolic links instead of replacing them
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
    finally:  # also after an interrupt
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def remove_on_failure() -> Iterator[list[Path]]:
    """Yield a list of new files, all of which are removed if the block fails.

    The caller appends a path before it creates the file.
    """
    new: list[Path] = []
    try:
        yield new
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise


def append_durably(path: Path, end: int, content: bytes) -> None:
    """Write bytes after the first `end` bytes of a file, and wait until they are on disk.

    Bytes already after `end`, from an interrupted write, are truncated.
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
    """Flush a directory, so that a new name in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LockPurpose = Literal["train", "predict", "serve"]
"""The purpose of a lock: "train" also covers alignment and sharding, "predict" also export."""
_PURPOSE_TEXTS: dict[LockPurpose, str] = {
    "train": "works there for the job",
    "predict": "predicts or exports there for the job",
    "serve": "serves there for the job",
}


@contextlib.contextmanager
def lock_job(folder: str | Path, job_name: str, purpose: LockPurpose = "train") -> Iterator[None]:
    """Lock a folder for one job and purpose; raise BusyError if another process holds the lock."""
    path = _make_lock_path(make_folder(folder), job_name, purpose)
    descriptor = _acquire_lock(path, f"{_PURPOSE_TEXTS[purpose]} {job_name!r}")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the release: a waiting process then opens a new file
        os.close(descriptor)


def find_lock_holder(folder: str | Path, job_name: str, purpose: LockPurpose) -> str | None:
    """Return the id of the process that holds a lock; None if no process does."""
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
            if _is_same_file(descriptor, path):  # the previous holder may have removed it
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            holder = _read(descriptor)
            os.close(descriptor)
            raise BusyError(
                f"{path.parent}: process {holder} {holder_text}: wait until it has ended, or stop "
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
    """Tell whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
