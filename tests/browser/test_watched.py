"""A whole training, watched and steered from the pages of three organisations."""

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
from tests.browser.pages import PHONE, Shown, numbers_of, page_process, pid_of, prepare, process

pytestmark = pytest.mark.timeout(600)
TABLES = 40
VIEWS = (
    "#/",
    *(f"#/job/rehearsal/{tab}" for tab in ("training", "left", "model", "estimate", "check")),
    "#/history",
)


@pytest.fixture(scope="module")
def watched(
    browser: Any, pictures: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalFederation, dict[str, Shown]]]:
    """Three pages, from the first look to a model and its predictions, with two interruptions."""
    local = prepare(tmp_path_factory.mktemp("federation") / "files", TABLES)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(local, "dealer", "train", "--keep"))
        urls = {name: stack.enter_context(page_process(local, name)) for name in local.party_names}
        pages = {name: Shown.open(browser, name, url) for name, url in urls.items()}
        _check(pages, pictures)
        _kill_and_go_on(local, pages, pictures)
        _stop_and_go_on(pages)
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
            _visit(page, pictures if page.name == local.recipient else None)
        yield local, pages


def _check(pages: dict[str, Shown], pictures: Path | None) -> None:
    bank = pages["bank"]
    bank.tab("check")
    bank.click("Check now")
    bank.wait("Nothing keeps you from taking part")
    bank.picture(pictures, "check")


def _train(pages: dict[str, Shown], button: str) -> None:
    for page in pages.values():
        page.tab("training")
        page.click(button)
    for page in pages.values():
        page.wait_for_state("running")


def _kill_and_go_on(local: LocalFederation, pages: dict[str, Shown], pictures: Path | None) -> None:
    """The telecom's process is killed: the others show it as lost, its own page that it is gone."""
    _train(pages, "Train")
    for page in pages.values():
        for other in {*local.party_names, "dealer"} - {page.name}:
            page.wait_for_peer(other, "connected since")
        page.wait_for_table(8)
        page.look()
    pages["shop"].picture(pictures, "training")
    os.kill(pid_of(local, "telecom"), signal.SIGKILL)
    for name in ("bank", "shop"):
        pages[name].wait_for_peer("telecom", "lost", 20)
        pages[name].wait_for_state("failed", 20)
    pages["telecom"].wait_for_state("ended without a word", 20)
    pages["bank"].picture(pictures, "lost", phone=True)
    _train(pages, "Go on")
    for name in ("bank", "shop"):
        pages[name].wait_for_peer("telecom", "connected since")
    pages["shop"].wait("from before")


def _stop_and_go_on(pages: dict[str, Shown]) -> None:
    pages["shop"].click("Stop")
    pages["shop"].wait_for_state("stopped", 20)
    for name in ("bank", "telecom"):
        pages[name].wait_for_peer("shop", "lost", 20)
    _train(pages, "Go on")


def _visit(page: Shown, pictures: Path | None) -> None:
    """Look at every view; the recipient has pictures made of some."""
    for place in VIEWS:
        page.go(place)
        page.page.wait_for_timeout(700)
        page.look()
        if place.endswith("/left"):
            page.picture(pictures, "left")
        elif place.endswith("/model"):
            page.wait("Table 12")
            page.picture(pictures, "model")
            more = page.page.get_by_role("button", name="more of")
            while more.is_visible():
                more.click()
            page.look()
        elif place.endswith("/estimate"):
            page.wait("dealer on a link of its own")
            page.picture(pictures, "estimate")
    for box in page.page.get_by_role("checkbox").all()[1:]:  # trainings
        box.check()
    page.picture(pictures, "history")
    page.page.get_by_role("button", name="side by side").click()
    page.wait("Figures")
    page.look()
    page.picture(pictures, "side-by-side")


Watched = tuple[LocalFederation, dict[str, Shown]]


