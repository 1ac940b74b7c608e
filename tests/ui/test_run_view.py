"""A run, made of the lines of its record."""

from __future__ import annotations

from typing import Any

from privet.dashboard.run_state import RunView

BEGAN = {
    "event": "began",
    "time": "2026-01-01T10:00:00+00:00",
    "command": "train",
    "job": "churn",
    "name": "bank",
    "participants": ["bank", "shop"],
    "dealers": ["dealer"],
}


def view(*lines: dict[str, Any]) -> RunView:
    found = RunView("run")
    for line in (BEGAN, *lines):
        found.take({"text": "", "time": "2026-01-01T10:00:01+00:00", **line})
    return found


def peers(found: RunView) -> dict[str, str]:
    return {peer["name"]: peer["state"] for peer in found.whole()["peers"]}


CONNECTED = {"event": "connected", "peers": ["shop", "dealer"]}


def test_who_is_there() -> None:
    assert peers(view()) == {"shop": "unknown", "dealer": "unknown"}
    waiting = view({"event": "waiting", "missing": ["shop"]})
    assert waiting.state == "waiting"
    assert peers(waiting) == {"shop": "missing", "dealer": "connected"}
    assert peers(view({"event": "waiting", "missing": ["shop"]}, CONNECTED)) == {
        "shop": "connected",
        "dealer": "connected",
    }
    lost = view(CONNECTED, {"event": "error", "peer": "shop", "code": 7})
    assert (lost.state, lost.goes_on) == ("failed", False)
    assert peers(lost) == {"shop": "lost", "dealer": "left"}


def test_points_are_told_once() -> None:
    lines = [{"event": "table", "table": k, "tables": 9, "validation_loss": 1 / k} for k in (1, 2)]
    found = view(CONNECTED, *lines)
    assert found.whole()["points"] == [(1, None, 1.0), (2, None, 0.5)]
    since = found.whole(1)
    assert (since["from"], since["points"]) == (1, [(2, None, 0.5)])
    assert (since["table"], since["tables"]) == (2, 9)


def test_how_it_stands() -> None:
    found = view(CONNECTED)
    found.stand(
        {
            "step": "table/level/split",
            "table": 3,
            "level": 2,
            "peers": {"shop": {"sent": 5, "received": 6, "delay_ms": 1.5, "silent_seconds": 0}},
            "reveals": [{"what": "split feature", "to": ["bank", "shop"], "count": 4}],
        }
    )
    whole = found.whole()
    assert (whole["level"], whole["now_table"]) == (2, 3)
    assert whole["reveals"][0]["count"] == 4
    (shop,) = (peer for peer in whole["peers"] if peer["name"] == "shop")
    assert (shop["state"], shop["sent"], shop["delay_ms"]) == ("connected", 5, 1.5)


def test_the_report_has_the_last_word() -> None:
    reveal = {"what": "predictions", "to": ["shop"], "count": 7}
    done = {"event": "done", "seconds": 1.0, "rounds": 5, "reveals": [reveal], "tables": 3}
    found = view(CONNECTED, {"event": "revealed", **reveal}, done)
    whole = found.whole()
    assert (whole["state"], whole["reveals"], whole["seconds"]) == ("done", [reveal], 1.0)
    assert peers(found) == {"shop": "left", "dealer": "left"}


def test_ends_without_a_last_word() -> None:
    killed = view(CONNECTED)
    killed.bury()
    assert killed.state == "killed"
    stopped = view(CONNECTED, {"event": "interrupted", "code": 130})
    stopped.bury()
    assert stopped.state == "stopped"


def test_a_service_that_lost_somebody_goes_on() -> None:
    serving = view(CONNECTED, {"event": "serving"}, {"event": "lost", "peer": "shop"})
    assert (serving.state, peers(serving)["shop"]) == ("waiting", "lost")
    serving.take({**CONNECTED, "time": "later", "text": ""})
    assert (serving.state, peers(serving)["shop"]) == ("running", "connected")


def test_our_own_workers_are_waited_for_until_they_are_there() -> None:
    missing = {"event": "waiting", "missing": ["worker1", "worker2"]}
    found = view(CONNECTED, {"event": "serving"}, missing)
    assert found.state == "waiting"
    workers = {"event": "workers", "workers": 2, "text": "", "time": "later"}
    found.take(workers)
    assert found.state == "running"
    assert peers(found) == {"shop": "connected", "dealer": "connected"}
    ended = view(CONNECTED, {"event": "done"})
    ended.take(workers)
    assert ended.state == "done"


def test_lines_of_another_version_do_no_harm() -> None:
    found = view({"event": "whatever"}, {"event": "http-error"}, {})
    assert found.state == "starting"


def test_groups_of_rows_in_shards() -> None:
    standing = {"groups": 4, "slowest_group": 3, "waits_for_group": 2, "waits_seconds": 1.5}
    sent = {"rounds": 1, "sent": 2, "received": 3, "dealt": 4}
    found = view(CONNECTED)
    found.stand({"peers": {}, "reveals": [], "by_workers": sent, **standing})
    whole = found.whole()
    assert (whole["groups"], whole["slowest_group"], whole["waits_for_group"]) == (4, 3, 2)
    assert whole["by_workers"] == sent
    found.take({"event": "interrupted"})
    assert found.whole()["groups"] is None
    assert found.whole()["by_workers"] == sent  # they count when it has ended, too
    assert view(CONNECTED).whole()["groups"] is None
