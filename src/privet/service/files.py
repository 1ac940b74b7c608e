"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from privet.errors import UnavailableError


def check_writable(path: str | Path) -> None:
    """Raise UnavailableError unless a file could be written there, before hours go into it."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise UnavailableError(f"{path} is not a file but something else; give another name")
    if not path.parent.is_dir():
        raise UnavailableError(f"{path.parent} is not a directory; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UnavailableError(f"{path.parent} cannot be written to; choose another place")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that its name always stands for a whole one: the old or the new."""
    check_writable(path)
    path = Path(path).resolve()  # through links, so that they stay
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
