"""Checkpoints: tables are appended, scores replaced atomically, and any failure is recoverable."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.boosting.training import TrainingState
from privet.errors import ModelError, UnavailableError
from privet.spec.params import Params
from privet.storage import checkpoint
from privet.storage.checkpoint import CheckpointStore, bound_score_and_table_bytes
from tests.storage.test_part_file import damaged, part

RUN, LATER = "a" * 64, "b" * 64
SAMPLES = 100


def state(tables: int, seed: int = 0) -> TrainingState:
    """Return the state of a participant after some tables; the first tables are always equal."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for name in ("feature", "bucket", "threshold"):
        arrays[name] = np.concatenate([getattr(part(), name)] * 4)[:tables]
    leaves = rng.integers(0, 1 << 32, (12, 1, 4), dtype=np.uint32)[:tables]
    chance = np.random.default_rng((seed, tables))
    scores = chance.integers(0, 1 << 64, (1, SAMPLES), dtype=np.uint64)
    return TrainingState(replace(part(), **arrays, leaf_shares=leaves), scores)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job.checkpoints"


def open_store(folder: Path) -> CheckpointStore:
    """Open the checkpoints as in a new process, with two to keep."""
    return CheckpointStore(folder, "the job", "the data", max_checkpoints=2)


def save_tables(folder: Path, tables: int = 3, run: str = RUN) -> CheckpointStore:
    """Save checkpoints for the first tables."""
    checkpoints = open_store(folder)
    for number in range(1, tables + 1):
        checkpoints.save(state(number), run)
    return checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_same_state(one: TrainingState, other: TrainingState) -> bool:
    arrays = ("feature", "bucket", "threshold", "leaf_shares")
    return np.array_equal(one.scores, other.scores) and all(
        np.array_equal(getattr(one.part, n), getattr(other.part, n), equal_nan=n == "threshold")
        for n in arrays
    )


def test_two_checkpoints_are_kept(folder: Path) -> None:
    save_tables(folder, 5)
    run = RUN[:16]
    assert names(folder) == [f"00004-{run}.scores", f"00005-{run}.scores", f"{run}.tables"]
    assert open_store(folder).list_keys() == [(4, RUN), (5, RUN)]
    for tables in (4, 5):
        loaded = open_store(folder).load((tables, RUN))
        assert is_same_state(loaded, state(tables))
        assert loaded.scores.dtype == np.uint64
        assert loaded.part.leaf_shares.dtype == np.uint32
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_tables_are_appended(folder: Path) -> None:
    checkpoints = save_tables(folder, 1)
    path = folder / f"{RUN[:16]}.tables"
    before = path.read_bytes()
    inode = path.stat().st_ino
    sizes = []
    for number in range(2, 7):
        checkpoints.save(state(number), RUN)
        assert path.read_bytes().startswith(before)
        sizes.append(path.stat().st_size - len(before))
        before = path.read_bytes()
    assert path.stat().st_ino == inode
    assert len(set(sizes)) == 1


def test_bounds_on_bytes_hold(folder: Path) -> None:
    save_tables(folder, 6)
    scores, tables = bound_score_and_table_bytes(
        SAMPLES, Params(task="regression", tables=6, depth=2)
    )
    assert max(path.stat().st_size for path in folder.glob("*.scores")) <= scores
    assert (folder / f"{RUN[:16]}.tables").stat().st_size <= tables


def test_later_run_resumes_from_either_checkpoint(folder: Path) -> None:
    for tables in (4, 5):
        shutil.rmtree(folder, ignore_errors=True)
        save_tables(folder, 5)
        later = open_store(folder)
        assert is_same_state(later.load((tables, RUN)), state(tables))
        later.save(state(tables + 1), LATER)
        # The checkpoint that it resumed from stays, with its tables.
        assert open_store(folder).list_keys() == [(tables, RUN), (tables + 1, LATER)]
        assert is_same_state(open_store(folder).load((tables, RUN)), state(tables))
        later.save(state(tables + 2), LATER)
        assert open_store(folder).list_keys() == [(tables + 1, LATER), (tables + 2, LATER)]
        assert is_same_state(open_store(folder).load((tables + 2, LATER)), state(tables + 2))
        assert len(names(folder)) == 3


