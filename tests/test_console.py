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


class Pieces(io.StringIO):
    """What is written, by call: threads that write may come between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, piece: str) -> int:
        self.pieces.append(piece)
        return len(piece)


def test_a_line_for_machines_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service tells from several threads."""
    written = Pieces()
    monkeypatch.setattr(sys, "stderr", written)
    with open_event_bus("json") as tell:
        tell(Event("lost", "shop: lost", {"peer": "shop"}))
        tell(Event("done", "no more to do", {}))
    assert [json.loads(piece)["event"] for piece in written.pieces] == ["lost", "done"]
    assert all(piece.endswith("\n") for piece in written.pieces)


WAITED = [
    *((second, "shop (no answer yet)", ["shop"]) for second in range(1, 21)),
    *((second, "shop (refused)", ["shop"]) for second in range(21, 25)),
    *((second, "shop (no answer yet)", ["shop"]) for second in range(25, 29)),
    *((second, "dealer (hung up), shop (refused)", ["dealer", "shop"]) for second in (29, 30)),
    *((second, "shop (refused)", ["shop"]) for second in range(31, 200)),
]


def wait(waiting: WaitReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for minutes, in no time."""
    for second, why, missing in WAITED:
        monkeypatch.setattr(time, "monotonic", lambda second=second: 1000.0 + second)
        waiting(f"waiting for {why} ({second} s)", missing)


def seconds(texts: Sequence[str]) -> list[int]:
    return [int(text.rpartition("(")[2].split()[0]) for text in texts]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_log_is_told_at_once_why_we_wait_and_then_seldom(
    log_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a reason that comes and goes it hears once; whoever watches hears all."""
    heard: list[Event] = []
    with open_event_bus(log_format) as tell, tell.subscribe(heard.append):
        wait(WaitReporter(tell), monkeypatch)
    lines = capsys.readouterr().err.splitlines()
    texts = [json.loads(line)["text"] for line in lines] if log_format == "json" else lines
    assert seconds(texts) == [1, 6, 21, 26, 29, 34, 94, 154]
    assert seconds([event.text for event in heard]) == [second for second, _, _ in WAITED]
    assert heard[-1].fields == {"missing": ["shop"]}


def test_reasons_without_end_do_not_fill_a_log() -> None:
    """A peer has a say in them."""
    heard: list[Event] = []
    waiting = WaitReporter(heard.append)
    for number in range(300):
        waiting(f"waiting for shop ({number}) (1 s)", ["shop"])
    assert sum(not event.is_transient for event in heard) == 100


def test_one_that_comes_and_goes_does_not_fill_a_log() -> None:
    heard: list[Event] = []
    waiting = WaitReporter(heard.append)
    for number in range(300):
        missing = ["shop", "telecom"] if number % 2 else ["shop"]
        waiting(f"waiting for {', '.join(missing)} ({number} s)", missing)
    assert sum(not event.is_transient for event in heard) == 2


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_last_line_says_that_it_was_interrupted(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, open_event_bus(log_format):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert (line if log_format == "text" else json.loads(line)["text"]) == "interrupted"
