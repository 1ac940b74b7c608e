"""The state of a run from the records of its journal."""

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


def make_state(*lines: dict[str, Any]) -> RunState:
    state = RunState("run")
    for line in (BEGAN, *lines):
        state.apply_event({"text": "", "time": "2026-01-01T10:00:01+00:00", **line})
    return state


def get_peer_states(state: RunState) -> dict[str, str]:
    return {peer["name"]: peer["state"] for peer in state.to_dict()["peers"]}


CONNECTED = {"event": "connected", "peers": ["shop", "dealer"]}


def test_peer_states() -> None:
    assert get_peer_states(make_state()) == {"shop": "unknown", "dealer": "unknown"}
    waiting = make_state({"event": "waiting", "missing": ["shop"]})
    assert waiting.status == "waiting"
    assert get_peer_states(waiting) == {"shop": "missing", "dealer": "connected"}
    assert get_peer_states(make_state({"event": "waiting", "missing": ["shop"]}, CONNECTED)) == {
        "shop": "connected",
        "dealer": "connected",
    }
    lost = make_state(CONNECTED, {"event": "error", "peer": "shop", "code": 7})
    assert (lost.status, lost.is_running) == ("failed", False)
    assert get_peer_states(lost) == {"shop": "lost", "dealer": "left"}


def test_loss_points_after_an_index() -> None:
    lines = [{"event": "table", "table": k, "tables": 9, "validation_loss": 1 / k} for k in (1, 2)]
    state = make_state(CONNECTED, *lines)
    assert state.to_dict()["points"] == [(1, None, 1.0), (2, None, 0.5)]
    later = state.to_dict(1)
    assert (later["from"], later["points"]) == (1, [(2, None, 0.5)])
    assert (later["table"], later["tables"]) == (2, 9)


def test_progress_is_shown() -> None:
    state = make_state(CONNECTED)
    state.update_progress(
        {
            "step": "table/level/split",
            "table": 3,
            "level": 2,
            "peers": {"shop": {"sent": 5, "received": 6, "delay_ms": 1.5, "silent_seconds": 0}},
            "reveals": [{"what": "split feature", "to": ["bank", "shop"], "count": 4}],
        }
    )
    details = state.to_dict()
    assert (details["level"], details["now_table"]) == (2, 3)
    assert details["reveals"][0]["count"] == 4
    (shop,) = (peer for peer in details["peers"] if peer["name"] == "shop")
    assert (shop["state"], shop["sent"], shop["delay_ms"]) == ("connected", 5, 1.5)


def test_report_replaces_earlier_disclosures() -> None:
    reveal = {"what": "predictions", "to": ["shop"], "count": 7}
    done = {"event": "done", "seconds": 1.0, "rounds": 5, "reveals": [reveal], "tables": 3}
    state = make_state(CONNECTED, {"event": "revealed", **reveal}, done)
    details = state.to_dict()
    assert (details["state"], details["reveals"], details["seconds"]) == ("done", [reveal], 1.0)
    assert get_peer_states(state) == {"shop": "left", "dealer": "left"}


def test_terminated_process_is_marked_killed() -> None:
    killed = make_state(CONNECTED)
    killed.mark_terminated()
    assert killed.status == "killed"
    stopped = make_state(CONNECTED, {"event": "interrupted", "code": 130})
    stopped.mark_terminated()
    assert stopped.status == "stopped"


def test_service_resumes_after_losing_a_peer() -> None:
    serving = make_state(CONNECTED, {"event": "serving"}, {"event": "lost", "peer": "shop"})
    assert (serving.status, get_peer_states(serving)["shop"]) == ("waiting", "lost")
    serving.apply_event({**CONNECTED, "time": "later", "text": ""})
    assert (serving.status, get_peer_states(serving)["shop"]) == ("running", "connected")


def test_waiting_for_workers_ends_when_they_connect() -> None:
    missing = {"event": "waiting", "missing": ["worker1", "worker2"]}
    state = make_state(CONNECTED, {"event": "serving"}, missing)
    assert state.status == "waiting"
    workers = {"event": "workers", "workers": 2, "text": "", "time": "later"}
    state.apply_event(workers)
    assert state.status == "running"
    assert get_peer_states(state) == {"shop": "connected", "dealer": "connected"}
    ended = make_state(CONNECTED, {"event": "done"})
    ended.apply_event(workers)
    assert ended.status == "done"


def test_unknown_events_are_ignored() -> None:
    state = make_state({"event": "whatever"}, {"event": "http-error"}, {})
    assert state.status == "starting"


def test_shard_progress_is_shown() -> None:
    progress = {"groups": 4, "slowest_group": 3, "waits_for_group": 2, "waits_seconds": 1.5}
    sent = {"rounds": 1, "sent": 2, "received": 3, "dealt": 4}
    state = make_state(CONNECTED)
    state.update_progress({"peers": {}, "reveals": [], "by_workers": sent, **progress})
    details = state.to_dict()
    assert (details["groups"], details["slowest_group"], details["waits_for_group"]) == (4, 3, 2)
    assert details["by_workers"] == sent
    state.apply_event({"event": "interrupted"})
    assert state.to_dict()["groups"] is None
    assert state.to_dict()["by_workers"] == sent  # kept after the end
    assert make_state(CONNECTED).to_dict()["groups"] is None
