"""A service as people run it: processes that are killed, frozen and started again."""

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
from tests.federation.test_alignment import count
from tests.federation.test_three_dealers import played
from tests.web.asking import ask, get, post

BACK_WITHIN = 10.0
"""Seconds. What starting Python takes is the machine's, and not counted here."""


class Running:
    """All roles of a service as processes, whose logs are read as they come."""

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
        with process.stderr as said:
            for line in said:
                self.events[name].append(json.loads(line))

    def await_event(self, name: str, kind: str, number: int = 1) -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [event for event in self.events[name] if event["event"] == kind]
            if len(found) >= number:
                return found[number - 1]
            time.sleep(0.02)
        raise AssertionError(f"{name} told no {kind}: {self.events[name]}")

    def start_again(self, name: str) -> float:
        """Return the seconds until all is well, since its process is more than a start."""
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


def right(model: Model, port: int, number: int) -> bool:
    status, answer = post(port, {"ids": [f"1-{number}"]})
    assert status == 200, answer
    expected = model.predict(rows(1).columns[:, [number]])[0]
    return bool(answer["probabilities"][0][1] == pytest.approx(expected, abs=1e-3))


def test_sessions_of_a_service_are_in_the_audit_log(tmp_path: Path) -> None:
    """With what was revealed in them, though one was cut short."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    change(tmp_path / "shop" / "party.toml", ("\n[data]", 'audit = "audit.log"\n\n[data]'))
    with running(local) as service:
        assert right(model_of(local), service.port, 3)
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


def test_whoever_is_killed_comes_back(trained: LocalFederation) -> None:
    """A participant, the dealer, and the recipient itself: within 10 s, and no wrong answer."""
    model = model_of(trained)
    with running(trained) as service:
        assert right(model, service.port, 3)
        for number, name in enumerate(("bank", "dealer"), start=1):
            service.kill(name)
            service.await_ready(False)
            answer = ask(
                service.port,
                "POST",
                "/predict",
                b'{"ids": ["1-0"]}',
                Content_Type="application/json",
            )
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert get(service.port, "/live")[0] == 200
            assert service.start_again(name) < BACK_WITHIN
            assert right(model, service.port, number)
        told = get(service.port, "/health")[1]
        assert (told["sessions"], told["lost"]) == (3, 2)
        assert told["meetings"] >= 3
        assert told["peers"] == {"bank": True, "dealer": True}
        service.kill("shop")
        assert service.start_again("shop") < BACK_WITHIN
        assert right(model, service.port, 5)
        assert set(service.end().values()) == {0}
    # Nobody who was there had to be started again.
    for name in ("bank", "dealer"):
        assert [event["event"] for event in service.events[name]].count("error") == 0


@pytest.mark.parametrize("name", ["bank", "shop"])
def test_a_second_service_is_refused(trained: LocalFederation, name: str) -> None:
    """The first has closed its port: only its lock keeps another one from taking its seat."""
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
        assert service.start_again("dealer") < BACK_WITHIN
        assert set(service.end().values()) == {0}


def test_three_dealers_one_of_whom_is_lost(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, dealers=3)
    run(local, "train").checked()
    model = model_of(local)
    with running(local) as service:
        assert right(model, service.port, 3)
        service.kill("dealer2")
        service.await_ready(False)
        assert service.start_again("dealer2") < BACK_WITHIN
        assert right(model, service.port, 4)
        assert set(service.end().values()) == {0}


def test_dealers_that_participants_play(tmp_path: Path) -> None:
    """They are there as long as their participant is, and start again with it."""
    local = played(tmp_path)
    for ended in [local.start_process(name, "train") for name in local.party_names]:
        _, said = ended.communicate(timeout=60)
        assert ended.returncode == 0, said
    model = model_of(local)
    with running(local, local.party_names) as service:
        assert right(model, service.port, 3)
        service.kill("bank")
        service.await_ready(False)
        assert service.start_again("bank") < BACK_WITHIN
        assert right(model, service.port, 4)
        assert set(service.end().values()) == {0}


def test_an_alignment_outlives_a_lost_link(tmp_path: Path) -> None:
    """Whoever has it still uses it again: it is counted once, and not made for every failure."""
    local = prepare(tmp_path, tables=1)
    align(local)
    run(local, "train").checked()
    before = count(local, "bank")
    with running(local) as service:
        service.kill("dealer")
        service.await_ready(False)
        assert service.start_again("dealer") < BACK_WITHIN
        assert post(service.port, {"ids": ["1-17"]})[0] == 200
        assert count(local, "bank") == before + 1
        assert set(service.end().values()) == {0}


def test_it_drains_when_it_is_stopped(trained: LocalFederation) -> None:
    """What was asked before is answered; who asks after is told; all end well."""
    codes: list[int] = []
    stop = threading.Event()

    def asking(port: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                codes.append(post(port, {"ids": ["1-3"]})[0])

    with running(trained) as service:
        threads = [threading.Thread(target=asking, args=(service.port,)) for _ in range(8)]
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


def test_it_stops_while_somebody_is_missing(trained: LocalFederation) -> None:
    with running(trained) as service:
        service.kill("bank")
        service.await_ready(False)
        service.processes["shop"].send_signal(signal.SIGTERM)
        assert service.processes["shop"].wait(20) == 0
        assert service.events["shop"][-1]["event"] == "done"


def test_who_keeps_at_it_waits_for_the_next_recipient(trained: LocalFederation) -> None:
    with running(trained, bank=["--keep"], dealer=["--keep"]) as service:
        service.kill("shop", signal.SIGTERM)
        service.await_event("bank", "ended")
        assert service.start_again("shop") < BACK_WITHIN
        assert right(model_of(trained), service.port, 3)


Parts = dict[str, bytes]


def parts_of(local: LocalFederation) -> Parts:
    return {name: local.get_part_path(name).read_bytes() for name in local.party_names}


def put(local: LocalFederation, name: str, part: bytes) -> None:
    """Put another part in the place of one, as trainings do: at once, or not at all."""
    other = local.get_part_path(name).with_suffix(".new")
    other.write_bytes(part)
    other.replace(local.get_part_path(name))


def train_on_opposite_labels(local: LocalFederation) -> Parts:
    """Return the parts of another model of the same job, and leave everything as it was."""
    parts, table = parts_of(local), local.folder / local.recipient / "train.csv"
    text = table.read_text()
    head, *lines = text.splitlines()
    cells = [line.rpartition(",") for line in lines]
    flipped = [f"{features},{1 - float(label)}" for features, _, label in cells]
    table.write_text("\n".join([head, *flipped]) + "\n")
    run(local, "train", restart=True).checked()
    table.write_text(text)
    newer = parts_of(local)
    for name, part in parts.items():
        put(local, name, part)
    return newer


def test_a_new_model_without_a_gap(tmp_path: Path) -> None:
    """Parts are replaced one after the other, while somebody asks: no answer fails."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    newer, before = train_on_opposite_labels(local), model_of(local)
    seen: list[tuple[int, float]] = []
    stop = threading.Event()

    def asking(port: int) -> None:
        while not stop.is_set():
            status, answer = post(port, {"ids": ["1-3"]})
            seen.append((status, answer["probabilities"][0][1] if status == 200 else -1.0))

    with running(local) as service:
        thread = threading.Thread(target=asking, args=(service.port,))
        thread.start()
        for name in reversed(local.party_names):
            put(local, name, newer[name])
            service.await_event(name, "model")
            if name == local.recipient:
                time.sleep(1.5)  # it has been offered, and not all have it
                assert get(service.port, "/health")[1]["models"] == 0
                assert not any(event.get("used") for event in service.events[name])
        until = time.monotonic() + 20
        while (told := get(service.port, "/health")[1])["models"] == 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        for name in local.party_names:
            loaded, used = (service.await_event(name, "model", number) for number in (1, 2))
            assert (loaded["used"], used["used"]) == (False, True)
            assert loaded["model"] == used["model"] == told["model"]
        time.sleep(0.3)
        stop.set()
        thread.join(20)
        assert set(service.end().values()) == {0}
    assert (told["sessions"], told["models"]) == (1, 1)
    assert told["model"] == load_part(local.get_part_path("bank")).model_id
    assert {status for status, _ in seen} == {200}
    column, values = rows(1).columns[:, [3]], [value for _, value in seen]
    expected = [model.predict(column)[0] for model in (before, model_of(local))]
    assert abs(expected[0] - expected[1]) > 0.1
    assert [values[0], values[-1]] == pytest.approx(expected, abs=1e-3)
    assert sum(abs(one - two) > 0.1 for one, two in itertools.pairwise(values)) == 1


