from __future__ import annotations

import io
import json
import sys

import pytest

from privet.cli.console import telling
from privet.federation.events import Event


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
    with telling("json") as tell:
        tell(Event("lost", "shop: lost", {"peer": "shop"}))
        tell(Event("done", "no more to do", {}))
    assert [json.loads(piece)["event"] for piece in written.pieces] == ["lost", "done"]
    assert all(piece.endswith("\n") for piece in written.pieces)
