"""Files written whole or not at all, or added to so that what was there stays."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from privet.errors import UnavailableError

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


def make_way(path: str | Path) -> None:
    """See that a file could be written there; remove what a killed process has left of it.

    For the start of a command: whoever writes the same file meanwhile would lose it.
    """
    check_writable(path)
    path = Path(path).resolve()
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
        remove(left)


def check_room(folder: Path, nbytes: int) -> None:
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


def remove(path: Path) -> None:
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
        _sync_folder(path.parent)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
    finally:  # an interrupt, too, leaves nothing behind
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def all_or_none() -> Iterator[list[Path]]:
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


def extend(path: Path, end: int, content: bytes) -> None:
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


def _sync_folder(folder: Path) -> None:
    """Make sure that a new name in a directory survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
