"""`privet ui`: a page for the people of one organisation."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.console import LogFormat, telling
from privet.cli.options import PartyOption
from privet.errors import UnavailableError
from privet.federation.events import Event, Tell
from privet.files.endpoint import Door
from privet.files.job import Job


def ui(
    party: PartyOption,
    job: Annotated[
        list[Path] | None,
        typer.Option(
            "--job", help="Jobs beside those in party.toml's folder, and those of earlier runs."
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="HOST:PORT of the page; port 0 is any that is free.")
    ] = "127.0.0.1:0",
    host: Annotated[
        list[str] | None, typer.Option(help="Another name under which the page is asked for.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(help="For TLS: the certificate of the host, as PEM.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of that certificate.")] = None,
    browser: Annotated[bool, typer.Option(help="Open it in a browser.")] = True,
    log_format: LogFormat = "text",
) -> None:
    """Open a page on this machine: jobs, trainings as they go on, what left, models."""
    with telling(log_format) as tell:
        door = Door(address=address, hosts=host or [], certificate=certificate, key=key)
        for path in job or ():
            Job.read(path)
        if not door.is_local and door.certificate is None:
            text = "warning: the page's token travels in the clear: give a certificate"
            tell(Event("warning", text))
        with _page(door, party, list(job or ()), tell) as url, _until_stopped() as stopped:
            tell(Event("page", f"the page is at {url}", {"url": url}))
            if browser:
                open_page(url)
            stopped.wait()


def open_page(url: str) -> None:
    """Open a page, where there is a screen: a browser of text would take over the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform == "darwin" or any(os.environ.get(name) for name in screens):
        webbrowser.open(url)


@contextlib.contextmanager
def _page(door: Door, party: Path, jobs: list[Path], tell: Tell) -> Iterator[str]:
    try:
        from privet.ui.server import serving_page
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name}, which the page needs, is not installed: pip install 'privet[ui]'"
        ) from None
    with serving_page(door, party, jobs, tell) as url:
        yield url


@contextlib.contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Yield what is set when somebody interrupts or terminates us: that is how a page ends."""
    stopped, numbers = threading.Event(), (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopped.set()) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
