"""A real browser for tests of the dashboard.

`make test-browser` runs these tests, and writes the screenshots of docs/page.md.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start a browser, or skip with the missing requirement."""
    if "PRIVET_BROWSER" not in os.environ:
        pytest.skip("the dashboard is NOT tested in a browser here: `make test-browser` tests it")
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(
            f"none of {', '.join(BROWSERS)} is installed: the dashboard is NOT tested in a browser"
        )
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("playwright is not installed: the dashboard is NOT tested in a browser")
    # Chromium does not start as root with a sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=options)
        yield running
        running.close()


@pytest.fixture(scope="session")
def screenshots() -> Path | None:
    """Return the folder for screenshots, if PRIVET_PICTURES sets one."""
    folder = os.environ.get("PRIVET_PICTURES")
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
