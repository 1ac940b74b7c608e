"""One run at a time: threads, processes, and such as were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from privet.errors import BusyError, UnavailableError
from privet.filesystem import find_lock_holder, lock_job

HOLD = """
import sys
from privet.filesystem import lock_job

with lock_job(sys.argv[1], "job"):
    print("locked", flush=True)
    input()
"""


def test_a_second_one_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with lock_job(tmp_path, "job"):
        with (
            pytest.raises(UnavailableError, match=r"process \d+ works there for the job 'job'"),
            lock_job(tmp_path, "job"),
        ):
            pass
        with lock_job(tmp_path, "another"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_service_beside_a_training_and_a_prediction(tmp_path: Path) -> None:
    """Of each there is one; nor is a job in another's way that is called as its lock is."""
    with (
        lock_job(tmp_path, "job"),
        lock_job(tmp_path, "job", "serve"),
        lock_job(tmp_path, "job", "predict"),
        lock_job(tmp_path, "job.serve"),
    ):
        with (
            pytest.raises(BusyError, match=r"process \d+ serves there for the job 'job': wait"),
            lock_job(tmp_path, "job", "serve"),
        ):
            pass
        assert find_lock_holder(tmp_path, "job", "serve") == str(os.getpid())
        assert find_lock_holder(tmp_path, "another", "serve") is None
    assert find_lock_holder(tmp_path, "job", "serve") is None
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_killed_locks_nobody_out(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with (
            pytest.raises(UnavailableError, match=f"process {process.pid} "),
            lock_job(tmp_path, "job"),
        ):
            pass
        process.kill()
    assert (tmp_path / ".job.lock").exists()
    assert find_lock_holder(tmp_path, "job", "train") is None
    with lock_job(tmp_path, "job"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_never_two_at_once(tmp_path: Path) -> None:
    """Though each removes the file when it is done, and others are about to lock it."""
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        while done < 300:
            try:
                with lock_job(tmp_path, "job"):
                    inside += 1
                    most = max(most, inside)
                    done += 1
                    inside -= 1
            except UnavailableError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
