"""A real service draws no mask twice, and sends the dealer only the row count of each batch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privet.arithmetic.prg import Place, Prg
from privet.transport import channel as messages
from tests.federation.harness import prepare, run
from tests.federation.test_serving import Service


def test_service_draws_no_mask_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A participant draws each place of its streams once, and the dealer draws it once."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    drawn: Counter[tuple[bytes, Place]] = Counter()
    draw = Prg._bytes

    def recording_draw(prg: Prg, place: Place, start: int, count: int) -> Any:
        drawn[prg.seed, place] += 1
        return draw(prg, place, start, count)

    received: list[tuple[str, bytes]] = []
    receive: Callable[..., bytes] = messages.receive_message

    def recording_receive(channel: Any, peer: str, *limit: int) -> bytes:
        message = receive(channel, peer, *limit)
        received.append((channel.name, message))
        return message

    monkeypatch.setattr(Prg, "_bytes", recording_draw)
    monkeypatch.setattr("privet.federation.serving.service.receive_message", recording_receive)
    service = Service(local)
    for _ in range(2):
        service.queue.submit_and_wait(["1-3", "1-7", "1-12"])
    service.queue.close("the test is over")
    service.ended().checked()
    times = [count for (seed, _), count in drawn.items() if not seed.startswith(b"privet probe")]
    assert max(times) == 2
    to_dealer = [message for name, message in received if name == "dealer"]
    assert to_dealer
    assert not [message for message in to_dealer if b"1-" in message]
    assert all(re.fullmatch(rb"p[0-9]+|stop", message) for message in to_dealer)