def test_the_ledger_is_in_words(watched: Watched) -> None:
    _, pages = watched
    for page in pages.values():
        page.tab("left")
        page.wait("shop learned 114 predictions")
        page.wait("All of it is what the job allows.")


def test_the_loss_is_shown_to_whom_it_belongs(watched: Watched) -> None:
    _, pages = watched
    for page in pages.values():
        page.tab("training")
    assert pages["shop"].page.locator("path.curve").count() == 1
    assert pages["bank"].page.locator("path.curve").count() == 0
    pages["bank"].wait("goes to shop alone")


def test_reasons_of_a_row(watched: Watched) -> None:
    _, pages = watched
    shop = pages["shop"]
    shop.tab("model")
    shop.page.get_by_label("A row, by its id").fill("457")
    shop.page.get_by_role("button", name="457").click()
    shop.wait("Row 457: the score")
    assert shop.page.locator(".split rect.bar").count() == 12
    pages["bank"].tab("model")
    pages["bank"].wait("shop gets them beside predictions")


def test_nobody_else_is_asked_for_anything(watched: Watched) -> None:
    _, pages = watched
    for page in pages.values():
        assert len(page.asked) > 10
        assert page.other_hosts == set()


def test_nothing_is_complained_about(watched: Watched) -> None:
    _, pages = watched
    assert {name: page.complaints for name, page in pages.items()} == {n: [] for n in pages}


def _secrets(local: LocalFederation, name: str) -> set[str]:
    """Return numbers that are a participant's alone: thresholds, losses, cells of its table."""
    file = load_part(local.get_part_path(name))
    view = summarise_part(file.part, file.encoders)
    own = [t for table in view.tables for t in table if t.feature.owner == name]
    found = {str(test.threshold) for test in own} | set().union(
        *(numbers_of(test.text) for test in own)
    )
    for line in (local.folder / name / "train.csv").read_text().splitlines()[1:]:
        found |= set(line.split(",")[1:])
    # Others may be on a page by chance: a page has a few hundred numbers of few digits.
    return {number for number in found if len(number.replace(".", "").strip("-0")) >= 5}


def test_no_page_holds_what_is_anothers_alone(watched: Watched) -> None:
    local, pages = watched
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
    """Tell whether some point of a run has a loss: [table, training loss, validation loss]."""
    return re.search(r'\[\d+,null,-?\d|"losses":\[', text) is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(watched: Watched, scheme: str) -> None:
    _, pages = watched
    page = pages["shop"].page
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for place in VIEWS:
        pages["shop"].go(place)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE, place
    page.set_viewport_size({"width": 1280, "height": 900})


_UNNAMED = """() => {
  const named = (e) => (e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent
    || e.title || '').trim();
  const wanted = 'a, button, input, [role=img], [role=progressbar], table';
  const shown = [...document.querySelectorAll(wanted)].filter((e) => e.checkVisibility());
  return shown.filter((e) => !named(e)).map((e) => e.outerHTML);
}"""


def test_a_screen_reader_has_names_for_everything(watched: Watched) -> None:
    _, pages = watched
    for place in VIEWS:
        pages["shop"].go(place)
        pages["shop"].page.wait_for_timeout(500)
        assert pages["shop"].page.evaluate(_UNNAMED) == [], place
        levels = pages["shop"].page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))"
        )
        assert levels.count(1) == 1
        assert all(later - former <= 1 for former, later in pairwise(levels))


def test_a_keyboard_is_enough(watched: Watched) -> None:
    """From the address bar to a part of a job and its button, by Tab and Enter alone."""
    _, pages = watched
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


def test_a_wrong_token_is_refused(watched: Watched, browser: Any) -> None:
    _, pages = watched
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
    # Another page's token is a wrong one, too.
    token = pages["shop"].url.partition("#")[2]
    page = context.new_page()
    page.goto(f"{address}#{token}")
    page.get_by_role("heading", name="Not let in").wait_for()
    context.close()
