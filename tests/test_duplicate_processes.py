"""Duplicate processes: the second is rejected silently, and the first continues."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from privet.filesystem import LockPurpose, lock_job
from tests.federation.harness import prepare, run
from tests.federation.test_three_dealers import played
from tests.test_failing_processes import TIMEOUT_SECONDS, others, started, waiting
from tests.test_processes import events

QUIET_SECONDS = 3.0
"""Longer than the delivery of a failure notice."""


def check_busy(process: subprocess.Popen[str], complaint: str) -> None:
    """Check that a process was rejected before any work."""
    _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 6, stderr
    (only,) = events(stderr)
    assert (only["event"], only["error"]) == ("error", "BusyError")
    assert complaint in only["text"]


@pytest.mark.parametrize("delay", [0.0, 0.7, 1.5])
def test_second_training_does_not_affect_the_first(tmp_path: Path, delay: float) -> None:
    """At any time: while the first starts, reads, waits for peers or trains."""
    local = prepare(tmp_path, tables=60)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(started(local, name, "train", "--log-format=json"))
            for name in ("dealer", "shop", "bank")
        }
        time.sleep(delay)
        again = stack.enter_context(started(local, "bank", "train", "--log-format=json"))
        banks = sorted((running.pop("bank"), again), key=lambda bank: bank.wait(TIMEOUT_SECONDS))
        for process in (banks[0], *running.values()):
            _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0, stderr
        check_busy(banks[1], f"process {banks[0].pid} works there for the job 'rehearsal'")


@pytest.mark.parametrize(
    ("verb", "purpose", "complaint"),
    [
        ("train", "train", "works there for the job"),
        ("predict", "predict", "predicts or exports there for the job"),
    ],
)
def test_refused_process_sends_no_failure_notice(
    tmp_path: Path, verb: str, purpose: LockPurpose, complaint: str
) -> None:
    """While the first still reads its table, the second sends no notice in its name."""
    local = prepare(tmp_path, tables=1)
    if verb != "train":
        run(local, "train").checked()
    with waiting(local, verb, *others(local, "bank")) as running:
        with lock_job(tmp_path / "bank" / "models", "rehearsal", purpose):
            with started(local, "bank", verb, "--log-format=json") as second:
                check_busy(second, complaint)
            time.sleep(QUIET_SECONDS)
            assert [process.poll() for process in running.values()] == [None, None]
        with started(local, "bank", verb, "--log-format=json") as first:
            for process in (first, *running.values()):
                _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
                assert process.returncode == 0, stderr


def test_refused_participant_does_not_start_its_dealer(tmp_path: Path) -> None:
    local = played(tmp_path)
    with (
        lock_job(tmp_path / "bank" / "models", "rehearsal"),
        started(local, "bank", "train", "--log-format=json") as second,
    ):
        check_busy(second, "works there for the job")
    assert not (tmp_path / "bank" / "models" / "runs").exists()


def test_other_folder_errors_send_a_failure_notice(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "bank" / "models").write_text("a file where the folder should be")
    with (
        waiting(local, "train", "shop", "dealer") as running,
        started(local, "bank", "train") as failing,
    ):
        _, stderr = failing.communicate(timeout=TIMEOUT_SECONDS)
        assert failing.returncode == 6
        assert "told shop, dealer that we cannot take part" in stderr
        for process in running.values():
            process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 7


def test_prediction_without_a_lock(tmp_path: Path) -> None:
    """A prediction does not require write access to the folder."""
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    part = local.get_part_path("bank").rename(tmp_path / "bank" / "part")
    models = tmp_path / "bank" / "models"
    models.rename(tmp_path / "bank" / "old")
    models.write_text("a file where the folder should be")
    with (
        waiting(local, "predict", "shop", "dealer") as running,
        started(local, "bank", "predict", f"--model={part}") as unlocked,
    ):
        for process in (unlocked, *running.values()):
            _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0, stderr
            if process is unlocked:
                assert "warning: nothing keeps another process from doing the same" in stderr
