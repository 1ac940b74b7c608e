"""Tags: one keyed hash for each id, regardless of the number of processes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data import id_hashing
from privet.data.frame import Ids
from privet.data.id_hashing import Tags, hash_blocks
from privet.errors import UnavailableError

KEY = bytes(range(32))


def test_tags_are_one_keyed_hash_of_the_match_key() -> None:
    found = Tags.from_ids(Ids.from_texts(["a", "\u00e9", ""]), KEY)
    for row, text in enumerate(("a", "\u00e9", "")):
        digest = hashlib.blake2b(text.encode(), digest_size=24, key=KEY, person=b"privet id")
        numbers = np.frombuffer(digest.digest(), "<u8").tolist()
        assert [*found.pairs[row].tolist(), int(found.order_numbers[row])] == numbers


def test_another_key_gives_other_tags() -> None:
    ids = Ids.from_texts(range(1000))
    one, other = Tags.from_ids(ids, KEY), Tags.from_ids(ids, KEY[::-1])
    numbers = [one.pairs, one.order_numbers[:, None], other.pairs, other.order_numbers[:, None]]
    assert len(np.unique(np.concatenate(numbers, axis=None))) == 6000


def test_dummies_match_no_ids() -> None:
    dummies = Tags.make_dummies(64, KEY)
    ids = Ids.from_texts(number.to_bytes(8, "little").decode() for number in range(64))
    assert not np.isin(dummies.pairs, Tags.from_ids(ids, KEY).pairs).any()
    np.testing.assert_array_equal(dummies.pairs, Tags.make_dummies(64, KEY).pairs)
    assert len(np.unique(dummies.pairs)) == 128


def test_several_processes_give_the_same_hashes() -> None:
    ids = Ids.from_texts(["", "\u00e9" * 5000, *range(200_000)])  # of four blocks
    one, several = Tags.from_ids(ids, KEY, processes=1), Tags.from_ids(ids, KEY, processes=2)
    np.testing.assert_array_equal(one.pairs, several.pairs)
    np.testing.assert_array_equal(one.order_numbers, several.order_numbers)


def test_many_ids_use_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    process_counts: list[int] = []

    def hashed(blocks: object, key: bytes, purpose: bytes, processes: int) -> list[bytes]:
        process_counts.append(processes)
        return [bytes(24 * 50)]

    monkeypatch.setattr(id_hashing, "_PARALLEL_THRESHOLD", 50)
    monkeypatch.setattr(id_hashing, "count_hash_processes", lambda: 7)
    monkeypatch.setattr(id_hashing, "hash_blocks", hashed)
    Tags.from_ids(Ids.from_texts(range(50)), KEY)
    monkeypatch.setattr(id_hashing, "_PARALLEL_THRESHOLD", 51)
    Tags.from_ids(Ids.from_texts(range(50)), KEY)
    assert process_counts == [7, 1]


def test_killed_hash_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks() -> list[list[bytes]]:
        return [[b"a"], [b"b"]] * 10

    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def starting(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(id_hashing.subprocess, "Popen", starting)  # type: ignore[attr-defined]
    hashed = hash_blocks(blocks(), KEY, b"test", 2)
    next(hashed)
    for process in started:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match="was ended from outside: see whether memory"):
        list(hashed)
    assert all(process.poll() is not None for process in started)


def test_script_without_a_main_guard(tmp_path: Path) -> None:
    """Hash processes do not run the caller's script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from privet.data.id_hashing import hash_blocks\n"
        "print(len(b''.join(hash_blocks([[b'a'], [b'b']] * 3, b'key', b'test', 2))))\n"
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)  # noqa: S603, PLW1510
    assert (result.stdout, result.stderr) == ("144\n", "")
