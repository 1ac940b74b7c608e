"""The command `privet align`, with a dealer that runs with `--keep`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from privet.config.job import Job
from privet.experiments.local_federation import LocalFederation
from privet.runtime.run import DEALER_NAME
from tests.federation.harness import NAMES, align, change, model_of, prepare
from tests.federation.test_alignment import plain_model
from tests.federation.test_training import same_splits
from tests.test_processes import await_event, events


def privet(local: LocalFederation, verb: str, *options: str) -> dict[str, tuple[int, str]]:
    """Run a command at all participants; return the exit codes and logs."""
    running = {}
    for name in NAMES:
        folder = local.folder / name
        command = [sys.executable, "-m", "privet", verb, f"--party={folder / 'party.toml'}"]
        command += [f"--job={local.job_path}", "--log-format=json", "--wait=30"]
        running[name] = subprocess.Popen(  # noqa: S603
            [*command, *(option.replace("HERE", str(folder)) for option in options)],
            stderr=subprocess.PIPE,
            text=True,
        )
    ended = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    return {name: (running[name].returncode, stderr) for name, stderr in ended.items()}


def test_alignment_and_training(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    align(local)
    dealer = local.start_process(DEALER_NAME, "train", "--keep", "--log-format=json")
    try:
        found = privet(local, "align", "--out=HERE/in.csv", "--report=HERE/report.json")
        assert {code for code, _ in found.values()} == {0}, found
        ids = {name: (tmp_path / name / "in.csv").read_text().splitlines() for name in NAMES}
        assert ids["bank"] == ids["shop"]
        assert ids["bank"][0] == "id"
        assert len(ids["bank"]) == 1 + 36
        report = json.loads((tmp_path / "bank" / "report.json").read_text())
        assert (report["rows"], report["common"], report["number"]) == (41, 36, 1)
        log = events(found["bank"][1])
        assert "revealed: which of its rows all have to bank: 41" in [e["text"] for e in log]
        assert log[-1]["event"] == "done"
        assert "36 of your 41 rows are common to all" in log[-1]["text"]
        assert await_event(dealer, "aligned")["common"] == 36
        found = privet(local, "train")
        assert {code for code, _ in found.values()} == {0}, found
        assert same_splits(model_of(local), plain_model(local))
    finally:
        dealer.kill()
        dealer.communicate()


def test_kept_dealer_survives_too_few_common_rows(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    align(local)
    path = local.folder / "bank" / "train.csv"
    whole = path.read_text()
    path.write_text(whole.replace("\n1-", "\none-"))
    dealer = local.start_process(DEALER_NAME, "train", "--keep", "--log-format=json")
    try:
        found = privet(local, "align")
        for code, stderr in found.values():
            assert (code, events(stderr)[-1]["code"]) == (4, 4)
            assert events(stderr)[-1]["text"].startswith("ids: 0 rows are common to all, and the")
        assert "0 rows are common to all" in await_event(dealer, "failed")["text"]
        path.write_text(whole)
        found = privet(local, "align")
        assert {code for code, _ in found.values()} == {0}, found
    finally:
        dealer.kill()
        dealer.communicate()


def test_exit_codes(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    assert {code for code, _ in privet(local, "align").values()} == {3}  # does not align
    align(local)
    change(local.job_path, ("[ids]\n", '[ids]\nparts = ["name", "born"]\n'))
    assert Job.read(local.job_path).ids.parts == ["name", "born"]
    assert {code for code, _ in privet(local, "align").values()} == {3}  # other columns
    change(local.job_path, ('parts = ["name", "born"]\n', ""))
    for name in NAMES:
        change(local.folder / name / "train.csv", ("\n1-", "\n1-1,1,1,1\n1-"))
    assert {code for code, _ in privet(local, "align").values()} == {4}  # the same id twice
