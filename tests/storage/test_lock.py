"""Locks allow one run at a time, across threads and processes, also after one was killed."""

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


def test_second_run_is_rejected_with_the_holder(tmp_path: Path) -> None:
    with lock_job(tmp_path, "job"):
        with (
            pytest.raises(UnavailableError, match=r"process \d+ works there for the job 'job'"),
            lock_job(tmp_path, "job"),
        ):
            pass
        with lock_job(tmp_path, "another"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_purposes_have_separate_locks(tmp_path: Path) -> None:
    """Each purpose has one lock, and a job named like a lock file does not block another."""
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


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
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


def test_never_two_holders(tmp_path: Path) -> None:
    """Each holder removes the file on release, while others are about to lock it."""
    n_inside, max_inside, n_done = 0, 0, 0

    def work() -> None:
        nonlocal n_inside, max_inside, n_done
        while n_done < 300:
            try:
                with lock_job(tmp_path, "job"):
                    n_inside += 1
                    max_inside = max(max_inside, n_inside)
                    n_done += 1
                    n_inside -= 1
            except UnavailableError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max_inside == 1
