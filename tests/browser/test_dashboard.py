"""A training run, watched and controlled from the dashboards of three organisations."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from privet.boosting.summary import summarise_part
from privet.config.party import PartyConfig
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part
from tests.browser.pages import (
    PHONE,
    DashboardPage,
    dashboard_process,
    numbers_of,
    pid_of,
    prepare,
    process,
)

pytestmark = pytest.mark.timeout(600)
TABLES = 40
VIEWS = (
    "#/",
    *(f"#/job/rehearsal/{tab}" for tab in ("training", "left", "model", "estimate", "check")),
    "#/history",
)


@pytest.fixture(scope="module")
def federation_pages(
    browser: Any, screenshots: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalFederation, dict[str, DashboardPage]]]:
    """Three dashboards, from a check to a model and its predictions, with two interruptions."""
    local = prepare(tmp_path_factory.mktemp("federation") / "files", TABLES)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(local, "dealer", "train", "--keep"))
        urls = {
            name: stack.enter_context(dashboard_process(local, name)) for name in local.party_names
        }
        pages = {name: DashboardPage.open(browser, name, url) for name, url in urls.items()}
        _check(pages, screenshots)
        _kill_and_resume(local, pages, screenshots)
        _stop_and_resume(pages)
        for page in pages.values():
            page.wait_for_state("trained", 180)
            page.look()
        with contextlib.ExitStack() as predicting:
            asks = {name: ["--explain"] * (name == local.recipient) for name in local.party_names}
            running = [
                predicting.enter_context(process(local, name, "predict", *more))
                for name, more in asks.items()
            ]
            assert [each.wait(60) for each in running] == [0, 0, 0]
        for page in pages.values():
            _visit(page, screenshots if page.name == local.recipient else None)
        yield local, pages


def _check(pages: dict[str, DashboardPage], screenshots: Path | None) -> None:
    bank = pages["bank"]
    bank.tab("check")
    bank.click("Check now")
    bank.wait("Nothing keeps you from taking part")
    bank.take_screenshot(screenshots, "check")


def _train(pages: dict[str, DashboardPage], button: str) -> None:
    for page in pages.values():
        page.tab("training")
        page.click(button)
    for page in pages.values():
        page.wait_for_state("running")


def _kill_and_resume(
    local: LocalFederation, pages: dict[str, DashboardPage], screenshots: Path | None
) -> None:
    """Kill the telecom's process: the others show it as lost, its own dashboard as ended."""
    _train(pages, "Train")
    for page in pages.values():
        for other in {*local.party_names, "dealer"} - {page.name}:
            page.wait_for_peer(other, "connected since")
        page.wait_for_table(8)
        page.look()
    pages["shop"].take_screenshot(screenshots, "training")
    os.kill(pid_of(local, "telecom"), signal.SIGKILL)
    for name in ("bank", "shop"):
        pages[name].wait_for_peer("telecom", "lost", 20)
        pages[name].wait_for_state("failed", 20)
    pages["telecom"].wait_for_state("ended without a word", 20)
    pages["bank"].take_screenshot(screenshots, "lost", phone=True)
    _train(pages, "Go on")
    for name in ("bank", "shop"):
        pages[name].wait_for_peer("telecom", "connected since")
    pages["shop"].wait("from before")


def _stop_and_resume(pages: dict[str, DashboardPage]) -> None:
    pages["shop"].click("Stop")
    pages["shop"].wait_for_state("stopped", 20)
    for name in ("bank", "telecom"):
        pages[name].wait_for_peer("shop", "lost", 20)
    _train(pages, "Go on")


def _visit(page: DashboardPage, screenshots: Path | None) -> None:
    """Visit every view, with screenshots of some at the recipient."""
    for view in VIEWS:
        page.go(view)
        page.page.wait_for_timeout(700)
        page.look()
        if view.endswith("/left"):
            page.take_screenshot(screenshots, "left")
        elif view.endswith("/model"):
            page.wait("Table 12")
            page.take_screenshot(screenshots, "model")
            more = page.page.get_by_role("button", name="more of")
            while more.is_visible():
                more.click()
            page.look()
        elif view.endswith("/estimate"):
            page.wait("dealer on a link of its own")
            page.take_screenshot(screenshots, "estimate")
    for box in page.page.get_by_role("checkbox").all()[1:]:  # trainings
        box.check()
    page.take_screenshot(screenshots, "history")
    page.page.get_by_role("button", name="side by side").click()
    page.wait("Figures")
    page.look()
    page.take_screenshot(screenshots, "side-by-side")


FederationPages = tuple[LocalFederation, dict[str, DashboardPage]]