class KilledError(BaseException):
    """Simulates the end of a process at a chosen system call."""


class Killer:
    """Allows a number of system calls, and fails all later ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        self.left = calls
        for name in ("open", "fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KilledError
        return function(*arguments, **options)


def test_run_killed_at_any_moment_can_resume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete checkpoint always exists: the one it resumed from or a later one."""
    calls, is_finished = 0, False
    while not is_finished:
        shutil.rmtree(folder, ignore_errors=True)
        save_tables(folder, 3)
        later = open_store(folder)
        later.load((3, RUN))
        with monkeypatch.context() as patched:
            Killer(patched, calls)
            try:
                for number in (4, 5, 6):
                    later.save(state(number), LATER)
                is_finished = True
            except KilledError:
                calls += 1
        keys = open_store(folder).list_keys()
        assert max(keys) >= (3, RUN)
        assert all(is_same_state(open_store(folder).load(key), state(key[0])) for key in keys)
    assert keys == [(5, LATER), (6, LATER)]
    assert calls > 20


@pytest.mark.parametrize("kept", [0, 1, 300])
def test_partly_written_table_is_ignored(folder: Path, kept: int) -> None:
    """A process was killed while it appended a table, which no checkpoint counts."""
    checkpoints = save_tables(folder, 3)
    path = folder / f"{RUN[:16]}.tables"
    size = path.stat().st_size
    checkpoints.save(state(4), RUN)
    (folder / f"00004-{RUN[:16]}.scores").unlink()
    with path.open("r+b") as file:
        file.truncate(size + kept)
    again = open_store(folder)
    assert again.list_keys() == [(3, RUN)]
    assert is_same_state(again.load((3, RUN)), state(3))
    again.save(state(4), LATER)
    assert is_same_state(open_store(folder).load((4, LATER)), state(4))


