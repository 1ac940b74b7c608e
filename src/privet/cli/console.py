"""Showing what a running role tells: lines for people, JSON lines for machines, on stderr."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from rich.console import Console

from privet.errors import PrivetError
from privet.federation.events import Event, Tell

LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="Lines for people, or a JSON object a line, on stderr."),
]

# Waiting is told of every second; a log needs it less often.
_WAITING_SECONDS = 5.0


@contextlib.contextmanager
def telling(log_format: str) -> Iterator[Tell]:
    """Yield where events go. In JSON an error is the last of them."""
    if log_format == "json":
        try:
            yield _json
        except PrivetError as error:
            fields = {
                "code": error.exit_code,
                "error": type(error).__name__,
                "peer": error.peer,
                "step": error.step,
            }
            _json(Event("error", str(error), fields))
            raise typer.Exit(error.exit_code) from None
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

        yield tell


def _json(event: Event) -> None:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    line = {"time": now, "event": event.kind, "text": event.text, **event.fields}
    print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201
