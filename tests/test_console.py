from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Sequence

import pytest
import typer

from privet.cli.console import open_event_bus
from privet.federation.monitoring.events import Event, WaitReporter


class RecordingStream(io.StringIO):
    """Stream that records each write call, since other threads can write between two calls."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, piece: str) -> int:
        self.pieces.append(piece)
        return len(piece)


def test_json_line_is_written_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service emits events from several threads."""
    stream = RecordingStream()
    monkeypatch.setattr(sys, "stderr", stream)
    with open_event_bus("json") as emit:
        emit(Event("lost", "shop: lost", {"peer": "shop"}))
        emit(Event("done", "no more to do", {}))
    assert [json.loads(piece)["event"] for piece in stream.pieces] == ["lost", "done"]
    assert all(piece.endswith("\n") for piece in stream.pieces)


WAITING_REASONS = [
    *((second, "shop (no answer yet)", ["shop"]) for second in range(1, 21)),
    *((second, "shop (refused)", ["shop"]) for second in range(21, 25)),
    *((second, "shop (no answer yet)", ["shop"]) for second in range(25, 29)),
    *((second, "dealer (hung up), shop (refused)", ["dealer", "shop"]) for second in (29, 30)),
    *((second, "shop (refused)", ["shop"]) for second in range(31, 200)),
]


def wait(reporter: WaitReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate minutes of waiting."""
    for second, reason, missing in WAITING_REASONS:
        monkeypatch.setattr(time, "monotonic", lambda second=second: 1000.0 + second)
        reporter(f"waiting for {reason} ({second} s)", missing)


def seconds(texts: Sequence[str]) -> list[int]:
    return [int(text.rpartition("(")[2].split()[0]) for text in texts]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_waiting_is_logged_immediately_and_then_rarely(
    log_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recurring reason is not logged as a new one; a subscriber receives all events."""
    events: list[Event] = []
    with open_event_bus(log_format) as bus, bus.subscribe(events.append):
        wait(WaitReporter(bus), monkeypatch)
    lines = capsys.readouterr().err.splitlines()
    texts = [json.loads(line)["text"] for line in lines] if log_format == "json" else lines
    assert seconds(texts) == [1, 6, 21, 26, 29, 34, 94, 154]
    assert seconds([event.text for event in events]) == [second for second, _, _ in WAITING_REASONS]
    assert events[-1].fields == {"missing": ["shop"]}


def test_number_of_logged_reasons_is_limited() -> None:
    """A peer can influence the reasons."""
    events: list[Event] = []
    reporter = WaitReporter(events.append)
    for number in range(300):
        reporter(f"waiting for shop ({number}) (1 s)", ["shop"])
    assert sum(not event.is_transient for event in events) == 100


def test_repeated_reasons_are_logged_once() -> None:
    events: list[Event] = []
    reporter = WaitReporter(events.append)
    for number in range(300):
        missing = ["shop", "telecom"] if number % 2 else ["shop"]
        reporter(f"waiting for {', '.join(missing)} ({number} s)", missing)
    assert sum(not event.is_transient for event in events) == 2


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_interrupt_is_the_last_event(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info, open_event_bus(log_format):
        raise KeyboardInterrupt
    assert exit_info.value.exit_code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert (line if log_format == "text" else json.loads(line)["text"]) == "interrupted"
