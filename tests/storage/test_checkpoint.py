"""Checkpoints: tables are added, stages written whole, and whatever happens between is survived."""

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
    """Return what a participant has after some tables; the first ones are always the same."""
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


def opened(folder: Path) -> CheckpointStore:
    """Return the checkpoints as a new process finds them, of which two stages are kept."""
    return CheckpointStore(folder, "the job", "the data", max_checkpoints=2)


def written(folder: Path, tables: int = 3, run: str = RUN) -> CheckpointStore:
    """Return checkpoints after some tables."""
    checkpoints = opened(folder)
    for number in range(1, tables + 1):
        checkpoints.save(state(number), run)
    return checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(one: TrainingState, other: TrainingState) -> bool:
    arrays = ("feature", "bucket", "threshold", "leaf_shares")
    return np.array_equal(one.scores, other.scores) and all(
        np.array_equal(getattr(one.part, n), getattr(other.part, n), equal_nan=n == "threshold")
        for n in arrays
    )


def test_two_stages_are_kept(folder: Path) -> None:
    written(folder, 5)
    run = RUN[:16]
    assert names(folder) == [f"00004-{run}.scores", f"00005-{run}.scores", f"{run}.tables"]
    assert opened(folder).list_keys() == [(4, RUN), (5, RUN)]
    for tables in (4, 5):
        found = opened(folder).load((tables, RUN))
        assert same(found, state(tables))
        assert found.scores.dtype == np.uint64
        assert found.part.leaf_shares.dtype == np.uint32
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_tables_are_added_to_those_that_are_there(folder: Path) -> None:
    checkpoints = written(folder, 1)
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


def test_what_is_expected_to_be_written_is_enough(folder: Path) -> None:
    written(folder, 6)
    scores, tables = bound_score_and_table_bytes(
        SAMPLES, Params(task="regression", tables=6, depth=2)
    )
    assert max(path.stat().st_size for path in folder.glob("*.scores")) <= scores
    assert (folder / f"{RUN[:16]}.tables").stat().st_size <= tables


def test_a_later_run_goes_on_from_either_stage(folder: Path) -> None:
    for tables in (4, 5):
        shutil.rmtree(folder, ignore_errors=True)
        written(folder, 5)
        later = opened(folder)
        assert same(later.load((tables, RUN)), state(tables))
        later.save(state(tables + 1), LATER)
        # The stage that it began from stays, with the tables that it stands for.
        assert opened(folder).list_keys() == [(tables, RUN), (tables + 1, LATER)]
        assert same(opened(folder).load((tables, RUN)), state(tables))
        later.save(state(tables + 2), LATER)
        assert opened(folder).list_keys() == [(tables + 1, LATER), (tables + 2, LATER)]
        assert same(opened(folder).load((tables + 2, LATER)), state(tables + 2))
        assert len(names(folder)) == 3


class KilledError(BaseException):
    """Ends a process at a moment of our choosing."""


class Killer:
    """Lets a number of system calls happen, and none after them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        self.left = calls
        for name in ("open", "fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KilledError
        return function(*arguments, **options)


def test_one_killed_at_any_moment_can_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There always is a whole stage, and it is the one that it began from or a later one."""
    calls, ended = 0, False
    while not ended:
        shutil.rmtree(folder, ignore_errors=True)
        written(folder, 3)
        later = opened(folder)
        later.load((3, RUN))
        with monkeypatch.context() as patched:
            Killer(patched, calls)
            try:
                for number in (4, 5, 6):
                    later.save(state(number), LATER)
                ended = True
            except KilledError:
                calls += 1
        stages = opened(folder).list_keys()
        assert max(stages) >= (3, RUN)
        assert all(same(opened(folder).load(stage), state(stage[0])) for stage in stages)
    assert stages == [(5, LATER), (6, LATER)]
    assert calls > 20


@pytest.mark.parametrize("kept", [0, 1, 300])
def test_a_table_that_was_cut_short_is_left_out(folder: Path, kept: int) -> None:
    """The process was killed while it added a table: its stages do not count it."""
    checkpoints = written(folder, 3)
    path = folder / f"{RUN[:16]}.tables"
    size = path.stat().st_size
    checkpoints.save(state(4), RUN)
    (folder / f"00004-{RUN[:16]}.scores").unlink()
    with path.open("r+b") as file:
        file.truncate(size + kept)
    again = opened(folder)
    assert again.list_keys() == [(3, RUN)]
    assert same(again.load((3, RUN)), state(3))
    again.save(state(4), LATER)
    assert same(opened(folder).load((4, LATER)), state(4))


