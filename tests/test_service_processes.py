"""Services with a process for each role: killed, stopped and restarted."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from privet.boosting.model import Model
from privet.config.job import Job
from privet.experiments.local_federation import LocalFederation, find_free_ports
from privet.storage.journal import AuditLog
from privet.storage.model_part import load_part
from tests.federation.harness import align, change, model_of, prepare, rows, run
from tests.federation.test_alignment import count_alignments
from tests.federation.test_three_dealers import played
from tests.web.client import get, post, send_request

RECONNECT_SECONDS = 10.0
"""Limit of recovery, without the time to start Python."""


class Running:
    """All roles of a service as processes, with their events so far."""

    def __init__(
        self, local: LocalFederation, roles: Sequence[str], options: dict[str, list[str]]
    ) -> None:
        self.local = local
        self.roles = roles
        self.options = options
        self.port = 0
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {name: [] for name in local.member_names}

    def begin(self) -> None:
        for name in self.roles:
            self.start(name)
        self.port = self.await_event(self.local.recipient, "http")["port"]
        self.await_event(self.local.recipient, "serving")

    def start(self, name: str) -> None:
        options = ["--log-format=json", *self.options.get(name, [])]
        if name == self.local.recipient:
            options.append(f"--http=127.0.0.1:{self.port}")
        command = self.local.make_command(name, "serve", *options)
        command = [part.replace("new.csv", "train.csv") for part in command]
        process = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.processes[name] = process
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr as stderr:
            for line in stderr:
                self.events[name].append(json.loads(line))

    def await_event(self, name: str, kind: str, number: int = 1) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = [event for event in self.events[name] if event["event"] == kind]
            if len(found) >= number:
                return found[number - 1]
            time.sleep(0.02)
        raise AssertionError(f"no event {kind} of {name}: {self.events[name]}")

    def start_again(self, name: str) -> float:
        """Restart a process; return the seconds from listening to ready."""
        before = sum(event["event"] == "listening" for event in self.events[name])
        self.start(name)
        self.await_event(name, "listening", before + 1)
        return self.await_ready()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.processes[name].send_signal(number)
        self.processes[name].wait(20)

    def ready(self) -> bool:
        try:
            return get(self.port, "/ready")[0] == 200
        except OSError:
            return False

    def await_ready(self, wanted: bool = True) -> float:
        started = time.monotonic()
        while self.ready() != wanted:
            assert time.monotonic() - started < 60, self.events
            time.sleep(0.05)
        return time.monotonic() - started

    def end(self) -> dict[str, int]:
        self.processes[self.local.recipient].send_signal(signal.SIGTERM)
        return {name: process.wait(20) for name, process in self.processes.items()}


@contextlib.contextmanager
def running(
    local: LocalFederation, roles: Sequence[str] | None = None, **options: list[str]
) -> Iterator[Running]:
    found = Running(local, local.member_names if roles is None else roles, options)
    try:
        found.begin()
        yield found
    finally:
        for process in found.processes.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    local = prepare(tmp_path_factory.mktemp("service"), tables=2)
    run(local, "train").checked()
    return local


def is_correct(model: Model, port: int, number: int) -> bool:
    status, answer = post(port, {"ids": [f"1-{number}"]})
    assert status == 200, answer
    expected = model.predict(rows(1).columns[:, [number]])[0]
    return bool(answer["probabilities"][0][1] == pytest.approx(expected, abs=1e-3))


def test_sessions_of_a_service_are_in_the_audit_log(tmp_path: Path) -> None:
    """The entries contain the disclosures, also of an interrupted session."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    change(tmp_path / "shop" / "party.toml", ("\n[data]", 'audit = "audit.log"\n\n[data]'))
    with running(local) as service:
        assert is_correct(model_of(local), service.port, 3)
        service.kill("bank")
        service.await_event("shop", "lost")
        service.start_again("bank")
        service.end()
    log = AuditLog(tmp_path / "shop" / "audit.log")
    log.verify()
    records = [record for record in log.iter_records() if record["event"] == "ended"]
    assert [record["outcome"]["code"] for record in records if record["ledger"]] == [7]
    assert records[-1]["outcome"]["code"] == 0
    assert {record["command"] for record in log.iter_records() if "command" in record} == {"serve"}


