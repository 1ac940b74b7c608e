"""What a check finds, one thing at a time: here of places that a participant names.

These are where models and temporary files go, the audit log, and the files of the endpoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from privet.errors import PrivetError, UnavailableError
from privet.files.atomic import make_folder
from privet.files.audit import AuditLog
from privet.files.endpoint import Endpoint

Verdict = Literal["good", "doubtful", "bad"]
EXPIRES_SOON = 30
"""So many days before a certificate expires, it is time to renew it."""
_SPARE = 100_000_000
"""Less than so many bytes beyond what a training takes is little: logs and records grow, too."""
_CODE = UnavailableError.exit_code


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    text: str
    code: int = 0
    """The exit code of what is bad."""


def attempt(what: str, look: Callable[[], str]) -> Finding:
    """Return what was seen, or what kept us from seeing it."""
    try:
        return Finding(what, "good", look())
    except PrivetError as error:
        return Finding(what, "bad", str(error), error.exit_code)


def of_expiry(what: str, text: str, days: int, renewal: str) -> Finding:
    """Say of a certificate for how long it is valid: one that ends today will not last a run."""
    if days < 1:
        when = "has expired" if days < 0 else "expires within a day"
        return Finding(what, "bad", f"{text} {when}: {renewal}", _CODE)
    text += f" expires in {days} {'day' if days == 1 else 'days'}"
    if days < EXPIRES_SOON:
        return Finding(what, "doubtful", f"{text}: {renewal}")
    return Finding(what, "good", text)


class Space(NamedTuple):
    """How many bytes were free, before we took some of them for a while."""

    models: int = 0
    temporary: int = 0

    @classmethod
    def now(cls, folder: str | Path) -> Space:
        """Look at a folder of models, and at that for temporary files."""
        found = cls()
        with contextlib.suppress(OSError):  # whoever looks closer tells of it
            found = found._replace(models=shutil.disk_usage(folder).free)
        with contextlib.suppress(OSError):
            found = found._replace(temporary=shutil.disk_usage(tempfile.gettempdir()).free)
        return found


def of_disk(folder: str | Path, needed: int | None, free: int | None = None) -> Finding:
    """Say whether there is room for models; None: it is not known how much that takes."""
    try:
        found = _written(make_folder(folder))
        free = shutil.disk_usage(found).free if free is None else free
        return _of_room("disk", found, free, needed, "choose another folder")
    except PrivetError as error:
        return Finding("disk", "bad", str(error), error.exit_code)


def of_temporary_files(
    needed: int, folder: str | Path, beside: int, free: int
) -> Iterator[Finding]:
    """Say where temporary files go and whether they fit there, beside models if need be."""
    what, wanted, advice = "temporary files", os.environ.get("TMPDIR"), "have TMPDIR name another"
    try:
        found = _written(Path(tempfile.gettempdir()))
    except OSError as error:
        yield Finding(what, "bad", f"{error.strerror}: {advice} folder", _CODE)
        return
    except PrivetError as error:
        yield Finding(what, "bad", str(error), error.exit_code)
        return
    if wanted and os.path.abspath(wanted) != str(found):
        text = f"TMPDIR is {wanted}, and no file can be made there: make that folder, or {advice}"
        yield Finding(what, "doubtful", f"{text}; until then they go to {found}")
    if needed and Path(folder).exists() and found.stat().st_dev == Path(folder).stat().st_dev:
        needed += beside
    yield _of_room(what, found, free, needed, advice)


def _written(folder: Path) -> Path:
    """Return a folder in which a file was written, which is gone again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise UnavailableError(
            f"{folder} cannot be written to: {error.strerror}: make room, or choose another place"
        ) from None
    return folder


def _of_room(what: str, folder: Path, free: int, needed: int | None, advice: str) -> Finding:
    text = f"{_size(free)} are free in {folder}"
    if needed:
        text += f", and a training takes up to {_size(needed)} there"
    if free < (needed or 1):
        return Finding(what, "bad", f"{text}: make room, or {advice}", _CODE)
    if free < 2 * (needed or 0) + _SPARE:
        return Finding(what, "doubtful", f"{text}: that is little: make room, or {advice}")
    return Finding(what, "good", text)


def _size(nbytes: int) -> str:
    unit, name = next(
        (each for each in ((1e9, "GB"), (1e6, "MB")) if nbytes >= each[0]), (1e3, "kB")
    )
    return f"{nbytes / unit:,.1f} {name}"


def of_audit_log(path: str | Path) -> Finding:
    """Say whether sessions can be recorded: otherwise none takes place."""

    def look() -> str:
        AuditLog(path).check()
        return f"{path} can be added to"

    return attempt("audit log", look)


def of_endpoint(endpoint: Endpoint) -> Iterator[Finding]:
    """Look at the files that an endpoint names, if it names any."""
    what, named = "endpoint", [endpoint.token, endpoint.certificate, endpoint.key]
    days: int | None = None

    def look() -> str:
        nonlocal days
        endpoint.read_token()
        days = endpoint.days_left()
        return f"{', '.join(filter(None, named))}: can be used"

    if any(named):
        yield attempt(what, look)
    if days is not None:
        renewal = "put a new one in its place, as from whoever has issued it"
        yield of_expiry(what, str(endpoint.certificate), days, renewal)
