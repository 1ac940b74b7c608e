"""A real browser, and pages in it that are watched for what they ask for and complain about.

`make test-browser` runs these tests, and writes the pictures of docs/page.md.
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
    """Start a browser, or skip and say what is missing."""
    if "PRIVET_BROWSER" not in os.environ:
        pytest.skip("the page is NOT tested in a browser here: `make test-browser` does")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: the page is NOT tested in one")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("playwright is not installed: the page is NOT tested in a browser")
    # A browser does not let root have a sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=options)
        yield started
        started.close()


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where pictures go, if anybody wants some."""
    folder = os.environ.get("PRIVET_PICTURES")
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
