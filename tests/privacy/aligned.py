"""Recorded alignments: every role is a thread, and all messages are recorded by recipient."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from privet.arrays import BoolArray, IndexArray
from privet.config.job import Job
from privet.data.frame import Ids
from privet.data.id_hashing import TagArray
from privet.federation.alignment import psi
from privet.federation.alignment.psi import SortedTagList, intersect_ids, mark_and_count_common
from privet.runtime.run import DEALER_NAME
from privet.transport.memory import MemoryChannel, create_memory_channels

Cheat = Callable[["Stage", str, BoolArray], BoolArray]
"""Returns the marks that a cheating dealer sends a participant in place of the correct ones."""


def job_of(n: int, **ids: Any) -> Job:
    """Return a job with alignment and participants p0, p1, ..."""
    participants = [
        {
            "name": f"p{k}",
            "role": "active" if k == 0 else "passive",
            "address": f"p{k}.example:7400",
            "fingerprint": f"{k:064x}",
        }
        for k in range(n)
    ]
    dealer = {"address": "dealer.example:7400", "fingerprint": f"{n:064x}"}
    return Job.parse(
        {
            "name": "staged",
            "task": "regression",
            "align": True,
            "ids": {"minimum": 1, **ids},
            "dealer": dealer,
            "participants": participants,
        }
    )


@dataclass
class Stage:
    """A recorded alignment."""

    job: Job
    received: dict[str, list[tuple[str, np.ndarray[Any, Any]]]] = field(default_factory=dict)
    """The messages to each role, with their sender."""
    lists: dict[str, SortedTagList] = field(default_factory=dict)
    rows: dict[str, IndexArray] = field(default_factory=dict)
    counted: int = -1
    """The number of common ids that the dealer found."""
    errors: dict[str, BaseException] = field(default_factory=dict)

    def tags(self, name: str) -> TagArray:
        """Return the list that a participant sent the dealer."""
        pieces = [array for peer, array in self.received[DEALER_NAME] if peer == name]
        assert all(piece.dtype == np.uint64 for piece in pieces)
        size, *rest = pieces
        tags: TagArray = np.concatenate(rest)
        assert size.tolist() == [len(tags)]
        return tags

    def entries(self, name: str, row: int) -> list[int]:
        """Return the positions of the two tags of a row in a participant's list."""
        positions = self.lists[name]._positions
        return np.flatnonzero(positions // 2 == row).tolist()

    def seen_by(self, name: str) -> list[tuple[str, str, bytes]]:
        """Return all messages to a role, as bytes."""
        return [(peer, str(array.dtype), array.tobytes()) for peer, array in self.received[name]]


def perform(
    job: Job,
    ids: Sequence[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
    seed: str | None = None,
    cheat: Cheat | None = None,
) -> Stage:
    """Run an alignment, with random numbers from a seed if it is given."""
    stage = Stage(job, {name: [] for name in (*job.party_names, DEALER_NAME)})
    channels = create_memory_channels([*job.party_names, DEALER_NAME])
    receive, send_marks, init = MemoryChannel.receive, psi.send_marks, SortedTagList.__init__
    draws: Counter[str] = Counter()

    def recording_receive(self: MemoryChannel, peer: str, *arguments: Any) -> Any:
        array = receive(self, peer, *arguments)
        if channels.get(self.name) is self:  # not a channel of an earlier test
            stage.received[self.name].append((peer, array.copy()))
        return array

    def recording_init(self: SortedTagList, *arguments: Any) -> None:
        init(self, *arguments)
        stage.lists[threading.current_thread().name] = self

    def cheating_send(channel: MemoryChannel, name: str, marks: BoolArray) -> None:
        send_marks(channel, name, marks if cheat is None else cheat(stage, name, marks.copy()))

    def token_bytes(size: int) -> bytes:
        name = threading.current_thread().name
        draws[name] += 1
        return hashlib.shake_256(f"{seed} {name} {draws[name]}".encode()).digest(size)

    def role(name: str) -> None:
        try:
            with channels[name] as channel:
                if name == DEALER_NAME:
                    stage.counted = mark_and_count_common(channel, job)
                else:
                    local_ids = Ids.from_texts(ids[job.party_names.index(name)])
                    stage.rows[name] = intersect_ids(channel, job, local_ids)
        except BaseException as error:  # noqa: BLE001
            stage.errors[name] = error

    with monkeypatch.context() as patch:
        patch.setattr(MemoryChannel, "receive", recording_receive)
        patch.setattr(SortedTagList, "__init__", recording_init)
        patch.setattr(psi, "send_marks", cheating_send)
        if seed is not None:
            patch.setattr("privet.federation.alignment.psi.secrets.token_bytes", token_bytes)
        threads = [threading.Thread(target=role, args=(n,), name=n, daemon=True) for n in channels]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a role hangs"
    return stage