def test_full_disk_keeps_the_last_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint before the failure stays, and a retry succeeds."""
    checkpoints = save_tables(folder, 3)
    real = os.fsync
    for failing in (1, 2):  # the tables, then the scores
        calls = 0

        def full(descriptor: int, failing: int = failing) -> None:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise OSError(28, "No space left on device")
            real(descriptor)

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(UnavailableError, match=r"(tables|scores): cannot be written: No space"):
            checkpoints.save(state(4), RUN)
        monkeypatch.undo()
        assert is_same_state(open_store(folder).load((3, RUN)), state(3))
        assert open_store(folder).list_keys() == [(2, RUN), (3, RUN)]
    # The table on disk was not counted, so it is written again.
    checkpoints.save(state(4), RUN)
    assert is_same_state(open_store(folder).load((4, RUN)), state(4))


def test_files_of_killed_processes_are_removed(folder: Path) -> None:
    checkpoints = save_tables(folder, 1)
    for name in (".00001-aa.scores.1234", ".aa.tables.1234", "cc.tables", "00001-cc.json"):
        (folder / name).write_bytes(b"left")
    (folder / "a note").write_bytes(b"of its owner")
    checkpoints.save(state(2), RUN)
    run = RUN[:16]
    assert set(names(folder)) == {
        f"00001-{run}.scores",
        f"00002-{run}.scores",
        f"{run}.tables",
        "a note",
    }


def test_checkpoints_of_an_earlier_version_are_rejected(folder: Path) -> None:
    folder.mkdir()
    (folder / f"00001-{RUN[:16]}.json").write_text(
        '{"seal":"0","format":"privet-checkpoint","version":2,"job":"the job"}'
    )
    with pytest.raises(
        ModelError,
        match=r"checkpoint file version 2; this software reads version 4: use the release that "
        r"wrote it, or train again; remove .* to train from the first table",
    ):
        open_store(folder).list_keys()


def test_every_damage_is_detected(folder: Path) -> None:
    """Damaged checkpoints are skipped and reported; the other one stays if its tables do."""
    save_tables(folder, 3)
    chance = random.Random(0)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for _ in range(300):
            changed = damaged(content, chance)
            path.write_bytes(changed)
            if changed.startswith(content):  # harmless bytes after the last table
                continue
            reopened = open_store(folder)
            keys = reopened.list_keys()
            assert reopened.damaged
            assert path.suffix == ".tables" or len(keys) == 1
            for key in keys:
                assert is_same_state(reopened.load(key), state(key[0]))
        path.write_bytes(content)
    assert open_store(folder).list_keys() == [(2, RUN), (3, RUN)]


def test_checkpoints_without_their_tables_are_skipped(folder: Path) -> None:
    save_tables(folder, 3)
    (folder / f"{RUN[:16]}.tables").unlink()
    reopened = open_store(folder)
    assert reopened.list_keys() == []
    assert all("tables: No such file" in text for text in reopened.damaged.values())


def test_damaged_finished_checkpoint_is_skipped(folder: Path) -> None:
    save_tables(folder, 3).finish(3, "3 tables")
    (ended,) = folder.glob("*.ended")
    ended.write_bytes(ended.read_bytes()[:-1])
    again = open_store(folder)
    assert (again.find_finished("3 tables"), again.list_keys(), list(again.damaged)) == (
        None,
        [],
        [ended],
    )


def test_renamed_checkpoint_is_skipped(folder: Path) -> None:
    save_tables(folder, 3)
    (folder / f"00003-{RUN[:16]}.scores").rename(folder / f"00003-{LATER[:16]}.scores")
    again = open_store(folder)
    assert again.list_keys() == [(2, RUN)]
    assert "its name is not that of its content" in next(iter(again.damaged.values()))


def test_checkpoints_of_another_job_or_data_are_rejected(folder: Path) -> None:
    save_tables(folder, 1)
    for job, data, owner in (("x", "the data", "another job"), ("the job", "x", "other data")):
        with pytest.raises(ModelError, match=f"belongs to {owner}; remove"):
            CheckpointStore(folder, job, data).list_keys()


def test_missing_folder_has_no_checkpoints(folder: Path) -> None:
    assert open_store(folder).list_keys() == []


def test_finished_checkpoint_is_kept(folder: Path) -> None:
    """It stores the stopping rule, and is not finished for another rule."""
    assert save_tables(folder, 3).finish(3, "3 tables") == RUN
    assert open_store(folder).list_keys() == [(3, RUN)]
    assert open_store(folder).find_finished("3 tables") == (3, RUN)
    assert open_store(folder).find_finished("4 tables") is None
    assert open_store(folder).load((3, RUN)).part.n_tables == 3
    assert checkpoint.TABLES_VERSION == 4


def test_training_that_finishes_with_fewer_tables(folder: Path) -> None:
    """The checkpoint of the kept tables stays; without one, the folder is removed."""
    checkpoints = CheckpointStore(folder, "the job", "the data", 4)
    states = [state(tables) for tables in range(1, 6)]
    for each in states:
        checkpoints.save(each, RUN)
    assert [done for done, _ in checkpoints.list_keys()] == [2, 3, 4, 5]
    assert checkpoints.finish(3, "patience") == RUN
    found = open_store(folder).load((3, RUN))
    assert (found.scores == states[2].scores).all()
    assert (found.part.feature == states[2].part.feature).all()
    assert open_store(folder).find_finished("patience") == (3, RUN)
    without_checkpoint = CheckpointStore(folder, "the job", "the data")
    without_checkpoint.load((3, RUN))
    assert without_checkpoint.finish(1, "patience") == RUN
    assert not folder.exists()


def test_losses_are_kept(folder: Path) -> None:
    checkpoints = open_store(folder)
    checkpoints.save(replace(state(1), losses=(0.1 + 0.2,)), RUN)
    assert open_store(folder).load((1, RUN)).losses == (0.1 + 0.2,)


def test_checkpoints_before_the_resumed_one_are_kept(folder: Path) -> None:
    """Later checkpoints are removed, because other participants may not have them."""
    first = CheckpointStore(folder, "the job", "the data", 4)
    for tables in range(1, 6):
        first.save(state(tables), RUN)
    second = CheckpointStore(folder, "the job", "the data", 4)
    second.load((4, RUN))
    second.save(state(5), LATER)
    assert second.list_keys() == [(2, RUN), (3, RUN), (4, RUN), (5, LATER)]