def test_service_recovers_after_a_kill(trained: LocalFederation) -> None:
    """A participant, the dealer and the recipient recover within 10 s, without wrong answers."""
    model = model_of(trained)
    with running(trained) as service:
        assert is_correct(model, service.port, 3)
        for number, name in enumerate(("bank", "dealer"), start=1):
            service.kill(name)
            service.await_ready(False)
            answer = send_request(
                service.port,
                "POST",
                "/predict",
                b'{"ids": ["1-0"]}',
                Content_Type="application/json",
            )
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert get(service.port, "/live")[0] == 200
            assert service.start_again(name) < RECONNECT_SECONDS
            assert is_correct(model, service.port, number)
        health = get(service.port, "/health")[1]
        assert (health["sessions"], health["lost"]) == (3, 2)
        assert health["meetings"] >= 3
        assert health["peers"] == {"bank": True, "dealer": True}
        service.kill("shop")
        assert service.start_again("shop") < RECONNECT_SECONDS
        assert is_correct(model, service.port, 5)
        assert set(service.end().values()) == {0}
    # The other members kept running.
    for name in ("bank", "dealer"):
        assert [event["event"] for event in service.events[name]].count("error") == 0


@pytest.mark.parametrize("name", ["bank", "shop"])
def test_a_second_service_is_refused(trained: LocalFederation, name: str) -> None:
    """The first service has closed its port, so only the lock stops the second one."""
    with running(trained) as service:
        command = trained.make_command(name, "serve", "--log-format=json", "--http=127.0.0.1:0")
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        assert second.returncode == 6
        (only,) = (json.loads(line) for line in second.stderr.splitlines())
        assert only["error"] == "BusyError"
        process = service.processes[name].pid
        assert f"process {process} serves there for the job 'rehearsal'" in only["text"]
        service.kill("dealer")
        service.await_ready(False)
        assert service.start_again("dealer") < RECONNECT_SECONDS
        assert set(service.end().values()) == {0}


def test_lost_dealer_of_three(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, dealers=3)
    run(local, "train").checked()
    model = model_of(local)
    with running(local) as service:
        assert is_correct(model, service.port, 3)
        service.kill("dealer2")
        service.await_ready(False)
        assert service.start_again("dealer2") < RECONNECT_SECONDS
        assert is_correct(model, service.port, 4)
        assert set(service.end().values()) == {0}


def test_dealers_that_participants_play(tmp_path: Path) -> None:
    """They are there as long as their participant is, and start again with it."""
    local = played(tmp_path)
    for ended in [local.start_process(name, "train") for name in local.party_names]:
        _, stderr = ended.communicate(timeout=60)
        assert ended.returncode == 0, stderr
    model = model_of(local)
    with running(local, local.party_names) as service:
        assert is_correct(model, service.port, 3)
        service.kill("bank")
        service.await_ready(False)
        assert service.start_again("bank") < RECONNECT_SECONDS
        assert is_correct(model, service.port, 4)
        assert set(service.end().values()) == {0}


def test_alignment_is_reused_after_a_lost_connection(tmp_path: Path) -> None:
    """Members reuse the alignment, so that a failure does not count as another one."""
    local = prepare(tmp_path, tables=1)
    align(local)
    run(local, "train").checked()
    before = count_alignments(local, "bank")
    with running(local) as service:
        service.kill("dealer")
        service.await_ready(False)
        assert service.start_again("dealer") < RECONNECT_SECONDS
        assert post(service.port, {"ids": ["1-17"]})[0] == 200
        assert count_alignments(local, "bank") == before + 1
        assert set(service.end().values()) == {0}


