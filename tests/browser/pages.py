"""A federation on this machine, its pages as processes, and ways to look at them."""

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

    Cells get more digits than they have, so that none of them is on a page by chance.
    """
    loaded = load_dataset("breast-cancer")
    frame = replace(loaded.frame, columns=np.round(1.037 * loaded.frame.columns, 6))
    local = LocalFederation(folder)
    local.write_tables(*split_rows(frame, 0.2, 0))
    params = {"tables": tables, "depth": 3, "learning_rate": 0.5, "validation": 0.2}
    local.write_configuration(loaded.task, params, **DEMO_JOB_SETTINGS)
    return local


_ALL_TOLD = """async (job) => {
  const {state, load} = await import('/store.js');
  const {get} = await import('/wire.js');
  const runs = await Promise.all(state.overview.runs.map((run) => load(run.id)));
  const known = state.overview.jobs.find((each) => each.name === job);
  const model = known.trained ? await get(`api/jobs/${job}/model`) : null;
  return JSON.stringify([state.overview, runs, [...state.ledgers.values()], model]);
}"""
"""What a page was told by events, and all runs and the model, which it can ask for."""


@contextlib.contextmanager
def process(
    local: LocalFederation, name: str, verb: str, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Have a role's process, and end it."""
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
def page_process(local: LocalFederation, name: str) -> Iterator[str]:
    """Have `privet ui` of a participant; yield the address that it tells."""
    with process(local, name, "ui", "--no-browser", "--log-format=json") as started:
        assert started.stderr is not None
        yield json.loads(started.stderr.readline())["url"]


@dataclass
class Shown:
    """A page of a participant in a browser, and all that it asked for and complained about."""

    name: str
    url: str
    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """All that it held whenever somebody looked."""

    @classmethod
    def open(cls, browser: Any, name: str, url: str) -> Shown:
        """Open it."""
        context = browser.new_context(viewport={"width": WIDTH, "height": 900})
        found = cls(name, url, context.new_page())
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("console", found._hear)
        found.page.goto(url)
        found.page.get_by_role("heading", level=1).wait_for()
        return found

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, place: str) -> None:
        """Go to a view, as a link would."""
        self.page.evaluate("place => { location.hash = place }", place)
        self.page.get_by_role("heading", level=1).wait_for()

    def tab(self, name: str) -> None:
        """Go to a part of the job."""
        self.go(f"#/job/{JOB}/{name}")

    def look(self) -> str:
        """Return all that the page holds: what is shown, and what it was told or could ask for."""
        self.texts.append(self.page.content() + self.page.evaluate(_ALL_TOLD, JOB))
        return self.texts[-1]

    def click(self, name: str) -> None:
        """Press a button."""
        self.page.get_by_role("button", name=name, exact=True).click()

    def wait(self, text: str, seconds: float = 60) -> None:
        """Wait until something is shown."""
        self.page.get_by_text(text).first.wait_for(timeout=1000 * seconds)

    def wait_for_state(self, words: str, seconds: float = 60) -> None:
        """Wait until the training is said to be in a state."""
        self.page.locator(".head .chip", has_text=words).wait_for(timeout=1000 * seconds)

    def wait_for_peer(self, peer: str, words: str, seconds: float = 60) -> None:
        """Wait until a peer is said to be in a state."""
        place = self.page.locator(f"[data-peer={peer}]", has_text=words)
        place.wait_for(timeout=1000 * seconds)

    def wait_for_table(self, least: int, seconds: float = 90) -> None:
        """Wait until so many tables are shown as trained."""
        self.page.wait_for_function(
            "least => Number(document.querySelector('[role=progressbar]')?.ariaValueNow) >= least",
            arg=least,
            timeout=1000 * seconds,
        )

    def picture(self, folder: Path | None, name: str, *, phone: bool = False) -> None:
        """Take a picture of it, if anybody wants one; of a phone, in the dark."""
        if folder is None:
            return
        if phone:
            self.page.set_viewport_size({"width": PHONE, "height": 844})
            self.page.emulate_media(color_scheme="dark")
        self.page.wait_for_timeout(600)
        path = folder / f"{name}.png"
        self.page.screenshot(path=str(path), full_page=True)
        with Image.open(path) as taken:
            few = taken.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        few.save(path, optimize=True)
        if phone:
            self.page.set_viewport_size({"width": WIDTH, "height": 900})
            self.page.emulate_media(color_scheme="light")

    @property
    def other_hosts(self) -> set[str]:
        """Whom it asked beside its own process."""
        own = urlsplit(self.url).netloc
        return {urlsplit(url).netloc for url in self.asked} - {own}


def pid_of(local: LocalFederation, name: str) -> int:
    """Return the process of the last run of a participant."""
    path = list_journals(local.folder / name / "models")[-1]
    return int(JournalReader(path).read_new_records()[0]["pid"])


def numbers_of(text: str) -> set[str]:
    """Return all numbers in a text, as they are written."""
    return set(re.findall(r"(?<![\w.])-?\d+\.\d+(?![\w.])", text))
