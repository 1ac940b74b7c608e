"""Reconnection: the failures that a service survives, and those that end it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from privet.errors import (
    CorrelationError,
    DataError,
    DisagreementError,
    PeerFailedError,
    PeerLostError,
    PeerSilentError,
    UnavailableError,
)
from privet.federation.monitoring.events import Event
from privet.federation.session import retry
from privet.federation.session.retry import run_with_retry
from privet.federation.session.session import LocalMember

LOST = PeerLostError("bank", "hung up")
Step = tuple[str, Exception | None]


class Sessions:
    """Scripted sessions: the phase that each reaches, and its failure."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.waits: list[float] = []
        self.events: list[Event] = []

    @contextlib.contextmanager
    def open(self, wait: float) -> Iterator[LocalMember]:
        self.waits.append(wait)
        nobody: Any = None
        yield LocalMember(nobody, "shop", nobody, "127.0.0.1", 0)

    def session(self, member: LocalMember) -> None:
        phase, error = self.steps.pop(0)
        member.is_connected = phase in ("met", "up")
        member.was_serving = phase == "up"
        if error is not None:
            raise error

    def run(self, *, service: bool = True, **more: Any) -> None:
        run_with_retry(self.open, self.session, 7.0, self.events.append, is_service=service, **more)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("privet.federation.session.retry.time.sleep", found.append)
    return found


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        PeerSilentError("bank", "nothing heard"),
        PeerFailedError("bank", "cannot take part"),
        DisagreementError("two models"),
        CorrelationError("out of step"),
        UnavailableError("cannot listen"),
    ],
)
def test_running_service_survives_peer_failures(error: Exception) -> None:
    sessions = Sessions(("up", LOST), ("", error), ("met", error), ("up", None))
    sessions.run()
    assert not sessions.steps
    assert [event.kind for event in sessions.events] == ["lost"] * 3
    assert sessions.events[0].fields["peer"] == "bank"
    # The first session waits as long as the caller sets; later ones use shorter timeouts.
    assert sessions.waits == [7.0, *[retry._RECONNECT_SECONDS] * 3]


@pytest.mark.parametrize(
    ("phase", "error"),
    [
        ("", LOST),  # not reached in time
        ("", PeerFailedError("bank", "cannot take part")),
        ("met", DisagreementError("two models")),
        ("met", CorrelationError("out of step")),
        ("", UnavailableError("cannot listen")),
        ("up", DataError("our own")),
    ],
)
def test_failures_that_end_a_service(phase: str, error: Exception) -> None:
    sessions = Sessions((phase, error))
    with pytest.raises(type(error)):
        sessions.run()


def test_service_reconnects_after_a_peer_is_lost_at_startup() -> None:
    sessions = Sessions(("met", LOST), ("up", None))
    sessions.run()
    assert not sessions.steps
    with pytest.raises(PeerLostError):
        Sessions(("met", LOST), ("up", None)).run(service=False)  # a training run is not retried


def test_backoff_grows_and_resets(pauses: list[float]) -> None:
    failure = ("", DisagreementError("two models"))
    Sessions(("up", LOST), *[failure] * 8, ("up", LOST), ("up", None)).run()
    most = [0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0, 4.0, 4.0, 0.2]
    assert len(pauses) == len(most)
    for pause, bound in zip(pauses, most, strict=True):
        assert bound / 2 <= pause <= bound


def test_kept_service_continues_after_the_recipient_ends() -> None:
    local_error = DataError("our own")  # the only way to end this service
    sessions = Sessions(("up", None), ("", LOST), ("up", None), ("", local_error))
    with pytest.raises(DataError):
        sessions.run(keep_running=True)
    assert [event.kind for event in sessions.events] == ["ended", "lost", "ended"]
