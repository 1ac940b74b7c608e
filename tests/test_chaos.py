"""A few interruptions of a whole federation; `make test-chaos` runs all kinds."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.chaos.page import section
from benchmarks.chaos.relay import Relays
from benchmarks.chaos.strike import ACTIONS, PHASES, Strike, deck
from benchmarks.chaos.trial import Trial

from tests.federation.harness import change, prepare, rows, run
from tests.federation.test_training import plain_model

STRIKES = [
    Strike("tables", "cut", ("bank",), table=4),
    Strike("prediction", "kill", ("dealer",)),
]


def test_interrupted_federation_gives_the_same_result(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=12)
    relays = Relays(local)
    try:
        found = Trial(local, plain_model(local), rows(2, 7), relays).suffer(STRIKES)
    finally:
        relays.close()
    assert [outcome.strike for outcome in found] == STRIKES
    assert [outcome.problems for outcome in found] == [[]] * len(STRIKES)
    assert not found[0].missed


def test_lost_progress_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reports a participant that starts again although all had five tables."""
    local = prepare(tmp_path)
    run(local, "train").checked()
    trial = Trial(local, plain_model(local), rows(2, 7), Relays(local))
    trial.relays.close()
    resumed_from = {"bank": 5, "shop": 0}
    processes = {
        n: SimpleNamespace(last={"resumed_from": done}) for n, done in resumed_from.items()
    }
    monkeypatch.setattr(trial, "_end", lambda _: ([], processes))
    monkeypatch.setattr(trial, "_common_stage", lambda: 5)
    assert trial._train() == ["shop goes on after table 0 of 5"]
    assert trial._left_over() == []
    (local.get_part_path("bank").parent / ".rehearsal.part.1234").touch()
    assert trial._left_over() == ["bank is left with ['.rehearsal.part.1234']"]


def test_all_kinds_of_strikes_are_drawn() -> None:
    chance = random.Random(0)
    kinds = len(PHASES) * len(ACTIONS) * 3
    drawn = list(islice(deck(chance, ("a", "b", "c"), ("d",), 12), kinds))
    counted = Counter((strike.phase, strike.action, len(strike.victims)) for strike in drawn)
    assert set(counted.values()) == {1}
    assert len(counted) == kinds


def test_workers_are_struck_only_where_they_run() -> None:
    chance = random.Random(0)
    drawn = list(islice(deck(chance, ("a", "b"), ("d",), 12, ("a",)), 500))
    with_workers = [strike for strike in drawn if "a's workers" in strike.victims]
    assert {strike.phase for strike in with_workers} == {"set-up", "tables", "end"}
    assert {strike.action for strike in with_workers} == {"kill", "stop", "terminate"}
    assert all("a" in strike.heads for strike in with_workers)


def test_killed_worker_is_noticed_and_its_process_ends(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=12)
    change(local.job_path, ("task =", "shards = 2\ntask ="))
    party = local.folder / "bank" / "party.toml"
    party.write_text(f"{party.read_text()}\n[cluster]\nlocal = 2\n")
    relays = Relays(local)
    strike = Strike("tables", "kill", ("bank's workers",), table=4)
    try:
        (found,) = Trial(local, plain_model(local), rows(2, 7), relays).suffer([strike])
    finally:
        relays.close()
    assert found.problems == []
    assert not found.missed


def test_page_lists_problems() -> None:
    row = {"phase": "tables", "action": "kill", "seconds": 1.0, "what": "kill a", "problems": []}
    failed = {**row, "action": "cut", "problems": ["b hangs"]}
    found = {"federations": 1, "interruptions": [row, failed]}
    text = "\n".join(section({**found, "command": "c", "machine": "m", "date": "d"}))
    assert "**1 of 2 are good.**" in text
    assert "| tables | 1 of 1 | 0 of 0 | 0 of 0 | 0 of 1 | 1.0 |" in text
    assert "- kill a: b hangs" in text
