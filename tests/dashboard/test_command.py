"""`privet ui` and `privet demo --ui` as processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privet.cli.app import app
from tests.federation.harness import prepare


def test_dashboard_serves_until_sigterm(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    command = local.make_command("bank", "ui", "--no-browser", "--log-format=json")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        event = json.loads(process.stderr.readline())
        assert event["event"] == "page"
        address, _, token = event["url"].partition("#token=")
        assert address.startswith("http://127.0.0.1:")
        assert len(token) >= 32
        with urllib.request.urlopen(address, timeout=20) as response:  # noqa: S310
            assert b"page.js" in response.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_invalid_options_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    party = f"--party={local.folder / 'bank' / 'party.toml'}"

    def invoke_error(*options: str) -> str:
        result = CliRunner().invoke(app, ["ui", *options, "--no-browser"])
        assert result.exit_code != 0
        return str(result.exception)

    assert "nowhere.toml" in invoke_error("--party=nowhere.toml")
    assert "job.toml" in invoke_error(party, f"--job={tmp_path / 'no' / 'job.toml'}")
    assert "is not HOST:PORT" in invoke_error(party, "--address=here")
    assert "TLS takes both" in invoke_error(party, "--key=some.key")
    monkeypatch.setitem(sys.modules, "privet.dashboard.server", None)
    assert "pip install 'privet[ui]'" in invoke_error(party)


def test_demo_runs_three_dashboards(tmp_path: Path) -> None:
    """The demo trains, predicts, explains predictions to the shop, and ends by Ctrl-C."""
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "privet", "demo", "--ui", "--no-browser", "--tables=2"]
    with subprocess.Popen(  # noqa: S603
        [*command, f"--folder={folder}"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            found = {line.split()[0] for line in lines if re.search(r"http://127.*#token=", line)}
            assert found == {"bank", "telecom", "shop"}
            deadline = time.monotonic() + 90
            while not (folder / "shop" / "predict.report.json").exists():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    header = (folder / "shop" / "predictions.csv").read_text().splitlines()[0]
    assert "contribution of" in header
