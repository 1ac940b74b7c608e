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


def test_a_page_until_it_is_stopped(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    command = local.make_command("bank", "ui", "--no-browser", "--log-format=json")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())
        assert told["event"] == "page"
        address, _, token = told["url"].partition("#token=")
        assert address.startswith("http://127.0.0.1:")
        assert len(token) >= 32
        with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310
            assert b"page.js" in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    party = f"--party={local.folder / 'bank' / 'party.toml'}"

    def complaint(*options: str) -> str:
        found = CliRunner().invoke(app, ["ui", *options, "--no-browser"])
        assert found.exit_code != 0
        return str(found.exception)

    assert "nowhere.toml" in complaint("--party=nowhere.toml")
    assert "job.toml" in complaint(party, f"--job={tmp_path / 'no' / 'job.toml'}")
    assert "is not HOST:PORT" in complaint(party, "--address=here")
    assert "TLS takes both" in complaint(party, "--key=some.key")
    monkeypatch.setitem(sys.modules, "privet.dashboard.server", None)
    assert "pip install 'privet[ui]'" in complaint(party)


def test_three_pages_of_a_demonstration(tmp_path: Path) -> None:
    """All is trained and predicted, explained to the shop, and ended by Ctrl-C."""
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
            until = time.monotonic() + 90
            while not (folder / "shop" / "predict.report.json").exists():
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    head = (folder / "shop" / "predictions.csv").read_text().splitlines()[0]
    assert "contribution of" in head
