"""Processes of workers, on machines that are not like most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from privet.federation.cluster.executors import ProcessExecutor
from privet.federation.cluster.pool import load_no_rows
from privet.runtime.local import launcher
from privet.runtime.local.launcher import is_fork_server_private

STARTED = """
from privet.federation.cluster.executors import ProcessExecutor
from privet.federation.cluster.pool import load_no_rows

with ProcessExecutor(1, load_no_rows) as engine:
    print(engine._context.get_start_method())
    engine.submit(["no summons, so there is nothing to do"], load_no_rows)
    (process,) = engine._processes
    process.join(60)
    print(process.exitcode)
"""


@pytest.mark.parametrize(("long", "method"), [(False, "forkserver"), (True, "spawn")])
def test_a_long_path_of_the_folder_for_temporary_files(
    tmp_path: Path, long: bool, method: str
) -> None:
    """A socket's path has about a hundred characters; processes are there without one."""
    folder = tmp_path / ("x" * 100) if long else Path("/tmp")  # noqa: S108
    folder.mkdir(exist_ok=True)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", STARTED],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=120,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == ([method, "0"], "")


@pytest.mark.parametrize(
    ("count", "where"), [(1, "1 process"), (2, "2 processes"), (8, "3 processes")]
)
def test_there_are_no_more_processes_than_workers(count: int, where: str) -> None:
    """And what is said of them is true."""
    with ProcessExecutor(count, load_no_rows) as engine:
        engine.submit(cast("Any", ["nothing to do"] * 3), load_no_rows)
        assert engine.description == f"{where} on this machine"
        assert len(engine._processes) == int(where[0])


def test_versions_whose_server_others_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = [(3, 10, 0), (3, 10, 8), (3, 11, 0)]
    private = [(3, 10, 9), (3, 10, 14), (3, 11, 1), (3, 12, 0), (3, 14, 2)]
    assert [each for each in open_to_all + private if is_fork_server_private(each)] == private
    monkeypatch.setattr(launcher, "is_fork_server_private", lambda _: False)
    with ProcessExecutor(1, load_no_rows) as engine:
        assert engine._context.get_start_method() == "spawn"
