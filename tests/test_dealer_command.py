"""`privet dealer`: which failures it outlives, and which end it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privet.errors import DataError, PeerLostError, UnavailableError
from privet.federation.session.session import LocalMember
from tests.federation.harness import prepare
from tests.test_cli import exit_code

GONE = UnavailableError("cluster.scheduler: the scheduler at tls://here:1 has gone")
LOST = PeerLostError("bank", "hung up")
Step = tuple[str, BaseException | None]
"""How far a session gets, and how it fails."""


class Sessions:
    """A dealer whose sessions go as they are told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local = prepare(folder)
        self.pauses: list[float] = []
        self.steps: list[Step] = []
        self._patched = monkeypatch
        monkeypatch.setattr("privet.federation.session.retry.time.sleep", self.pauses.append)
        monkeypatch.setattr("privet.federation.session.session._notify_others", lambda *_: ([], []))
        monkeypatch.setattr("privet.cli.dealer.run_dealer_session", self._deal)

    def _deal(self, seat: LocalMember, _: object) -> float:
        how_far, error = self.steps.pop(0)
        seat.is_connected = how_far in ("met", "up")
        seat.was_serving = how_far == "up"
        if error is not None:
            raise error
        return 0.0

    def run(self, *steps: Step, keep: bool = False) -> int | str | None:
        self.steps = list(steps)
        keys = self.local.folder / "dealer"
        return exit_code(
            self._patched,
            "dealer",
            f"--job={self.local.job_path}",
            f"--key={keys}/dealer.key",
            f"--certificate={keys}/dealer.crt",
            "--log-format=json",
            *(["--keep"] if keep else []),
        )


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    return Sessions(tmp_path, monkeypatch)


def test_a_service_outlives_its_cluster(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sessions.run(("up", GONE), ("", GONE), ("met", LOST), ("up", None)) == 0
    assert not sessions.steps
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in told] == ["failed", "failed", "failed", "done"]
    assert told[0]["text"] == f"{GONE}; waiting for the next"
    bounds = (0.2, 0.4, 0.8)
    assert len(sessions.pauses) == len(bounds)
    for pause, bound in zip(sessions.pauses, bounds, strict=True):
        assert bound / 2 <= pause <= bound


def test_a_dealer_that_stays_outlives_its_cluster(sessions: Sessions) -> None:
    ended = ("", KeyboardInterrupt())  # the only way to end this one
    steps = ("met", GONE), ("met", DataError("theirs")), ("met", None), ("", GONE), ended
    assert sessions.run(*steps, keep=True) == 130
    assert not sessions.steps


def test_a_dealer_that_stays_and_was_there_before(sessions: Sessions) -> None:
    """A session that went well shows as well that this machine is fit for it."""
    ended = ("", KeyboardInterrupt())
    assert sessions.run(("met", None), ("", GONE), ended, keep=True) == 130
    assert not sessions.steps


@pytest.mark.parametrize("keep", [False, True])
def test_a_machine_that_cannot_be_used_ends_it(sessions: Sessions, keep: bool) -> None:
    assert sessions.run(("", UnavailableError("cannot listen")), keep=keep) == 6


def test_a_training_is_one_session(sessions: Sessions) -> None:
    assert sessions.run(("met", GONE)) == 6
    assert sessions.pauses == []
