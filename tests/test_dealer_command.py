"""The command `privet dealer`: the failures that it survives, and those that end it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privet.errors import DataError, PeerLostError, UnavailableError
from privet.federation.session.session import LocalMember
from tests.federation.harness import prepare
from tests.test_cli import exit_code

SCHEDULER_LOST = UnavailableError("cluster.scheduler: the scheduler at tls://here:1 has gone")
LOST = PeerLostError("bank", "hung up")
Step = tuple[str, BaseException | None]
"""The phase that a session reaches, and its failure."""


class Sessions:
    """A dealer with scripted sessions."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local = prepare(folder)
        self.pauses: list[float] = []
        self.steps: list[Step] = []
        self._patched = monkeypatch
        monkeypatch.setattr("privet.federation.session.retry.time.sleep", self.pauses.append)
        monkeypatch.setattr("privet.federation.session.session._notify_others", lambda *_: ([], []))
        monkeypatch.setattr("privet.cli.dealer.run_dealer_session", self._run_session)

    def _run_session(self, member: LocalMember, _: object) -> float:
        phase, error = self.steps.pop(0)
        member.is_connected = phase in ("met", "up")
        member.was_serving = phase == "up"
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


def test_service_survives_a_lost_scheduler(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        sessions.run(("up", SCHEDULER_LOST), ("", SCHEDULER_LOST), ("met", LOST), ("up", None)) == 0
    )
    assert not sessions.steps
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in events] == ["failed", "failed", "failed", "done"]
    assert events[0]["text"] == f"{SCHEDULER_LOST}; waiting for the next"
    bounds = (0.2, 0.4, 0.8)
    assert len(sessions.pauses) == len(bounds)
    for pause, bound in zip(sessions.pauses, bounds, strict=True):
        assert bound / 2 <= pause <= bound


def test_kept_dealer_survives_a_lost_scheduler(sessions: Sessions) -> None:
    ended = ("", KeyboardInterrupt())  # the only way to end this dealer
    steps = (
        ("met", SCHEDULER_LOST),
        ("met", DataError("theirs")),
        ("met", None),
        ("", SCHEDULER_LOST),
        ended,
    )
    assert sessions.run(*steps, keep=True) == 130
    assert not sessions.steps


def test_kept_dealer_survives_after_a_successful_session(sessions: Sessions) -> None:
    """A successful session also shows that the machine is usable."""
    ended = ("", KeyboardInterrupt())
    assert sessions.run(("met", None), ("", SCHEDULER_LOST), ended, keep=True) == 130
    assert not sessions.steps


@pytest.mark.parametrize("keep", [False, True])
def test_dealer_ends_if_it_cannot_start(sessions: Sessions, keep: bool) -> None:
    assert sessions.run(("", UnavailableError("cannot listen")), keep=keep) == 6


def test_training_is_a_single_session(sessions: Sessions) -> None:
    assert sessions.run(("met", SCHEDULER_LOST)) == 6
    assert sessions.pauses == []