def test_disclosures_are_described(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    for page in pages.values():
        page.tab("left")
        page.wait("shop learned 114 predictions")
        page.wait("All of it is what the job allows.")


def test_only_the_label_holder_sees_the_loss(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    for page in pages.values():
        page.tab("training")
    assert pages["shop"].page.locator("path.curve").count() == 1
    assert pages["bank"].page.locator("path.curve").count() == 0
    pages["bank"].wait("goes to shop alone")


def test_attributions_of_a_row(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    shop = pages["shop"]
    shop.tab("model")
    shop.page.get_by_label("A row, by its id").fill("457")
    shop.page.get_by_role("button", name="457").click()
    shop.wait("Row 457: the score")
    assert shop.page.locator(".split rect.bar").count() == 12
    pages["bank"].tab("model")
    pages["bank"].wait("shop gets them beside predictions")


def test_pages_make_no_requests_to_other_hosts(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    for page in pages.values():
        assert len(page.requested) > 10
        assert page.other_hosts == set()


def test_pages_log_no_errors(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    assert {name: page.complaints for name, page in pages.items()} == {n: [] for n in pages}


def _secrets(local: LocalFederation, name: str) -> set[str]:
    """Return numbers that only one participant knows: thresholds, losses, cells of its table."""
    part_file = load_part(local.get_part_path(name))
    summary = summarise_part(part_file.part, part_file.encoders)
    local_splits = [t for table in summary.tables for t in table if t.feature.owner == name]
    secrets = {str(split.threshold) for split in local_splits} | set().union(
        *(numbers_of(split.text) for split in local_splits)
    )
    for line in (local.folder / name / "train.csv").read_text().splitlines()[1:]:
        secrets |= set(line.split(",")[1:])
    # Shorter numbers can be on a page by chance: a page has a few hundred of them.
    return {number for number in secrets if len(number.replace(".", "").strip("-0")) >= 5}


def test_no_page_contains_secrets_of_another_participant(federation_pages: FederationPages) -> None:
    local, pages = federation_pages
    secrets = {name: _secrets(local, name) for name in local.party_names}
    for name, page in pages.items():
        assert len(secrets[name]) > 1000
        shown = numbers_of("".join(page.texts))
        assert len(shown & secrets[name]) > 5  # its own thresholds are found this way
        for other in set(local.party_names) - {name}:
            assert shown & (secrets[other] - secrets[name]) == set()
            text = "".join(page.texts)
            assert str(local.folder / other) not in text
            key = Path(PartyConfig.load(local.folder / other / "party.toml").key).read_text()
            assert key.splitlines()[1] not in text
    losses = {name: any(_has_loss(text) for text in pages[name].texts) for name in pages}
    assert losses == {"bank": False, "telecom": False, "shop": True}


def _has_loss(text: str) -> bool:
    """Return whether a point of a run has a loss: [table, training loss, validation loss]."""
    return re.search(r'\[\d+,null,-?\d|"losses":\[', text) is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(federation_pages: FederationPages, scheme: str) -> None:
    _, pages = federation_pages
    page = pages["shop"].page
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for view in VIEWS:
        pages["shop"].go(view)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE, view
    page.set_viewport_size({"width": 1280, "height": 900})


_UNNAMED = """() => {
  const named = (e) => (e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent
    || e.title || '').trim();
  const wanted = 'a, button, input, [role=img], [role=progressbar], table';
  const shown = [...document.querySelectorAll(wanted)].filter((e) => e.checkVisibility());
  return shown.filter((e) => !named(e)).map((e) => e.outerHTML);
}"""


def test_elements_have_accessible_names(federation_pages: FederationPages) -> None:
    _, pages = federation_pages
    for view in VIEWS:
        pages["shop"].go(view)
        pages["shop"].page.wait_for_timeout(500)
        assert pages["shop"].page.evaluate(_UNNAMED) == [], view
        levels = pages["shop"].page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))"
        )
        assert levels.count(1) == 1
        assert all(later - former <= 1 for former, later in pairwise(levels))


def test_keyboard_navigation(federation_pages: FederationPages) -> None:
    """Tab and Enter reach a tab of a job and its button from the address bar."""
    _, pages = federation_pages
    page = pages["bank"].page
    pages["bank"].go("#/")
    page.evaluate("document.activeElement.blur()")

    def press_until(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == name:
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline == "solid"
                return
        raise AssertionError(f"{name} is not reached by Tab")

    press_until("rehearsal")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.tagName === 'H1'")
    press_until("Check")
    page.keyboard.press("Enter")
    press_until("Check now")
    page.keyboard.press("Enter")
    pages["bank"].wait("you from taking part, as of")


def test_wrong_token_is_rejected(federation_pages: FederationPages, browser: Any) -> None:
    _, pages = federation_pages
    address = pages["bank"].url.partition("#")[0]
    context = browser.new_context()
    for end in ("#token=wrong", ""):
        page = context.new_page()
        page.goto(address + end)
        page.get_by_role("heading", name="Not let in").wait_for()
        assert "rehearsal" not in page.content()
        status = page.evaluate("fetch('/api/events').then((answer) => answer.status)")
        assert status == 403
        page.close()
    # Another dashboard's token is wrong, too.
    token = pages["shop"].url.partition("#")[2]
    page = context.new_page()
    page.goto(f"{address}#{token}")
    page.get_by_role("heading", name="Not let in").wait_for()
    context.close()
