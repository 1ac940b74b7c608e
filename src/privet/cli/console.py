"""Display of events on stderr: lines of text for people, JSON lines for machines."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from rich.console import Console

from privet.errors import UnavailableError
from privet.federation.monitoring.events import Event, EventBus, make_failure_event
from privet.schema import quote_untrusted

LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="Lines for people, or a JSON object a line, on stderr."),
]


@contextlib.contextmanager
def open_event_bus(log_format: str) -> Iterator[EventBus]:
    """Yield an event bus that prints events; in JSON the last event always reports the outcome.

    Transient events are not logged; a terminal shows them as a status line.
    """
    if log_format == "json":
        try:
            yield EventBus(_print_json)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
            last = make_failure_event(wrap_os_error(error) if isinstance(error, OSError) else error)
            _print_json(last)
            raise typer.Exit(last.fields["code"]) from None
        return
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    with console.status("starting") if console.is_terminal else contextlib.nullcontext() as status:

        def display(event: Event) -> None:
            if event.kind in ("waiting", "table") and status is not None:
                status.update(event.text)
            elif not event.is_transient:
                console.print(event.text)

        try:
            yield EventBus(display)
        except KeyboardInterrupt as error:  # `main` reports all other errors
            last = make_failure_event(error)
            console.print(last.text)
            raise typer.Exit(last.fields["code"]) from None


def wrap_os_error(error: OSError) -> UnavailableError:
    """Wrap an operating system error (full disk, name too long) in a PrivetError."""
    prefix = "" if error.filename is None else f"{quote_untrusted(error.filename, 200)}: "
    return UnavailableError(f"{prefix}{error.strerror or error}")


def _print_json(event: Event) -> None:
    if not event.is_transient:
        # In a single call, since other threads write, too.
        sys.stderr.write(json.dumps(event.to_record()) + "\n")
        sys.stderr.flush()
