"""One who is started twice: the second is refused, tells nobody, and the first goes on."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from privet.filesystem import LockPurpose, lock_job
from tests.federation.harness import prepare, run
from tests.federation.test_three_dealers import played
from tests.test_failing_processes import PATIENCE, others, started, waiting
from tests.test_processes import events

QUIET_SECONDS = 3.0
"""Longer than those who say goodbye take to be heard."""


def refused(process: subprocess.Popen[str], complaint: str) -> None:
    """See that a process was refused before it did anything."""
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 6, said
    (only,) = events(said)
    assert (only["event"], only["error"]) == ("error", "BusyError")
    assert complaint in only["text"]


@pytest.mark.parametrize("delay", [0.0, 0.7, 1.5])
def test_a_second_training_does_nothing_to_the_first(tmp_path: Path, delay: float) -> None:
    """Whenever it comes: while the first starts, reads, waits for others or trains with them."""
    local = prepare(tmp_path, tables=60)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(started(local, name, "train", "--log-format=json"))
            for name in ("dealer", "shop", "bank")
        }
        time.sleep(delay)
        again = stack.enter_context(started(local, "bank", "train", "--log-format=json"))
        banks = sorted((running.pop("bank"), again), key=lambda bank: bank.wait(PATIENCE))
        for process in (banks[0], *running.values()):
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, said
        refused(banks[1], f"process {banks[0].pid} works there for the job 'rehearsal'")


@pytest.mark.parametrize(
    ("verb", "doing", "complaint"),
    [
        ("train", "train", "works there for the job"),
        ("predict", "predict", "predicts or exports there for the job"),
    ],
)
def test_one_who_has_not_come_yet_is_waited_for(
    tmp_path: Path, verb: str, doing: LockPurpose, complaint: str
) -> None:
    """The first is still reading its table, and the second says nothing in its name."""
    local = prepare(tmp_path, tables=1)
    if verb != "train":
        run(local, "train").checked()
    with waiting(local, verb, *others(local, "bank")) as running:
        with lock_job(tmp_path / "bank" / "models", "rehearsal", doing):
            with started(local, "bank", verb, "--log-format=json") as second:
                refused(second, complaint)
            time.sleep(QUIET_SECONDS)
            assert [process.poll() for process in running.values()] == [None, None]
        with started(local, "bank", verb, "--log-format=json") as first:
            for process in (first, *running.values()):
                _, said = process.communicate(timeout=PATIENCE)
                assert process.returncode == 0, said


def test_the_dealer_that_it_would_play_is_not_started(tmp_path: Path) -> None:
    local = played(tmp_path)
    with (
        lock_job(tmp_path / "bank" / "models", "rehearsal"),
        started(local, "bank", "train", "--log-format=json") as second,
    ):
        refused(second, "works there for the job")
    assert not (tmp_path / "bank" / "models" / "runs").exists()


def test_what_else_keeps_a_training_from_its_folder_is_told(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "bank" / "models").write_text("a file where the folder should be")
    with (
        waiting(local, "train", "shop", "dealer") as running,
        started(local, "bank", "train") as failing,
    ):
        _, said = failing.communicate(timeout=PATIENCE)
        assert failing.returncode == 6
        assert "told shop, dealer that we cannot take part" in said
        for process in running.values():
            process.communicate(timeout=PATIENCE)
            assert process.returncode == 7


def test_a_prediction_does_without_a_lock(tmp_path: Path) -> None:
    """It need not write into the folder, which may be somebody else's."""
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    part = local.get_part_path("bank").rename(tmp_path / "bank" / "part")
    models = tmp_path / "bank" / "models"
    models.rename(tmp_path / "bank" / "old")
    models.write_text("a file where the folder should be")
    with (
        waiting(local, "predict", "shop", "dealer") as running,
        started(local, "bank", "predict", f"--model={part}") as alone,
    ):
        for process in (alone, *running.values()):
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, said
            if process is alone:
                assert "warning: nothing keeps another process from doing the same" in said
