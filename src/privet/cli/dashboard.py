"""`privet ui` and `privet demo --ui`: the dashboard of one organisation or of a demonstration."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.cli.console import LogFormat, open_event_bus
from privet.cli.options import PartyOption
from privet.config.job import Job
from privet.config.party import HttpServerConfig
from privet.errors import PeerError, UnavailableError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event, EventHandler
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT


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
    with open_event_bus(log_format) as emit:
        server_config = HttpServerConfig(
            address=address, hosts=host or [], certificate=certificate, key=key
        )
        for path in job or ():
            Job.read(path)
        if not server_config.is_local and server_config.certificate is None:
            text = "warning: the page's token travels in the clear: give a certificate"
            emit(Event("warning", text))
        with (
            _run_dashboard(server_config, party, list(job or ()), emit) as url,
            _wait_for_signal() as stopped,
        ):
            emit(Event("page", f"the page is at {url}", {"url": url}))
            if browser:
                open_browser(url)
            stopped.wait()


def open_browser(url: str) -> None:
    """Open a URL if there is a graphical display; a text browser would take over the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform == "darwin" or any(os.environ.get(name) for name in screens):
        webbrowser.open(url)


@contextlib.contextmanager
def _run_dashboard(
    server_config: HttpServerConfig, party: Path, jobs: list[Path], emit: EventHandler
) -> Iterator[str]:
    try:
        from privet.dashboard.server import run_dashboard
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name}, which the page needs, is not installed: pip install 'privet[ui]'"
        ) from None
    with run_dashboard(server_config, party, jobs, emit) as url:
        yield url


@contextlib.contextmanager
def _wait_for_signal() -> Iterator[threading.Event]:
    """Yield an event that is set on SIGINT or SIGTERM, which stop the dashboard."""
    stopped, signals = threading.Event(), (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(signum, lambda *_: stopped.set()) for signum in signals]
    try:
        yield stopped
    finally:
        for signum, handler in zip(signals, previous, strict=True):
            signal.signal(signum, handler)


DEMO_TABLES = 100
"""Enough tables to follow the progress."""
DEMO_JOB_SETTINGS: dict[str, str | bool] = {
    "explain": "feature",
    "reveal_validation": True,
    "reveal_gain": True,
    "reveal_importances": True,
}
"""Settings that reveal all that a dashboard can show."""
_END_SECONDS = 10.0


def run_demo_dashboards(
    federation: LocalFederation, console: Console, *, browser: bool = True
) -> None:
    """Run a dashboard for each participant, train, predict, and stay until interrupted."""
    with contextlib.ExitStack() as stack:
        for dealer in federation.dealer_names:
            stack.enter_context(_run_process(federation, dealer, "train", "--keep"))
        urls = {}
        for name in federation.party_names:
            options = ("--no-browser", "--log-format=json")
            process = stack.enter_context(
                _run_process(federation, name, "ui", *options, err=subprocess.PIPE)
            )
            urls[name] = _read_url(name, process)
            console.print(f"  {name:10}{urls[name]}")
        if browser:
            open_browser(urls[federation.recipient])
        for name in federation.party_names:
            stack.enter_context(_run_process(federation, name, "train"))
        console.print(
            "training; stop it and go on, or kill a process, and see what the pages say. "
            "Ctrl-C ends all of it"
        )
        with contextlib.suppress(KeyboardInterrupt):
            while not all(
                federation.get_part_path(name).exists() for name in federation.party_names
            ):
                time.sleep(0.5)
            for name in federation.party_names:
                flags = ["--explain"] if name == federation.recipient else []
                stack.enter_context(_run_process(federation, name, "predict", *flags))
            while True:
                time.sleep(3600)


@contextlib.contextmanager
def _run_process(
    federation: LocalFederation,
    name: str,
    command: str,
    *options: str,
    err: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[str]]:
    """Run the process of one role, and terminate it with the context."""
    with subprocess.Popen(  # noqa: S603
        federation.make_command(name, command, *options),
        stdout=subprocess.DEVNULL,
        stderr=err,
        text=True,
        env={**PROCESS_ENVIRONMENT, **os.environ},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            process.kill()


def _read_url(name: str, process: subprocess.Popen[str]) -> str:
    """Return the URL of a dashboard, which its process prints."""
    assert process.stderr is not None
    line = process.stderr.readline()
    event = json.loads(line) if line else {}
    if "url" not in event:
        raise PeerError(name, f"its page did not start: {event.get('text', 'no word')}")
    return str(event["url"])
