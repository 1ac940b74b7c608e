"""A federation on this machine, its dashboards as processes, and pages in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from privet.cli.dashboard import DEMO_JOB_SETTINGS
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from privet.storage.journal import JournalReader, list_journals

JOB = "rehearsal"
WIDTH, PHONE = 1280, 390


def prepare(folder: Path, tables: int) -> LocalFederation:
    """Write the files of three organisations, as `privet demo --ui` does.

    Cells get more digits than in the dataset, so that none is on a page by chance.
    """
    loaded = load_dataset("breast-cancer")
    frame = replace(loaded.frame, columns=np.round(1.037 * loaded.frame.columns, 6))
    local = LocalFederation(folder)
    local.write_tables(*split_rows(frame, 0.2, 0))
    params = {"tables": tables, "depth": 3, "learning_rate": 0.5, "validation": 0.2}
    local.write_configuration(loaded.task, params, **DEMO_JOB_SETTINGS)
    return local


_RECEIVED_STATE = """async (job) => {
  const {state, load} = await import('/store.js');
  const {get} = await import('/wire.js');
  const runs = await Promise.all(state.overview.runs.map((run) => load(run.id)));
  const known = state.overview.jobs.find((each) => each.name === job);
  const model = known.trained ? await get(`api/jobs/${job}/model`) : null;
  return JSON.stringify([state.overview, runs, [...state.ledgers.values()], model]);
}"""
"""Returns the state that a page received as events, and the runs and the model on request."""


@contextlib.contextmanager
def process(
    local: LocalFederation, name: str, verb: str, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a process of a role, and end it."""
    with subprocess.Popen(  # noqa: S603
        local.make_command(name, verb, *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if verb == "ui" else subprocess.DEVNULL,
        text=True,
        env={**PROCESS_ENVIRONMENT, **os.environ},
    ) as started:
        try:
            yield started
        finally:
            started.terminate()


@contextlib.contextmanager
def dashboard_process(local: LocalFederation, name: str) -> Iterator[str]:
    """Run `privet ui` of a participant; yield its address."""
    with process(local, name, "ui", "--no-browser", "--log-format=json") as started:
        assert started.stderr is not None
        yield json.loads(started.stderr.readline())["url"]


@dataclass
class DashboardPage:
    """A participant's dashboard in a browser, with its requests, errors and warnings."""

    name: str
    url: str
    page: Any
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """The content of the page at each call of `look`."""

    @classmethod
    def open(cls, browser: Any, name: str, url: str) -> DashboardPage:
        """Open the page."""
        context = browser.new_context(viewport={"width": WIDTH, "height": 900})
        shown = cls(name, url, context.new_page())
        shown.page.on("request", lambda request: shown.requested.append(request.url))
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("console", shown._record_message)
        shown.page.goto(url)
        shown.page.get_by_role("heading", level=1).wait_for()
        return shown

    def _record_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, view: str) -> None:
        """Go to a view, like a link."""
        self.page.evaluate("view => { location.hash = view }", view)
        self.page.get_by_role("heading", level=1).wait_for()

    def tab(self, name: str) -> None:
        """Go to a tab of the job."""
        self.go(f"#/job/{JOB}/{name}")

    def look(self) -> str:
        """Record and return the whole content of the page: its HTML and its state."""
        self.texts.append(self.page.content() + self.page.evaluate(_RECEIVED_STATE, JOB))
        return self.texts[-1]

    def click(self, name: str) -> None:
        """Click a button."""
        self.page.get_by_role("button", name=name, exact=True).click()

    def wait(self, text: str, seconds: float = 60) -> None:
        """Wait until a text is shown."""
        self.page.get_by_text(text).first.wait_for(timeout=1000 * seconds)

    def wait_for_state(self, text: str, seconds: float = 60) -> None:
        """Wait until the page shows a state of the training."""
        self.page.locator(".head .chip", has_text=text).wait_for(timeout=1000 * seconds)

    def wait_for_peer(self, peer: str, text: str, seconds: float = 60) -> None:
        """Wait until the page shows a state of a peer."""
        chip = self.page.locator(f"[data-peer={peer}]", has_text=text)
        chip.wait_for(timeout=1000 * seconds)

    def wait_for_table(self, least: int, seconds: float = 90) -> None:
        """Wait until the page shows at least this many trained tables."""
        self.page.wait_for_function(
            "least => Number(document.querySelector('[role=progressbar]')?.ariaValueNow) >= least",
            arg=least,
            timeout=1000 * seconds,
        )

    def take_screenshot(self, folder: Path | None, name: str, *, phone: bool = False) -> None:
        """Take a screenshot if a folder is given; for a phone, in dark colours."""
        if folder is None:
            return
        if phone:
            self.page.set_viewport_size({"width": PHONE, "height": 844})
            self.page.emulate_media(color_scheme="dark")
        self.page.wait_for_timeout(600)
        path = folder / f"{name}.png"
        self.page.screenshot(path=str(path), full_page=True)
        with Image.open(path) as image:
            reduced = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        reduced.save(path, optimize=True)
        if phone:
            self.page.set_viewport_size({"width": WIDTH, "height": 900})
            self.page.emulate_media(color_scheme="light")

    @property
    def other_hosts(self) -> set[str]:
        """The hosts of requests except the local process."""
        local_host = urlsplit(self.url).netloc
        return {urlsplit(url).netloc for url in self.requested} - {local_host}


def pid_of(local: LocalFederation, name: str) -> int:
    """Return the process id of a participant's last run."""
    path = list_journals(local.folder / name / "models")[-1]
    return int(JournalReader(path).read_new_records()[0]["pid"])


def numbers_of(text: str) -> set[str]:
    """Return all numbers in a text, as they are written."""
    return set(re.findall(r"(?<![\w.])-?\d+\.\d+(?![\w.])", text))
