"""`privet demo --ui`: the pages of three organisations that train a model, on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator

from rich.console import Console

from privet.cli.ui import open_page
from privet.errors import PeerError
from privet.laboratory.local_federation import LocalFederation
from privet.runtime.local_processes import TUNED

TABLES = 100
"""Enough to be watched."""
TERMS: dict[str, str | bool] = {
    "explain": "feature",
    "reveal_validation": True,
    "reveal_gain": True,
    "reveal_importances": True,
}
"""So that a page has everything to show."""
_END_SECONDS = 10.0


def show_pages(local: LocalFederation, console: Console, *, browser: bool = True) -> None:
    """Have a page for each participant, train, predict, and stay until somebody ends it."""
    with contextlib.ExitStack() as stack:
        for dealer in local.dealers:
            stack.enter_context(_started(local, dealer, "train", "--keep"))
        urls = {}
        for name in local.names:
            said = ("--no-browser", "--log-format=json")
            page = stack.enter_context(_started(local, name, "ui", *said, err=subprocess.PIPE))
            urls[name] = _url(name, page)
            console.print(f"  {name:10}{urls[name]}")
        if browser:
            open_page(urls[local.recipient])
        for name in local.names:
            stack.enter_context(_started(local, name, "train"))
        console.print(
            "training; stop it and go on, or kill a process, and see what the pages say. "
            "Ctrl-C ends all of it"
        )
        with contextlib.suppress(KeyboardInterrupt):
            while not all(local.part(name).exists() for name in local.names):
                time.sleep(0.5)
            for name in local.names:
                more = ["--explain"] if name == local.recipient else []
                stack.enter_context(_started(local, name, "predict", *more))
            while True:
                time.sleep(3600)


@contextlib.contextmanager
def _started(
    local: LocalFederation, name: str, verb: str, *options: str, err: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """Have a role's process, which is ended with us."""
    with subprocess.Popen(  # noqa: S603
        local.command(name, verb, *options),
        stdout=subprocess.DEVNULL,
        stderr=err,
        text=True,
        env={**TUNED, **os.environ},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            process.kill()


def _url(name: str, page: subprocess.Popen[str]) -> str:
    """Return where a page is, as its process says."""
    assert page.stderr is not None
    line = page.stderr.readline()
    told = json.loads(line) if line else {}
    if "url" not in told:
        raise PeerError(name, f"its page did not start: {told.get('text', 'no word')}")
    return str(told["url"])
