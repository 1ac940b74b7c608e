"""Process executors: start methods and process counts."""

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

SCRIPT = """
from privet.federation.cluster.executors import ProcessExecutor
from privet.federation.cluster.pool import load_no_rows

with ProcessExecutor(1, load_no_rows) as executor:
    print(executor._context.get_start_method())
    executor.submit(["nothing to do"], load_no_rows)
    (process,) = executor._processes
    process.join(60)
    print(process.exitcode)
"""


@pytest.mark.parametrize(("long", "method"), [(False, "forkserver"), (True, "spawn")])
def test_fork_server_is_not_used_with_a_long_temporary_path(
    tmp_path: Path, long: bool, method: str
) -> None:
    """A socket path is limited to about a hundred characters; a longer one needs spawn."""
    folder = tmp_path / ("x" * 100) if long else Path("/tmp")  # noqa: S108
    folder.mkdir(exist_ok=True)
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=120,
        check=False,
    )
    assert (result.stdout.split(), result.stderr) == ([method, "0"], "")


@pytest.mark.parametrize(
    ("count", "expected"), [(1, "1 process"), (2, "2 processes"), (8, "3 processes")]
)
def test_there_are_no_more_processes_than_workers(count: int, expected: str) -> None:
    """The description counts the processes."""
    with ProcessExecutor(count, load_no_rows) as executor:
        executor.submit(cast("Any", ["nothing to do"] * 3), load_no_rows)
        assert executor.description == f"{expected} on this machine"
        assert len(executor._processes) == int(expected[0])


def test_python_versions_with_a_public_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = [(3, 10, 0), (3, 10, 8), (3, 11, 0)]
    private = [(3, 10, 9), (3, 10, 14), (3, 11, 1), (3, 12, 0), (3, 14, 2)]
    assert [each for each in open_to_all + private if is_fork_server_private(each)] == private
    monkeypatch.setattr(launcher, "is_fork_server_private", lambda _: False)
    with ProcessExecutor(1, load_no_rows) as executor:
        assert executor._context.get_start_method() == "spawn"