def test_a_disk_that_fills_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever could not be written, the stage before is there, and trying again succeeds."""
    checkpoints = written(folder, 3)
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
        assert same(opened(folder).load((3, RUN)), state(3))
        assert opened(folder).list_keys() == [(2, RUN), (3, RUN)]
    # Of the table that did get on disk, nothing was counted: it is written again.
    checkpoints.save(state(4), RUN)
    assert same(opened(folder).load((4, RUN)), state(4))


def test_what_killed_processes_left_is_removed(folder: Path) -> None:
    checkpoints = written(folder, 1)
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


def test_stages_of_the_version_before_are_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / f"00001-{RUN[:16]}.json").write_text(
        '{"seal":"0","format":"privet-checkpoint","version":2,"job":"the job"}'
    )
    with pytest.raises(
        ModelError,
        match=r"checkpoint file version 2; this software reads version 4: use the release that "
        r"wrote it, or train again; remove .* to train from the first table",
    ):
        opened(folder).list_keys()


def test_every_damage_is_noticed(folder: Path) -> None:
    """What is damaged is left out, and said; the other stage stays, unless both are."""
    written(folder, 3)
    chance = random.Random(0)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for _ in range(300):
            changed = damaged(content, chance)
            path.write_bytes(changed)
            if changed.startswith(content):  # behind the last table: it does no harm there
                continue
            again = opened(folder)
            found = again.list_keys()
            assert again.damaged
            assert path.suffix == ".tables" or len(found) == 1
            for stage in found:
                assert same(again.load(stage), state(stage[0]))
        path.write_bytes(content)
    assert opened(folder).list_keys() == [(2, RUN), (3, RUN)]


def test_stages_whose_tables_are_gone(folder: Path) -> None:
    written(folder, 3)
    (folder / f"{RUN[:16]}.tables").unlink()
    again = opened(folder)
    assert again.list_keys() == []
    assert all("tables: No such file" in text for text in again.damaged.values())


def test_a_damaged_end_is_no_end(folder: Path) -> None:
    written(folder, 3).finish(3, "3 tables")
    (ended,) = folder.glob("*.ended")
    ended.write_bytes(ended.read_bytes()[:-1])
    again = opened(folder)
    assert (again.find_finished("3 tables"), again.list_keys(), list(again.damaged)) == (
        None,
        [],
        [ended],
    )


def test_a_stage_under_another_name(folder: Path) -> None:
    written(folder, 3)
    (folder / f"00003-{RUN[:16]}.scores").rename(folder / f"00003-{LATER[:16]}.scores")
    again = opened(folder)
    assert again.list_keys() == [(2, RUN)]
    assert "its name is not that of its content" in next(iter(again.damaged.values()))


def test_stages_of_somebody_else(folder: Path) -> None:
    written(folder, 1)
    for job, data, whose in (("x", "the data", "another job"), ("the job", "x", "other data")):
        with pytest.raises(ModelError, match=f"belongs to {whose}; remove"):
            CheckpointStore(folder, job, data).list_keys()


def test_no_folder_is_no_stage(folder: Path) -> None:
    assert opened(folder).list_keys() == []


def test_the_stage_of_an_ended_training_stays(folder: Path) -> None:
    """With what its end depended on: of another length, it has not ended."""
    assert written(folder, 3).finish(3, "3 tables") == RUN
    assert opened(folder).list_keys() == [(3, RUN)]
    assert opened(folder).find_finished("3 tables") == (3, RUN)
    assert opened(folder).find_finished("4 tables") is None
    assert opened(folder).load((3, RUN)).part.n_tables == 3
    assert checkpoint.TABLES_VERSION == 4


def test_a_training_that_ends_with_fewer_tables(folder: Path) -> None:
    """Scores of the tables that were kept are there; without them, nothing stays."""
    checkpoints = CheckpointStore(folder, "the job", "the data", 4)
    states = [state(tables) for tables in range(1, 6)]
    for each in states:
        checkpoints.save(each, RUN)
    assert [done for done, _ in checkpoints.list_keys()] == [2, 3, 4, 5]
    assert checkpoints.finish(3, "patience") == RUN
    found = opened(folder).load((3, RUN))
    assert (found.scores == states[2].scores).all()
    assert (found.part.feature == states[2].part.feature).all()
    assert opened(folder).find_finished("patience") == (3, RUN)
    gone = CheckpointStore(folder, "the job", "the data")
    gone.load((3, RUN))
    assert gone.finish(1, "patience") == RUN
    assert not folder.exists()


def test_losses_stay(folder: Path) -> None:
    checkpoints = opened(folder)
    checkpoints.save(replace(state(1), losses=(0.1 + 0.2,)), RUN)
    assert opened(folder).load((1, RUN)).losses == (0.1 + 0.2,)


def test_stages_before_the_one_to_go_on_from_stay(folder: Path) -> None:
    """Those after it do not: others lack them."""
    first = CheckpointStore(folder, "the job", "the data", 4)
    for tables in range(1, 6):
        first.save(state(tables), RUN)
    second = CheckpointStore(folder, "the job", "the data", 4)
    second.load((4, RUN))
    second.save(state(5), LATER)
    assert second.list_keys() == [(2, RUN), (3, RUN), (4, RUN), (5, LATER)]
