"""Processes of workers, on machines that are not like most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from privet.federation.cluster.executors import Processes
from privet.federation.cluster.pool import no_rows
from privet.runtime.local import launcher
from privet.runtime.local.launcher import is_private

STARTED = """
from privet.federation.cluster.executors import Processes
from privet.federation.cluster.pool import no_rows

with Processes(1, no_rows) as engine:
    print(engine._context.get_start_method())
    engine.place(["no summons, so there is nothing to do"], no_rows)
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
    with Processes(count, no_rows) as engine:
        engine.place(cast("Any", ["nothing to do"] * 3), no_rows)
        assert engine.where == f"{where} on this machine"
        assert len(engine._processes) == int(where[0])


def test_versions_whose_server_others_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = [(3, 10, 0), (3, 10, 8), (3, 11, 0)]
    private = [(3, 10, 9), (3, 10, 14), (3, 11, 1), (3, 12, 0), (3, 14, 2)]
    assert [each for each in open_to_all + private if is_private(each)] == private
    monkeypatch.setattr(launcher, "is_private", lambda _: False)
    with Processes(1, no_rows) as engine:
        assert engine._context.get_start_method() == "spawn"
