"""Federations with a process for each role: killed, restarted, and used for predictions."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.experiments.local_federation import LocalFederation
from tests.federation.harness import NAMES, change, model_of, prepare, preprocessing_file, rows
from tests.federation.test_training import plain_model, same_splits
from tests.web.client import post


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def await_event(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """Read a process's log until an event."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        event: dict[str, Any] = json.loads(line)
        if event["event"] == kind:
            return event
    raise AssertionError(f"no event {kind}: {seen}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    """Kill a participant during training, and run the same commands again."""
    local = prepare(tmp_path_factory.mktemp("processes"), tables=40)
    options = ("--wait=30", "--log-format=json")
    running = {name: local.start_process(name, "train", *options) for name in local.member_names}
    try:
        while await_event(running["bank"], "table")["table"] < 3:
            pass
        running["bank"].kill()
        killed = time.monotonic()
        for name in ("shop", "dealer"):
            _, stderr = running[name].communicate(timeout=30)
            last = events(stderr)[-1]
            assert (running[name].returncode, last["event"], last["code"]) == (7, "error", 7)
            assert "bank" in last["text"]
            assert last["peer"] in {*local.member_names} - {name}
            if name == "dealer" and last["step"] is None:
                continue  # it had computed all tables, and only had to send them
            assert f"at step '{last['step']}'" in last["text"]
        assert time.monotonic() - killed < 10
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    ended = local.run_command("train", *options)
    assert {name: end.return_code for name, end in ended.items()} == dict.fromkeys(ended, 0), ended
    logs = {name: events(ended[name].stderr) for name in ended}
    done = logs["shop"][-1]
    assert done["event"] == "done"
    assert done["resumed_from"] >= 1
    assert json.loads(local.get_report_path("shop", "train").read_text())["tables"] == 40
    return local


def test_killed_training_gives_the_same_model(trained: LocalFederation) -> None:
    assert same_splits(model_of(trained), plain_model(trained))
    for name in NAMES:
        found = sorted(path.name for path in trained.get_part_path(name).parent.iterdir())
        # The checkpoints are for more tables later, the runs for the dashboard.
        assert found == ["rehearsal.checkpoints", "rehearsal.part", "runs"]


def test_prediction_and_inspection(trained: LocalFederation) -> None:
    ended = trained.run_command("predict")
    assert {name: end.return_code for name, end in ended.items()} == dict.fromkeys(ended, 0), ended
    lines = trained.predictions_path.read_text().splitlines()
    expected = plain_model(trained).predict(rows(2, 7).columns)
    values = [float(line.split(",")[-1]) for line in lines[1:]]
    assert values == pytest.approx(expected, abs=1e-3)
    command = [
        sys.executable,
        "-m",
        "privet",
        "inspect",
        "--json",
        str(trained.get_part_path("bank")),
    ]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603
    assert (shown["party"], len(shown["tables"])) == ("bank", 40)
    for test in (test for table in shown["tables"] for test in table):
        assert (test["threshold"] is not None) == (test["owner"] == "bank")
    assert sum(row["importance"] for row in shown["importances"]) == pytest.approx(1)


def test_service_runs_until_it_is_stopped(trained: LocalFederation) -> None:
    options = {name: ["--log-format=json"] for name in trained.member_names}
    options["shop"].append("--http=127.0.0.1:0")
    running = {}
    try:
        for name in trained.member_names:
            running[name] = trained.start_process(name, "serve", *options[name])
        port = await_event(running["shop"], "http")["port"]
        await_event(running["shop"], "serving")
        _, answer = post(port, {"ids": ["2-3"]})
        expected = plain_model(trained).predict(rows(2, 7).columns)[3]
        assert answer["probabilities"] == [pytest.approx([1 - expected, expected], abs=1e-3)]
        running["shop"].send_signal(signal.SIGTERM)
        for name, process in running.items():
            process.communicate(timeout=20)
            assert process.returncode == 0, name
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def test_kept_dealer_serves_several_sessions(trained: LocalFederation) -> None:
    """It serves every session, and survives failed ones."""
    options = ("--wait=20", "--log-format=json")
    with trained.start_process("dealer", "train", "--keep", "--log-format=json") as dealer:
        try:
            killed = trained.start_process("bank", "predict", *options)
            await_event(killed, "listening")
            killed.kill()
            killed.communicate()
            for _ in range(2):
                running = [trained.start_process(name, "predict", *options) for name in NAMES]
                for process in running:
                    _, stderr = process.communicate(timeout=60)
                    assert process.returncode == 0, stderr
                assert await_event(dealer, "done")["seconds"] >= 0
        finally:
            dealer.kill()
            dealer.communicate()


def test_offline_training(tmp_path: Path) -> None:
    """Estimate, generate and move preprocessing files, and train without a dealer."""
    local = prepare(tmp_path)
    size = ("--samples=40", "--features=3,2", "--cuts=7")
    command = [
        sys.executable,
        "-m",
        "privet",
        "estimate",
        f"--job={local.job_path}",
        *size,
        "--json",
    ]
    estimate = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603
    assert set(estimate["seconds_by_dealer"]) == {"ahead", "own", "shared"}
    assert estimate["seconds_by_dealer"]["ahead"] == estimate["seconds"]
    shown = subprocess.run(command[:-1], capture_output=True, check=True, text=True).stdout  # noqa: S603
    for mode, text in (
        ("ahead", "if correlations are dealt ahead"),
        ("own", "with a dealer on a link of its own"),
        ("shared", "with a dealer on the participants' link"),
    ):
        assert f" {estimate['seconds_by_dealer'][mode]:,.0f} s, {text}" in shown
    folder = tmp_path / "dealt"
    dealer = local.start_process("dealer", "train", f"--ahead={folder}", *size, "--log-format=json")
    _, stderr = dealer.communicate(timeout=60)
    assert dealer.returncode == 0, stderr
    files = {name: folder / f"{name}.correlations" for name in NAMES}
    size_event, *_, done_event = events(stderr)
    n_bytes = sum(path.stat().st_size for path in files.values())
    assert (size_event["event"], size_event["bytes"]) == ("room", n_bytes)
    assert (done_event["event"], done_event["bytes"]) == ("done", n_bytes)
    for name, path in files.items():
        path.replace(preprocessing_file(local, name))
    running = {name: local.start_process(name, "train", "--wait=30") for name in NAMES}
    for process in running.values():
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    assert same_splits(model_of(local), plain_model(local))
    report = json.loads(local.get_report_path("shop", "train").read_text())
    assert report["correlations"] == "ahead"
    assert report["bytes_from_dealer"] > 0
    # A restart from the first table needs a new preprocessing run.
    again = local.start_process("shop", "train", "--restart", "--log-format=json")
    _, stderr = again.communicate(timeout=30)
    last = events(stderr)[-1]
    assert (again.returncode, last["code"], last["error"]) == (8, 8, "CorrelationError")
    assert "shop.correlations: No such file" in last["text"]


def test_a_second_training_on_kept_indicators(tmp_path: Path) -> None:
    """As commands: the same model as the first time, for fewer bytes."""
    local = prepare(tmp_path)
    change(local.job_path, ("[params]", "keep_indicators = true\n\n[params]"))
    sent, models = [], []
    for _ in range(2):
        for name in NAMES:
            local.get_part_path(name).unlink(missing_ok=True)
            checkpoints = local.get_part_path(name).parent / "rehearsal.checkpoints"
            shutil.rmtree(checkpoints, ignore_errors=True)
        ended = local.run_command("train", timeout=60)
        assert {each.return_code for each in ended.values()} == {0}, ended
        reports = [json.loads(local.get_report_path(name, "train").read_text()) for name in NAMES]
        sent.append(sum(report["bytes_sent"] for report in reports))
        models.append(model_of(local))
    assert "kept from an earlier training: the indicators of bank, shop" in ended["bank"].stderr
    assert sent[1] < sent[0]
    assert same_splits(*models)
    np.testing.assert_allclose(models[0].leaf_values, models[1].leaf_values, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--ahead=d", "--features=3,2"], "ahead: takes --samples and --features"),
        (["--ahead=d", "--samples=40", "--features=3"], "features: '3' is not 2 numbers"),
        (["--ahead=d", "--samples=40", "--features=3,2"], "cuts: the job has each column's number"),
        (
            ["--ahead=d", "--samples=40", "--features=3,2", "--cuts=7", "--done=3"],
            "done: 3 of 3 tables",
        ),
        (["--samples=40"], "are for --ahead"),
    ],
)
def test_invalid_offline_preprocessing_options(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    process = prepare(tmp_path).start_process("dealer", "train", *options)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 3
    assert complaint in stderr


def test_errors_are_exit_codes_and_json(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "shop" / "train.csv").write_text("")
    process = local.start_process("shop", "train", "--log-format=json")
    _, stderr = process.communicate(timeout=30)
    last = events(stderr)[-1]
    assert (process.returncode, last["event"], last["code"]) == (4, "error", 4)
    assert last["error"] == "DataError"
    assert "the file is empty" in last["text"]
    assert (last["peer"], last["step"]) == (None, None)
    process = local.start_process("shop", "train")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 4
    assert stderr.startswith("error: ")