def test_running_requests_finish_before_the_service_stops(trained: LocalFederation) -> None:
    """Earlier requests are answered, later ones are rejected, and all members end."""
    codes: list[int] = []
    stop = threading.Event()

    def send_requests(port: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                codes.append(post(port, {"ids": ["1-3"]})[0])

    with running(trained) as service:
        threads = [threading.Thread(target=send_requests, args=(service.port,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert set(service.end().values()) == {0}
        stop.set()
        for thread in threads:
            thread.join(20)
        served = service.await_event("shop", "done")["requests"]
    assert codes.count(200) == served > 0
    assert set(codes) <= {200, 503}


def test_service_stops_while_a_peer_is_missing(trained: LocalFederation) -> None:
    with running(trained) as service:
        service.kill("bank")
        service.await_ready(False)
        service.processes["shop"].send_signal(signal.SIGTERM)
        assert service.processes["shop"].wait(20) == 0
        assert service.events["shop"][-1]["event"] == "done"


def test_kept_members_wait_for_the_next_recipient(trained: LocalFederation) -> None:
    with running(trained, bank=["--keep"], dealer=["--keep"]) as service:
        service.kill("shop", signal.SIGTERM)
        service.await_event("bank", "ended")
        assert service.start_again("shop") < RECONNECT_SECONDS
        assert is_correct(model_of(trained), service.port, 3)


Parts = dict[str, bytes]


def parts_of(local: LocalFederation) -> Parts:
    return {name: local.get_part_path(name).read_bytes() for name in local.party_names}


def replace_part(local: LocalFederation, name: str, part: bytes) -> None:
    """Replace a part atomically, like a training run."""
    other = local.get_part_path(name).with_suffix(".new")
    other.write_bytes(part)
    other.replace(local.get_part_path(name))


def train_on_opposite_labels(local: LocalFederation) -> Parts:
    """Return the parts of another model of the same job, without changing the current files."""
    parts, table = parts_of(local), local.folder / local.recipient / "train.csv"
    text = table.read_text()
    header, *lines = text.splitlines()
    cells = [line.rpartition(",") for line in lines]
    flipped = [f"{features},{1 - float(label)}" for features, _, label in cells]
    table.write_text("\n".join([header, *flipped]) + "\n")
    run(local, "train", restart=True).checked()
    table.write_text(text)
    newer = parts_of(local)
    for name, part in parts.items():
        replace_part(local, name, part)
    return newer


def test_model_is_replaced_without_failed_requests(tmp_path: Path) -> None:
    """Replace the parts one after the other during requests, none of which fails."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    newer, before = train_on_opposite_labels(local), model_of(local)
    seen: list[tuple[int, float]] = []
    stop = threading.Event()

    def send_requests(port: int) -> None:
        while not stop.is_set():
            status, answer = post(port, {"ids": ["1-3"]})
            seen.append((status, answer["probabilities"][0][1] if status == 200 else -1.0))

    with running(local) as service:
        thread = threading.Thread(target=send_requests, args=(service.port,))
        thread.start()
        for name in reversed(local.party_names):
            replace_part(local, name, newer[name])
            service.await_event(name, "model")
            if name == local.recipient:
                time.sleep(1.5)  # the model is proposed, but not all members have it
                assert get(service.port, "/health")[1]["models"] == 0
                assert not any(event.get("used") for event in service.events[name])
        deadline = time.monotonic() + 20
        while (health := get(service.port, "/health")[1])["models"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for name in local.party_names:
            loaded, used = (service.await_event(name, "model", number) for number in (1, 2))
            assert (loaded["used"], used["used"]) == (False, True)
            assert loaded["model"] == used["model"] == health["model"]
        time.sleep(0.3)
        stop.set()
        thread.join(20)
        assert set(service.end().values()) == {0}
    assert (health["sessions"], health["models"]) == (1, 1)
    assert health["model"] == load_part(local.get_part_path("bank")).model_id
    assert {status for status, _ in seen} == {200}
    column, values = rows(1).columns[:, [3]], [value for _, value in seen]
    expected = [model.predict(column)[0] for model in (before, model_of(local))]
    assert abs(expected[0] - expected[1]) > 0.1
    assert [values[0], values[-1]] == pytest.approx(expected, abs=1e-3)
    assert sum(abs(one - two) > 0.1 for one, two in itertools.pairwise(values)) == 1


def test_model_is_replaced_while_a_peer_is_lost(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    newer = train_on_opposite_labels(local)
    with running(local) as service:
        service.kill("dealer")
        service.await_ready(False)
        for name, part in newer.items():
            replace_part(local, name, part)
            assert not service.await_event(name, "model")["used"]
        assert service.start_again("dealer") < RECONNECT_SECONDS
        assert all(service.await_event(name, "model", 2)["used"] for name in local.party_names)
        assert is_correct(model_of(local), service.port, 3)
        assert get(service.port, "/health")[1]["models"] == 1
        assert set(service.end().values()) == {0}


def test_new_model_with_other_ports(tmp_path: Path) -> None:
    """A member without `--job` is warned that its next start would fail."""
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    entries, other_job = Job.read(local.job_path).get_entries(), tmp_path / "elsewhere.toml"
    other_job.write_bytes(local.job_path.read_bytes())
    for entry, port in zip(entries.values(), find_free_ports(len(entries)), strict=True):
        change(other_job, (entry.address, f"127.0.0.1:{port}"))
    with running(local, bank=[f"--job={local.job_path}"]) as service:
        run(
            local, "train", jobs=dict.fromkeys(local.member_names, other_job), restart=True
        ).checked()
        warned = service.await_event("shop", "warning")["text"]
        assert f"bank's address: {entries['bank'].address} here" in warned
        assert "from now on start it with --job" in warned
        service.await_event("bank", "model")
        service.kill("bank")
        service.await_ready(False)
        assert service.start_again("bank") < RECONNECT_SECONDS
        assert is_correct(model_of(local), service.port, 3)
        assert set(service.end().values()) == {0}
    assert not [event for event in service.events["bank"] if event["event"] == "warning"]


def test_invalid_new_model_is_reported(trained: LocalFederation) -> None:
    model, part = model_of(trained), trained.get_part_path("bank").read_bytes()
    with running(trained) as service:
        replace_part(trained, "bank", part[:-10])
        event = service.await_event("bank", "model")
        replace_part(trained, "bank", part)
        assert not event["used"]
        assert event["refused"]
        assert "the new model is not used" in event["text"]
        part = trained.get_part_path("shop").read_bytes()
        replace_part(trained, "shop", part[:-10])
        service.await_event("shop", "model")
        replace_part(trained, "shop", part)
        assert get(service.port, "/health")[1]["refused_models"] == 1
        metrics = send_request(service.port, "GET", "/metrics").body.decode()
        assert "\nprivet_refused_models_total 1\n" in metrics
        assert is_correct(model, service.port, 3)
        assert set(service.end().values()) == {0}


def test_endpoint_settings_of_the_party_file(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    (tmp_path / "shop" / "token").write_text("0123456789abcdef\n")
    endpoint = '[endpoint]\ntoken = "token"\nmost_rows = 1\n\n[data]'
    change(tmp_path / "shop" / "party.toml", ("[data]", endpoint))
    with running(local) as service:
        assert post(service.port, {"ids": ["1-1"]})[0] == 401
        authorization = {"Authorization": "Bearer 0123456789abcdef"}
        assert post(service.port, {"ids": ["1-1"]}, **authorization)[0] == 200
        assert post(service.port, {"ids": ["1-1"] * 2}, **authorization)[0] == 413
        columns = rows(1).columns[:, [1]].copy()
        columns[4] += 5.0  # differs from the shop's table
        inline_row = {"id": "1-1", "d": columns[3, 0], "e": columns[4, 0]}
        _, answer = post(service.port, {"rows": [inline_row]}, **authorization)
        predicted = model_of(local).predict(columns)[0]
        assert answer["probabilities"][0][1] == pytest.approx(predicted, abs=1e-3)
        _, described = get(service.port, "/openapi.json", **authorization)
        body = described["paths"]["/predict"]["post"]["requestBody"]["content"]
        row = body["application/json"]["schema"]["properties"]["rows"]["items"]
        assert row["required"] == ["id", "d", "e"]
        assert set(service.end().values()) == {0}


def test_public_endpoint_requires_a_token(trained: LocalFederation) -> None:
    command = trained.make_command("shop", "serve", "--http=0.0.0.0:0")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert ended.returncode == 3
    assert "token: 0.0.0.0:0 can be asked from other machines" in ended.stderr


def test_missing_endpoint_packages_are_reported(trained: LocalFederation, tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ended = subprocess.run(  # noqa: S603
        trained.make_command("shop", "serve", "--http=127.0.0.1:0"),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 6
    assert "uvicorn, which the endpoint needs, is not installed" in ended.stderr
    assert "pip install 'privet[serve]'" in ended.stderr
