"""A PostgreSQL server for tests, with a password, on a socket in a folder of its own."""

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
    """Say what is not installed that a server and its clients need, if anything."""
    try:
        import adbc_driver_postgresql.dbapi  # noqa: F401
    except ImportError:
        return "no adbc-driver-postgresql"
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "no PostgreSQL server (initdb, pg_ctl)"
    return None


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run a server, and yield the environment with which libpq finds it."""
    # A path of pytest's may be too long for a socket, and is its user's alone.
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
    """Return whom the server runs as: not root, which it refuses."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(program: str, folder: Path, *arguments: str, **owner: Any) -> None:
    found = _program(program)
    assert found is not None
    done = subprocess.run(  # noqa: S603
        [found, f"--pgdata={folder / 'data'}", *arguments],
        check=False,
        stdout=subprocess.DEVNULL,  # which a server that was started would hold open
        stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
        cwd=folder,
        **owner,
    )
    assert done.returncode == 0, (program, done.stderr)


def _program(name: str) -> str | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))
