"""A run, made of the lines of its record."""

from __future__ import annotations

from typing import Any

from privet.dashboard.run_state import RunState

BEGAN = {
    "event": "began",
    "time": "2026-01-01T10:00:00+00:00",
    "command": "train",
    "job": "churn",
    "name": "bank",
    "participants": ["bank", "shop"],
    "dealers": ["dealer"],
}


def view(*lines: dict[str, Any]) -> RunState:
    found = RunState("run")
    for line in (BEGAN, *lines):
        found.apply_event({"text": "", "time": "2026-01-01T10:00:01+00:00", **line})
    return found


def peers(found: RunState) -> dict[str, str]:
    return {peer["name"]: peer["state"] for peer in found.to_dict()["peers"]}


CONNECTED = {"event": "connected", "peers": ["shop", "dealer"]}


def test_who_is_there() -> None:
    assert peers(view()) == {"shop": "unknown", "dealer": "unknown"}
    waiting = view({"event": "waiting", "missing": ["shop"]})
    assert waiting.status == "waiting"
    assert peers(waiting) == {"shop": "missing", "dealer": "connected"}
    assert peers(view({"event": "waiting", "missing": ["shop"]}, CONNECTED)) == {
        "shop": "connected",
        "dealer": "connected",
    }
    lost = view(CONNECTED, {"event": "error", "peer": "shop", "code": 7})
    assert (lost.status, lost.is_running) == ("failed", False)
    assert peers(lost) == {"shop": "lost", "dealer": "left"}


def test_points_are_told_once() -> None:
    lines = [{"event": "table", "table": k, "tables": 9, "validation_loss": 1 / k} for k in (1, 2)]
    found = view(CONNECTED, *lines)
    assert found.to_dict()["points"] == [(1, None, 1.0), (2, None, 0.5)]
    since = found.to_dict(1)
    assert (since["from"], since["points"]) == (1, [(2, None, 0.5)])
    assert (since["table"], since["tables"]) == (2, 9)


def test_how_it_stands() -> None:
    found = view(CONNECTED)
    found.update_progress(
        {
            "step": "table/level/split",
            "table": 3,
            "level": 2,
            "peers": {"shop": {"sent": 5, "received": 6, "delay_ms": 1.5, "silent_seconds": 0}},
            "reveals": [{"what": "split feature", "to": ["bank", "shop"], "count": 4}],
        }
    )
    whole = found.to_dict()
    assert (whole["level"], whole["now_table"]) == (2, 3)
    assert whole["reveals"][0]["count"] == 4
    (shop,) = (peer for peer in whole["peers"] if peer["name"] == "shop")
    assert (shop["state"], shop["sent"], shop["delay_ms"]) == ("connected", 5, 1.5)


def test_the_report_has_the_last_word() -> None:
    reveal = {"what": "predictions", "to": ["shop"], "count": 7}
    done = {"event": "done", "seconds": 1.0, "rounds": 5, "reveals": [reveal], "tables": 3}
    found = view(CONNECTED, {"event": "revealed", **reveal}, done)
    whole = found.to_dict()
    assert (whole["state"], whole["reveals"], whole["seconds"]) == ("done", [reveal], 1.0)
    assert peers(found) == {"shop": "left", "dealer": "left"}


def test_ends_without_a_last_word() -> None:
    killed = view(CONNECTED)
    killed.mark_terminated()
    assert killed.status == "killed"
    stopped = view(CONNECTED, {"event": "interrupted", "code": 130})
    stopped.mark_terminated()
    assert stopped.status == "stopped"


def test_a_service_that_lost_somebody_goes_on() -> None:
    serving = view(CONNECTED, {"event": "serving"}, {"event": "lost", "peer": "shop"})
    assert (serving.status, peers(serving)["shop"]) == ("waiting", "lost")
    serving.apply_event({**CONNECTED, "time": "later", "text": ""})
    assert (serving.status, peers(serving)["shop"]) == ("running", "connected")


def test_our_own_workers_are_waited_for_until_they_are_there() -> None:
    missing = {"event": "waiting", "missing": ["worker1", "worker2"]}
    found = view(CONNECTED, {"event": "serving"}, missing)
    assert found.status == "waiting"
    workers = {"event": "workers", "workers": 2, "text": "", "time": "later"}
    found.apply_event(workers)
    assert found.status == "running"
    assert peers(found) == {"shop": "connected", "dealer": "connected"}
    ended = view(CONNECTED, {"event": "done"})
    ended.apply_event(workers)
    assert ended.status == "done"


def test_lines_of_another_version_do_no_harm() -> None:
    found = view({"event": "whatever"}, {"event": "http-error"}, {})
    assert found.status == "starting"


def test_groups_of_rows_in_shards() -> None:
    standing = {"groups": 4, "slowest_group": 3, "waits_for_group": 2, "waits_seconds": 1.5}
    sent = {"rounds": 1, "sent": 2, "received": 3, "dealt": 4}
    found = view(CONNECTED)
    found.update_progress({"peers": {}, "reveals": [], "by_workers": sent, **standing})
    whole = found.to_dict()
    assert (whole["groups"], whole["slowest_group"], whole["waits_for_group"]) == (4, 3, 2)
    assert whole["by_workers"] == sent
    found.apply_event({"event": "interrupted"})
    assert found.to_dict()["groups"] is None
    assert found.to_dict()["by_workers"] == sent  # they count when it has ended, too
    assert view(CONNECTED).to_dict()["groups"] is None
