"""The dashboard's server over HTTP."""

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


def _fail_on_event(event: Event) -> None:
    raise AssertionError(event.text)


@dataclass
class Page:
    port: int
    token: str

    def request(
        self, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        shown_token = self.token if token is None else token
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if shown_token:
            fields["Authorization"] = f"Bearer {shown_token}"
        if body is not None:
            fields.setdefault("Content-Type", "application/json")
        content = None if body is None else json.dumps(body).encode()
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, content, fields)
            response = connection.getresponse()
            text = response.read()
        parsed = json.loads(text) if "json" in response.headers["Content-Type"] else text.decode()
        return response.status, parsed, response.headers

    @contextlib.contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        assert response.headers["Content-Type"].startswith("text/event-stream")

        def read() -> Iterator[tuple[str, Any]]:
            kind = ""
            while content := response.readline().decode():
                if content.startswith("event: "):
                    kind = content.removeprefix("event: ").strip()
                elif content.startswith("data: "):
                    yield kind, json.loads(content.removeprefix("data: "))

        with contextlib.closing(connection), contextlib.closing(response):
            yield read()


def wait_for(events: Iterator[tuple[str, Any]], kind: str, condition: Callable[[Any], bool]) -> Any:
    """Return the content of the first event of a kind that satisfies a condition."""
    return next(
        content for event_kind, content in events if event_kind == kind and condition(content)
    )


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    return prepare(tmp_path)


@pytest.fixture
def page(local: LocalFederation) -> Iterator[Page]:
    party = local.folder / "bank" / "party.toml"
    with run_dashboard(HttpServerConfig(), party, [local.job_path], _fail_on_event) as url:
        split = urlsplit(url)
        assert split.port is not None
        yield Page(split.port, split.fragment.removeprefix("token="))


@pytest.mark.parametrize("token", ["", "wrong", "x" * 43])
def test_requests_without_token_are_rejected(page: Page, token: str) -> None:
    for path in ("/api/events", "/api/jobs/rehearsal/model", "/api/runs/x", "/api/nothing"):
        status, content, _ = page.request(path, token=token)
        assert (status, set(content)) == (403, {"error"})
    assert page.request("/api/jobs/rehearsal/train", {}, token=token)[0] == 403


def test_static_files_need_no_token_and_contain_no_local_data(
    page: Page, local: LocalFederation
) -> None:
    status, text, headers = page.request("/", token="")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.token not in text
    assert "bank" not in text
    assert page.request("/page.js", token="")[0] == 200
    assert page.request("/../app.py", token="")[0] in (403, 404)


def test_other_hosts_and_origins_are_rejected(page: Page) -> None:
    assert page.request("/api/runs/x", Host="evil.example")[0] == 403
    assert page.request("/", Host="evil.example")[0] == 403
    assert page.request("/api/runs/x", Origin="http://evil.example")[0] == 403
    assert page.request("/api/jobs/rehearsal/train", {}, Origin="http://evil.example")[0] == 403


def test_unknown_and_invalid_requests_are_rejected(page: Page) -> None:
    assert page.request("/api/runs/none")[:2] == (404, {"error": "run: there is no 'none'"})
    assert page.request("/api/jobs/none/model")[0] == 404
    status, content, _ = page.request("/api/jobs/rehearsal/model")
    assert (status, "train it to its end first" in content["error"]) == (409, True)
    assert page.request("/api/jobs/rehearsal/train", {}, Content_Type="text/plain")[0] == 415
    assert page.request("/api/jobs/rehearsal/train", {"x": "y" * 100_000})[0] == 413
    assert page.request("/nothing")[0] == 404