def test_a_new_model_that_came_while_somebody_was_lost(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    newer = train_on_opposite_labels(local)
    with running(local) as service:
        service.kill("dealer")
        service.await_ready(False)
        for name, part in newer.items():
            put(local, name, part)
            assert not service.await_event(name, "model")["used"]
        assert service.start_again("dealer") < BACK_WITHIN
        assert all(service.await_event(name, "model", 2)["used"] for name in local.party_names)
        assert right(model_of(local), service.port, 3)
        assert get(service.port, "/health")[1]["models"] == 1
        assert set(service.end().values()) == {0}


def test_a_new_model_that_was_trained_at_other_ports(tmp_path: Path) -> None:
    """Beside the service; who gives no job is warned that the next start would go wrong."""
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    contacts, elsewhere = Job.read(local.job_path).get_entries(), tmp_path / "elsewhere.toml"
    elsewhere.write_bytes(local.job_path.read_bytes())
    for contact, port in zip(contacts.values(), find_free_ports(len(contacts)), strict=True):
        change(elsewhere, (contact.address, f"127.0.0.1:{port}"))
    with running(local, bank=[f"--job={local.job_path}"]) as service:
        run(
            local, "train", jobs=dict.fromkeys(local.member_names, elsewhere), restart=True
        ).checked()
        warned = service.await_event("shop", "warning")["text"]
        assert f"bank's address: {contacts['bank'].address} here" in warned
        assert "from now on start it with --job" in warned
        service.await_event("bank", "model")
        service.kill("bank")
        service.await_ready(False)
        assert service.start_again("bank") < BACK_WITHIN
        assert right(model_of(local), service.port, 3)
        assert set(service.end().values()) == {0}
    assert not [event for event in service.events["bank"] if event["event"] == "warning"]


def test_a_new_model_that_cannot_be_used_is_told_of(trained: LocalFederation) -> None:
    model, part = model_of(trained), trained.get_part_path("bank").read_bytes()
    with running(trained) as service:
        put(trained, "bank", part[:-10])
        told = service.await_event("bank", "model")
        put(trained, "bank", part)
        assert not told["used"]
        assert told["refused"]
        assert "the new model is not used" in told["text"]
        part = trained.get_part_path("shop").read_bytes()
        put(trained, "shop", part[:-10])
        service.await_event("shop", "model")
        put(trained, "shop", part)
        assert get(service.port, "/health")[1]["refused_models"] == 1
        metrics = ask(service.port, "GET", "/metrics").body.decode()
        assert "\nprivet_refused_models_total 1\n" in metrics
        assert right(model, service.port, 3)
        assert set(service.end().values()) == {0}


def test_the_endpoint_is_described_in_the_participants_file(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    (tmp_path / "shop" / "token").write_text("0123456789abcdef\n")
    endpoint = '[endpoint]\ntoken = "token"\nmost_rows = 1\n\n[data]'
    change(tmp_path / "shop" / "party.toml", ("[data]", endpoint))
    with running(local) as service:
        assert post(service.port, {"ids": ["1-1"]})[0] == 401
        shown = {"Authorization": "Bearer 0123456789abcdef"}
        assert post(service.port, {"ids": ["1-1"]}, **shown)[0] == 200
        assert post(service.port, {"ids": ["1-1"] * 2}, **shown)[0] == 413
        columns = rows(1).columns[:, [1]].copy()
        columns[4] += 5.0  # another value than the shop's table has
        given = {"id": "1-1", "d": columns[3, 0], "e": columns[4, 0]}
        _, answer = post(service.port, {"rows": [given]}, **shown)
        predicted = model_of(local).predict(columns)[0]
        assert answer["probabilities"][0][1] == pytest.approx(predicted, abs=1e-3)
        _, described = get(service.port, "/openapi.json", **shown)
        body = described["paths"]["/predict"]["post"]["requestBody"]["content"]
        row = body["application/json"]["schema"]["properties"]["rows"]["items"]
        assert row["required"] == ["id", "d", "e"]
        assert set(service.end().values()) == {0}


def test_nobody_else_is_let_in_without_a_token(trained: LocalFederation) -> None:
    command = trained.make_command("shop", "serve", "--http=0.0.0.0:0")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert ended.returncode == 3
    assert "token: 0.0.0.0:0 can be asked from other machines" in ended.stderr


def test_without_the_endpoints_packages_the_recipient_is_told_what_to_install(
    trained: LocalFederation, tmp_path: Path
) -> None:
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
