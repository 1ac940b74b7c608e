"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from privet.errors import UnavailableError


def check_writable(path: str | Path) -> None:
    """Raise UnavailableError unless a file could be written there, before hours go into it."""
    path = Path(path)
    if path.is_dir():
        raise UnavailableError(f"{path} is a directory; give the name of a file")
    if not path.parent.is_dir():
        raise UnavailableError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UnavailableError(f"{path.parent} cannot be written to; choose another place")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that its name always stands for a whole one: the old or the new."""
    path = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
