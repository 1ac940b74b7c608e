"""The systemd units in `deploy`: their commands exist, and their exit codes match."""

from __future__ import annotations

import configparser
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.federation.harness import change, prepare
from tests.test_processes import await_event

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def read_unit(path: Path) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(path)
    return found


def make_command(path: Path, job: str) -> list[str]:
    program, *options = shlex.split(read_unit(path)["Service"]["ExecStart"].replace("%i", job))
    assert program.endswith("/bin/privet")
    return [sys.executable, "-m", "privet", *options]


def test_every_role_has_a_unit() -> None:
    assert {path.name.split("@")[0] for path in UNITS} == {
        "privet-check",
        "privet-check-dealer",
        "privet-dealer",
        "privet-serve",
        "privet-train",
    }


@pytest.mark.parametrize("path", DEPLOY.glob("*.timer"), ids=lambda path: path.stem)
def test_timers_have_services(path: Path) -> None:
    assert path.with_suffix(".service") in UNITS


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_have_restricted_permissions(path: Path) -> None:
    service = read_unit(path)["Service"]
    assert service["User"] == "privet"
    assert (service["UMask"], service["LimitCORE"]) == ("0077", "0")
    assert service["ReadWritePaths"] == service["WorkingDirectory"] == "/var/lib/privet"


def test_units_run_a_federation(tmp_path: Path) -> None:
    """Train and serve with the units' command lines; SIGTERM ends the services."""
    local = prepare(tmp_path, tables=1)
    change(
        tmp_path / "shop" / "party.toml",
        ("[data]", '[endpoint]\naddress = "127.0.0.1:0"\n\n[data]'),
    )
    for name in local.member_names:
        (tmp_path / name / "rehearsal.toml").write_bytes(local.job_path.read_bytes())
    running = {}

    def start(name: str, command_name: str) -> None:
        line = make_command(DEPLOY / f"privet-{command_name}@.service", "rehearsal")
        running[name] = subprocess.Popen(  # noqa: S603
            line, cwd=tmp_path / name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def assert_success() -> None:
        for name in local.party_names:
            _, output = running[name].communicate(timeout=60)
            assert running[name].returncode == 0, output
        await_event(running["dealer"], "done")

    for name in local.member_names:
        start(name, "dealer" if name in local.dealer_names else "train")
    try:
        assert_success()
        for name in local.party_names:
            start(name, "serve")
        await_event(running["shop"], "serving")
        running["shop"].send_signal(signal.SIGTERM)
        assert_success()
        running["dealer"].send_signal(signal.SIGTERM)
        running["dealer"].communicate(timeout=30)
        service = read_unit(DEPLOY / "privet-dealer@.service")["Service"]
        assert str(running["dealer"].returncode) == service["SuccessExitStatus"]
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    dealer_check = make_command(DEPLOY / "privet-check-dealer@.service", "rehearsal")
    assert subprocess.run(dealer_check, cwd=tmp_path / "dealer", check=False).returncode == 0  # noqa: S603
    (tmp_path / "dealer" / "audit.log").unlink()
    (tmp_path / "dealer" / "audit.log").mkdir()
    assert subprocess.run(dealer_check, cwd=tmp_path / "dealer", check=False).returncode == 6  # noqa: S603
    party_check = make_command(DEPLOY / "privet-check@.service", "rehearsal")
    assert subprocess.run(party_check, cwd=tmp_path / "shop", check=False).returncode == 0  # noqa: S603
    change(tmp_path / "shop" / "train.csv", ("1-3,", "1-2,"))
    failed = subprocess.run(party_check, cwd=tmp_path / "shop", check=False)  # noqa: S603
    train = read_unit(DEPLOY / "privet-train@.service")["Service"]
    assert str(failed.returncode) in train["RestartPreventExitStatus"].split()
