"""Meeting again: which failures a service outlives, and which end it."""

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
    """Sessions that go as they are told: how far each gets, and how it fails."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.waits: list[float] = []
        self.told: list[Event] = []

    @contextlib.contextmanager
    def sit(self, wait: float) -> Iterator[LocalMember]:
        self.waits.append(wait)
        nobody: Any = None
        yield LocalMember(nobody, "shop", nobody, "127.0.0.1", 0)

    def session(self, seat: LocalMember) -> None:
        how_far, error = self.steps.pop(0)
        seat.is_connected = how_far in ("met", "up")
        seat.was_serving = how_far == "up"
        if error is not None:
            raise error

    def run(self, *, service: bool = True, **more: Any) -> None:
        run_with_retry(self.sit, self.session, 7.0, self.told.append, is_service=service, **more)


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
def test_a_service_that_was_up_outlives_what_others_do(error: Exception) -> None:
    sessions = Sessions(("up", LOST), ("", error), ("met", error), ("up", None))
    sessions.run()
    assert not sessions.steps
    assert [event.kind for event in sessions.told] == ["lost"] * 3
    assert sessions.told[0].fields["peer"] == "bank"
    # The first meeting is waited for as long as somebody says, later ones are tried anew.
    assert sessions.waits == [7.0, *[retry._RECONNECT_SECONDS] * 3]


@pytest.mark.parametrize(
    ("how_far", "error"),
    [
        ("", LOST),  # not reached in time
        ("", PeerFailedError("bank", "cannot take part")),
        ("met", DisagreementError("two models")),
        ("met", CorrelationError("out of step")),
        ("", UnavailableError("cannot listen")),
        ("up", DataError("our own")),
    ],
)
def test_what_ends_a_service(how_far: str, error: Exception) -> None:
    sessions = Sessions((how_far, error))
    with pytest.raises(type(error)):
        sessions.run()


def test_who_is_lost_on_the_way_up_is_waited_for_by_those_who_serve() -> None:
    sessions = Sessions(("met", LOST), ("up", None))
    sessions.run()
    assert not sessions.steps
    with pytest.raises(PeerLostError):
        Sessions(("met", LOST), ("up", None)).run(service=False)  # a training's, for all we know


def test_pauses_grow_and_start_again(pauses: list[float]) -> None:
    never = ("", DisagreementError("two models"))
    Sessions(("up", LOST), *[never] * 8, ("up", LOST), ("up", None)).run()
    most = [0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0, 4.0, 4.0, 0.2]
    assert len(pauses) == len(most)
    for pause, bound in zip(pauses, most, strict=True):
        assert bound / 2 <= pause <= bound


def test_who_is_to_stay_stays_when_the_recipient_ends_the_service() -> None:
    ours = DataError("our own")  # the only way to end this one
    sessions = Sessions(("up", None), ("", LOST), ("up", None), ("", ours))
    with pytest.raises(DataError):
        sessions.run(keep_running=True)
    assert [event.kind for event in sessions.told] == ["ended", "lost", "ended"]