def test_training_events_are_streamed(page: Page, local: LocalFederation) -> None:
    with page.events() as events:
        kind, content = next(events)
        assert (kind, content["party"]) == ("overview", "bank")
        journal = JournalWriter(local.folder / "bank" / "models", "train")
        fields = {"command": "train", "job": "rehearsal", "name": "bank", "pid": os.getpid()}
        fields |= {"participants": ["bank", "shop"], "dealers": ["dealer"]}
        journal.append(Event("began", "", fields).to_record())
        wait_for(events, "ledger", lambda content: content["job"] == "rehearsal")
        journal.append(Event("table", "", {"table": 1, "tables": 9}).to_record())
        content = wait_for(events, "run", lambda content: content["table"] == 1)
        assert (content["tables"], content["state"]) == (9, "running")
        assert page.request("/api/jobs/rehearsal/train", {})[0] == 409  # it goes on
        assert page.request("/api/jobs/rehearsal/check", {})[0] == 409
        journal.append(Event("error", "lost shop", {"peer": "shop", "code": 7}).to_record())
        journal.close()
        content = wait_for(events, "run", lambda content: content["state"] == "failed")
        assert {peer["name"]: peer["state"] for peer in content["peers"]}["shop"] == "lost"
    assert page.request(f"/api/runs/{quote(content['id'])}")[1]["points"] == [[1, None, None]]


def test_models_checks_and_estimates(page: Page, local: LocalFederation) -> None:
    run(local, "train").checked()
    time.sleep(0.1)
    with page.events() as events:
        wait_for(events, "overview", lambda content: content["jobs"][0]["trained"])
    status, model, _ = page.request("/api/jobs/rehearsal/model")
    assert status == 200
    assert model["columns"] == {"bank": 3, "shop": 2}
    tests = [test for table in model["tables"] for test in table]
    assert {test["owner"] for test in tests if test["threshold"] is not None} <= {"bank"}
    assert all(test["test"] is None for test in tests if test["owner"] == "shop")

    findings = page.request("/api/jobs/rehearsal/check", {})[1]["findings"]
    assert {"keys", "disk", "data"} <= {finding["what"] for finding in findings}

    query = {"samples": 40, "features": [3, 2], "tables": 3, "depth": 2, "delay": 5, "rate": 100}
    status, found, _ = page.request("/api/jobs/rehearsal/estimate", query)
    assert status == 200
    for parts in found["times"].values():
        whole = parts.pop("total")
        assert sum(parts.values()) == pytest.approx(whole, rel=1e-12)  # sums of four doubles
    larger = page.request("/api/jobs/rehearsal/estimate", {**query, "tables": 6})[1]
    assert larger["rounds"] > found["rounds"]
    for change in ({"features": [3]}, {"features": [0, 0]}, {"samples": "many"}, {"depth": 11}):
        status, content, _ = page.request("/api/jobs/rehearsal/estimate", {**query, **change})
        assert status == 409
        assert next(iter(change)) in content["error"]


def test_a_training_is_started_and_stopped(page: Page, local: LocalFederation) -> None:
    """The run waits for the others, and ends by SIGTERM."""
    with page.events() as events:
        assert page.request("/api/jobs/rehearsal/train", {})[0] == 200
        assert page.request("/api/jobs/rehearsal/train", {})[0] == 409
        content = wait_for(events, "run", lambda content: content["state"] == "waiting")
        assert page.request(f"/api/runs/{content['id']}/stop", {})[0] == 200
        content = wait_for(events, "run", lambda content: content["state"] == "stopped")
    assert content["end"]["code"] == 130
    status, error, _ = page.request(f"/api/runs/{content['id']}/stop", {})
    assert (status, "has ended already" in error["error"]) == (409, True)


def test_failed_start_is_shown_with_its_job(page: Page, local: LocalFederation) -> None:
    """Such a run has no journal, so its last message is shown with the job."""
    (local.folder / "bank" / "party.toml").write_text("nonsense")
    with page.events() as events:
        assert page.request("/api/jobs/rehearsal/train", {})[0] == 200
        content = wait_for(events, "overview", lambda content: content["jobs"][0]["complaint"])
    assert "party.toml: not TOML" in content["jobs"][0]["complaint"]


def test_event_streams_end_with_the_server(local: LocalFederation) -> None:
    party = local.folder / "bank" / "party.toml"
    with contextlib.ExitStack() as stack:
        with run_dashboard(HttpServerConfig(), party, [], _fail_on_event) as url:
            split = urlsplit(url)
            assert split.port is not None
            page = Page(split.port, split.fragment.removeprefix("token="))
            events = stack.enter_context(page.events())
            next(events)
            started = time.monotonic()
        assert time.monotonic() - started < 3
        assert list(events) == []
