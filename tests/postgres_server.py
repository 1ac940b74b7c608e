"""A PostgreSQL server for tests, with a password, on a socket in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PASSWORD = "hush-hush"  # noqa: S105


def missing() -> str | None:
    """Return a missing requirement of the server or its clients; None if there is none."""
    try:
        import adbc_driver_postgresql.dbapi  # noqa: F401
    except ImportError:
        return "no adbc-driver-postgresql"
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "no PostgreSQL server (initdb, pg_ctl)"
    return None


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run a server, and yield the environment variables for libpq."""
    # A temporary path of pytest can be too long for a socket, and only its user can access it.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        (folder / "password").write_text(PASSWORD)
        owner = _owner()
        if owner:
            for path in (folder, folder / "password"):
                os.chown(path, owner["user"], owner["group"])
        _run("initdb", folder, "--username=owner", "--auth=scram-sha-256", "--encoding=UTF8",
             "--locale=C", "--no-sync", f"--pwfile={folder / 'password'}", **owner)  # fmt: skip
        settings = f"-c listen_addresses='' -c fsync=off -c unix_socket_directories='{folder}'"
        _run(
            "pg_ctl", folder, "start", "--wait", f"--log={folder / 'log'}", "-o", settings, **owner
        )
        try:
            yield {
                "PGHOST": str(folder),
                "PGUSER": "owner",
                "PGDATABASE": "postgres",
                "PGPASSWORD": PASSWORD,
            }
        finally:
            _run("pg_ctl", folder, "stop", "--mode=immediate", **owner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> dict[str, Any]:
    """Return the user of the server process, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(program: str, folder: Path, *arguments: str, **owner: Any) -> None:
    executable = _program(program)
    assert executable is not None
    result = subprocess.run(  # noqa: S603
        [executable, f"--pgdata={folder / 'data'}", *arguments],
        check=False,
        stdout=subprocess.DEVNULL,  # a started server would keep a pipe open
        stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
        cwd=folder,
        **owner,
    )
    assert result.returncode == 0, (program, result.stderr)


def _program(name: str) -> str | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))
