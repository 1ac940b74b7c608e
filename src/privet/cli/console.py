"""Showing what a running role tells: lines for people, JSON lines for machines, on stderr."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from rich.console import Console

from privet.config import quoted
from privet.errors import INTERRUPTED, PrivetError, UnavailableError
from privet.federation.events import Event, Teller

LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="Lines for people, or a JSON object a line, on stderr."),
]

# Waiting is told of every second; a log needs it less often.
_WAITING_SECONDS = 5.0


@contextlib.contextmanager
def telling(log_format: str) -> Iterator[Teller]:
    """Yield where events go. In JSON the last of them says how it ended, however it did."""
    if log_format == "json":
        try:
            yield Teller(_json)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
            last = _last_words(error)
            _json(last)
            raise typer.Exit(last.fields["code"]) from None
        return
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    with console.status("starting") if console.is_terminal else contextlib.nullcontext() as status:
        last_waiting = 0.0

        def tell(event: Event) -> None:
            nonlocal last_waiting
            if event.kind in ("waiting", "table") and status is not None:
                status.update(event.text)
                return
            if event.kind == "waiting":
                if time.monotonic() - last_waiting < _WAITING_SECONDS:
                    return
                last_waiting = time.monotonic()
            console.print(event.text)

        yield Teller(tell)


def as_ours(error: OSError) -> UnavailableError:
    """Return what the system refuses (a full disk, a name too long) as an error of ours."""
    where = "" if error.filename is None else f"{quoted(error.filename, 200)}: "
    return UnavailableError(f"{where}{error.strerror or error}")


def _last_words(error: BaseException) -> Event:
    if isinstance(error, OSError):
        error = as_ours(error)
    if isinstance(error, KeyboardInterrupt):
        return Event("interrupted", "interrupted", {"code": INTERRUPTED})
    if not isinstance(error, PrivetError):
        found = "".join(traceback.format_exception(error))
        text = f"a bug of ours, please report it: {error!r}"
        fields = {"code": PrivetError.exit_code, "error": type(error).__name__, "traceback": found}
        return Event("error", text, fields)
    fields = {
        "code": error.exit_code,
        "error": type(error).__name__,
        "peer": error.peer,
        "step": error.step,
    }
    return Event("error", str(error), fields)


def _json(event: Event) -> None:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    line = {"time": now, "event": event.kind, "text": event.text, **event.fields}
    print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201
