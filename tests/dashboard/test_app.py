"""The page's server, asked over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from privet.config.party import HttpServerConfig
from privet.dashboard.server import run_dashboard
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.storage.journal import JournalWriter
from tests.federation.harness import prepare, run


def _fail(event: Event) -> None:
    raise AssertionError(event.text)


@dataclass
class Page:
    port: int
    token: str

    def ask(
        self, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        shown = self.token if token is None else token
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if shown:
            named["Authorization"] = f"Bearer {shown}"
        if body is not None:
            named.setdefault("Content-Type", "application/json")
        content = None if body is None else json.dumps(body).encode()
        with contextlib.closing(line):
            line.request("GET" if body is None else "POST", path, content, named)
            answer = line.getresponse()
            text = answer.read()
        told = json.loads(text) if "json" in answer.headers["Content-Type"] else text.decode()
        return answer.status, told, answer.headers

    @contextlib.contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        line.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.token}"})
        answer = line.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")

        def read() -> Iterator[tuple[str, Any]]:
            kind = ""
            while content := answer.readline().decode():
                if content.startswith("event: "):
                    kind = content.removeprefix("event: ").strip()
                elif content.startswith("data: "):
                    yield kind, json.loads(content.removeprefix("data: "))

        with contextlib.closing(line), contextlib.closing(answer):
            yield read()


def until(events: Iterator[tuple[str, Any]], kind: str, right: Callable[[Any], bool]) -> Any:
    """Return the first of a kind that is right."""
    return next(told for each, told in events if each == kind and right(told))


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    return prepare(tmp_path)


@pytest.fixture
def page(local: LocalFederation) -> Iterator[Page]:
    party = local.folder / "bank" / "party.toml"
    with run_dashboard(HttpServerConfig(), party, [local.job_path], _fail) as url:
        split = urlsplit(url)
        assert split.port is not None
        yield Page(split.port, split.fragment.removeprefix("token="))


@pytest.mark.parametrize("token", ["", "wrong", "x" * 43])
def test_without_the_token_nothing_is_told(page: Page, token: str) -> None:
    for path in ("/api/events", "/api/jobs/rehearsal/model", "/api/runs/x", "/api/nothing"):
        status, told, _ = page.ask(path, token=token)
        assert (status, set(told)) == (403, {"error"})
    assert page.ask("/api/jobs/rehearsal/train", {}, token=token)[0] == 403


def test_the_page_itself_is_the_same_for_everybody(page: Page, local: LocalFederation) -> None:
    status, text, headers = page.ask("/", token="")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.token not in text
    assert "bank" not in text
    assert page.ask("/page.js", token="")[0] == 200
    assert page.ask("/../app.py", token="")[0] in (403, 404)


def test_pages_elsewhere_and_other_names_of_this_host(page: Page) -> None:
    assert page.ask("/api/runs/x", Host="evil.example")[0] == 403
    assert page.ask("/", Host="evil.example")[0] == 403
    assert page.ask("/api/runs/x", Origin="http://evil.example")[0] == 403
    assert page.ask("/api/jobs/rehearsal/train", {}, Origin="http://evil.example")[0] == 403


def test_what_is_not_there_and_what_cannot_be(page: Page) -> None:
    assert page.ask("/api/runs/none")[:2] == (404, {"error": "run: there is no 'none'"})
    assert page.ask("/api/jobs/none/model")[0] == 404
    status, told, _ = page.ask("/api/jobs/rehearsal/model")
    assert (status, "train it to its end first" in told["error"]) == (409, True)
    assert page.ask("/api/jobs/rehearsal/train", {}, Content_Type="text/plain")[0] == 415
    assert page.ask("/api/jobs/rehearsal/train", {"x": "y" * 100_000})[0] == 413
    assert page.ask("/nothing")[0] == 404


def test_a_training_is_told_as_it_grows(page: Page, local: LocalFederation) -> None:
    with page.events() as events:
        kind, told = next(events)
        assert (kind, told["party"]) == ("overview", "bank")
        record = JournalWriter(local.folder / "bank" / "models", "train")
        began = {"command": "train", "job": "rehearsal", "name": "bank", "pid": os.getpid()}
        began |= {"participants": ["bank", "shop"], "dealers": ["dealer"]}
        record.append(Event("began", "", began).to_record())
        until(events, "ledger", lambda told: told["job"] == "rehearsal")
        record.append(Event("table", "", {"table": 1, "tables": 9}).to_record())
        told = until(events, "run", lambda told: told["table"] == 1)
        assert (told["tables"], told["state"]) == (9, "running")
        assert page.ask("/api/jobs/rehearsal/train", {})[0] == 409  # it goes on
        assert page.ask("/api/jobs/rehearsal/check", {})[0] == 409
        record.append(Event("error", "lost shop", {"peer": "shop", "code": 7}).to_record())
        record.close()
        told = until(events, "run", lambda told: told["state"] == "failed")
        assert {peer["name"]: peer["state"] for peer in told["peers"]}["shop"] == "lost"
    assert page.ask(f"/api/runs/{quote(told['id'])}")[1]["points"] == [[1, None, None]]


def test_models_checks_and_estimates(page: Page, local: LocalFederation) -> None:
    run(local, "train").checked()
    time.sleep(0.1)
    with page.events() as events:
        until(events, "overview", lambda told: told["jobs"][0]["trained"])
    status, model, _ = page.ask("/api/jobs/rehearsal/model")
    assert status == 200
    assert model["columns"] == {"bank": 3, "shop": 2}
    tests = [test for table in model["tables"] for test in table]
    assert {test["owner"] for test in tests if test["threshold"] is not None} <= {"bank"}
    assert all(test["test"] is None for test in tests if test["owner"] == "shop")

    findings = page.ask("/api/jobs/rehearsal/check", {})[1]["findings"]
    assert {"keys", "disk", "data"} <= {finding["what"] for finding in findings}

    asked = {"samples": 40, "features": [3, 2], "tables": 3, "depth": 2, "delay": 5, "rate": 100}
    status, found, _ = page.ask("/api/jobs/rehearsal/estimate", asked)
    assert status == 200
    for parts in found["times"].values():
        whole = parts.pop("total")
        assert sum(parts.values()) == pytest.approx(whole, rel=1e-12)  # sums of four doubles
    more = page.ask("/api/jobs/rehearsal/estimate", {**asked, "tables": 6})[1]
    assert more["rounds"] > found["rounds"]
    for wrong in ({"features": [3]}, {"features": [0, 0]}, {"samples": "many"}, {"depth": 11}):
        status, told, _ = page.ask("/api/jobs/rehearsal/estimate", {**asked, **wrong})
        assert status == 409
        assert next(iter(wrong)) in told["error"]


def test_a_training_is_started_and_stopped(page: Page, local: LocalFederation) -> None:
    """It waits for the others, and ends by the signal that a terminal would send."""
    with page.events() as events:
        assert page.ask("/api/jobs/rehearsal/train", {})[0] == 200
        assert page.ask("/api/jobs/rehearsal/train", {})[0] == 409
        told = until(events, "run", lambda told: told["state"] == "waiting")
        assert page.ask(f"/api/runs/{told['id']}/stop", {})[0] == 200
        told = until(events, "run", lambda told: told["state"] == "stopped")
    assert told["end"]["code"] == 130
    status, said, _ = page.ask(f"/api/runs/{told['id']}/stop", {})
    assert (status, "has ended already" in said["error"]) == (409, True)


def test_a_training_that_cannot_begin_says_why(page: Page, local: LocalFederation) -> None:
    """It has no record then, so its last words are told beside its job."""
    (local.folder / "bank" / "party.toml").write_text("nonsense")
    with page.events() as events:
        assert page.ask("/api/jobs/rehearsal/train", {})[0] == 200
        told = until(events, "overview", lambda told: told["jobs"][0]["complaint"])
    assert "party.toml: not TOML" in told["jobs"][0]["complaint"]


def test_pages_are_let_go_when_it_ends(local: LocalFederation) -> None:
    party = local.folder / "bank" / "party.toml"
    with contextlib.ExitStack() as stack:
        with run_dashboard(HttpServerConfig(), party, [], _fail) as url:
            split = urlsplit(url)
            assert split.port is not None
            page = Page(split.port, split.fragment.removeprefix("token="))
            events = stack.enter_context(page.events())
            next(events)
            started = time.monotonic()
        assert time.monotonic() - started < 3
        assert list(events) == []
