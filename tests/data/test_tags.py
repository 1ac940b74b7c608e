"""Tags: one keyed hash an id, whoever computes it and in however many processes."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from privet.data import tags
from privet.data.ids import Ids
from privet.data.tags import Tags
from privet.errors import UnavailableError

KEY = bytes(range(32))


def test_they_are_one_keyed_hash_of_the_key_s_text() -> None:
    found = Tags.of(Ids.of(["a", "\u00e9", ""]), KEY)
    for row, text in enumerate(("a", "\u00e9", "")):
        digest = hashlib.blake2b(text.encode(), digest_size=24, key=KEY, person=b"privet id")
        numbers = np.frombuffer(digest.digest(), "<u8").tolist()
        assert [*found.pairs[row].tolist(), int(found.order[row])] == numbers


def test_another_key_gives_others() -> None:
    ids = Ids.of(range(1000))
    one, other = Tags.of(ids, KEY), Tags.of(ids, KEY[::-1])
    numbers = [one.pairs, one.order[:, None], other.pairs, other.order[:, None]]
    assert len(np.unique(np.concatenate(numbers, axis=None))) == 6000


def test_dummies_are_nobody_s_ids() -> None:
    dummies = Tags.of_dummies(64, KEY)
    ids = Ids.of(number.to_bytes(8, "little").decode() for number in range(64))
    assert not np.isin(dummies.pairs, Tags.of(ids, KEY).pairs).any()
    np.testing.assert_array_equal(dummies.pairs, Tags.of_dummies(64, KEY).pairs)
    assert len(np.unique(dummies.pairs)) == 128


def test_several_processes_hash_the_same() -> None:
    ids = Ids.of(range(200_000))  # of four blocks
    one, several = Tags.of(ids, KEY, processes=1), Tags.of(ids, KEY, processes=2)
    np.testing.assert_array_equal(one.pairs, several.pairs)
    np.testing.assert_array_equal(one.order, several.order)


def test_many_ids_take_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def hashed(blocks: object, key: bytes, processes: int) -> list[bytes]:
        asked.append(processes)
        return [bytes(24 * 50)]

    monkeypatch.setattr(tags, "_PAYS", 50)
    monkeypatch.setattr(tags, "_cores", lambda: 7)
    monkeypatch.setattr(tags, "_hashed", hashed)
    Tags.of(Ids.of(range(50)), KEY)
    monkeypatch.setattr(tags, "_PAYS", 51)
    Tags.of(Ids.of(range(50)), KEY)
    assert asked == [7, 1]


def end_myself(*_: object) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def test_a_process_that_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tags, "_hash", end_myself)
    with pytest.raises(UnavailableError, match="was ended from outside: see whether memory"):
        Tags.of(Ids.of(range(10)), KEY, processes=2)
