"""Soak tests: a service with failing processes, and memory that must not grow.

    python -m benchmarks.soak [--minutes 5] [--every 60] [--clients 8] [--pause 0] [--dealers 1]
    python -m benchmarks.soak --batches 10000
    python -m benchmarks.soak --tables 1000

The first command kills, freezes or terminates a random process of a running service at regular
intervals, and restarts it. It passes if all answers are correct or 503 (or missing while the
recipient is down), if the service is ready within 10 s of a restart, and if the memory of no
process grows between its first and last sample.

The second command runs without failures, and samples the memory of every process after each tenth
of the batches; the third does the same in a training run. They pass if no process grows from the
second tenth to the last by more than one megabyte, or sixteen in a training run.

With `--keep`, the results are added to docs/results/soak.json.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence.kept import Figures, keep, read, results
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.measure import environment
from privet.arrays import FloatArray
from privet.boosting.model_part import join_parts
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation, find_free_ports
from privet.storage.model_part import load_part

NAME = "soak"
BACK_WITHIN = 10.0
"""Maximum seconds from the restart of a process until the service is ready."""
FROZEN = 13.0
"""Seconds for which a process is frozen, longer than the peer timeout."""
MOST_GROWTH = 1 << 20
"""Maximum growth in bytes without failures."""
MOST_HEALING = 8 << 20
"""Maximum growth in bytes of a process that reconnects."""
MOST_TRAINING = 16 << 20
"""Maximum growth in bytes in a training run, which detects 16 kB a table."""
TABLES: dict[str, Any] = {"depth": 3, "learning_rate": 0.1}
TOLERANCE = 1e-3
"""Predictions are rounded to 2^-10 of the log-odds, which is at most a quarter of that."""


class Service:
    """All roles of a service as processes."""

    def __init__(self, local: LocalFederation) -> None:
        self.local = local
        (self.port,) = find_free_ports(1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start or restart a role."""
        keep = name != self.local.recipient
        options = ["--keep"] if keep else [f"--http=127.0.0.1:{self.port}"]
        command = self.local.make_command(name, "serve", *options)
        command = [part.replace("new.csv", "train.csv") for part in command]
        log = (self.local.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET request; return status 0 if the endpoint is down."""
        try:
            with contextlib.closing(_line(self.port)) as connection:
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, json.loads(response.read())
        except OSError:
            return 0, None

    def await_ready(self) -> float:
        """Wait until the service is ready; return the seconds."""
        started = time.monotonic()
        while self.get("/ready")[0] != 200:
            if time.monotonic() - started > 120:
                raise TimeoutError("the service does not come up")
            time.sleep(0.05)
        return time.monotonic() - started

    def memory(self) -> dict[str, int]:
        """Return the resident bytes of each process."""
        return {name: resident(process.pid) for name, process in self.processes.items()}


def resident(process: int) -> int:
    """Return the resident bytes of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _line(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


class Client(threading.Thread):
    """Client that requests random rows, and compares answers with the plaintext model."""

    def __init__(
        self, port: int, ids: list[str], expected: FloatArray, pause: float, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._port, self._ids, self._expected, self._pause = port, ids, expected, pause
        self._random = random.Random(seed)  # noqa: S311
        self.codes: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Send requests until stopped."""
        while not self.over.is_set():
            try:
                with contextlib.closing(_line(self._port)) as line:
                    while not self.over.is_set():
                        self._ask(line)
                        time.sleep(self._pause)
            except (OSError, http.client.HTTPException):
                self.codes[0] += 1  # the recipient is down
                time.sleep(0.1)

    def _ask(self, line: http.client.HTTPConnection) -> None:
        count = self._random.choice((1, 1, 1, 20))
        numbers = [self._random.randrange(len(self._ids)) for _ in range(count)]
        body = json.dumps({"ids": [self._ids[number] for number in numbers]})
        line.request("POST", "/predict", body, {"Content-Type": "application/json"})
        response = line.getresponse()
        content = json.loads(response.read())
        self.codes[response.status] += 1
        if response.status == 200:
            found = np.array([pair[1] for pair in content["probabilities"]])
            if not np.allclose(found, self._expected[numbers], atol=TOLERANCE, rtol=0):
                self.wrong.append(f"{numbers}: {found}, not {self._expected[numbers]}")
        elif response.status == 503:
            time.sleep(0.1)
        else:
            self.wrong.append(f"{response.status}: {content}")


def disturb(service: Service, disturbance: str, victim: str) -> float:
    """Disturb a process, restart it if needed; return the seconds until the service is ready."""
    process = service.processes[victim]
    if disturbance == "freeze":
        process.send_signal(signal.SIGSTOP)
        time.sleep(FROZEN)
        process.send_signal(signal.SIGCONT)
    else:
        process.send_signal(signal.SIGKILL if disturbance == "kill" else signal.SIGTERM)
        process.wait(30)
        service.start(victim)
    time.sleep(0.5)  # the peers need a moment to detect it
    return 0.5 + service.await_ready()


@contextlib.contextmanager
def running(dealers: int) -> Iterator[tuple[Service, list[str], FloatArray]]:
    """Train on Breast Cancer and serve; yield the service, ids, and plaintext predictions."""
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    with tempfile.TemporaryDirectory(prefix="privet-soak-") as folder:
        local = LocalFederation(Path(folder), n_dealers=dealers)
        local.write_tables(rows, new)
        params = {"tables": 10, "depth": 3, "learning_rate": 1.0}
        local.write_configuration(data.task, params)
        for name, process_result in local.run_command("train").items():
            assert not process_result.return_code, f"{name}: {process_result.stderr}"
        assert rows.ids is not None
        model = join_parts(
            [load_part(local.get_part_path(name)).part for name in local.party_names]
        )
        service = Service(local)
        try:
            for name in local.member_names:
                service.start(name)
            service.await_ready()
            yield service, rows.ids.tolist(), model.predict(rows.columns)
        finally:
            for process in service.processes.values():
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


def start_clients(
    service: Service, ids: list[str], expected: FloatArray, count: int, pause: float, seed: int
) -> list[Client]:
    """Start clients that pause after each answer."""
    clients = [Client(service.port, ids, expected, pause, 1000 * seed + k) for k in range(count)]
    for client in clients:
        client.start()
    return clients


def stop_clients(clients: list[Client]) -> tuple[Counter[int], list[str]]:
    """Stop clients; return the counts of statuses, and wrong answers."""
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(90)
    codes = sum((client.codes for client in clients), Counter[int]())
    return codes, [text for client in clients for text in client.wrong]


def soak(arguments: argparse.Namespace) -> Figures:
    """Disturb a service repeatedly; return the results."""
    rng = random.Random(arguments.seed)  # noqa: S311
    done: Counter[str] = Counter()
    growth = Growth()
    with running(arguments.dealers) as (service, ids, expected):
        clients = start_clients(
            service, ids, expected, arguments.clients, arguments.pause, arguments.seed
        )
        deadline, slowest = time.monotonic() + 60 * arguments.minutes, 0.0
        while (round_started := time.monotonic()) < deadline:
            victim, disturbance = (
                rng.choice(service.local.member_names),
                rng.choice(("kill", "kill", "terminate", "freeze")),
            )
            growth.look(service)
            seconds = disturb(service, disturbance, victim)
            done[disturbance] += 1
            slowest = max(slowest, seconds)
            print(f"{disturbance:>10} {victim:<8} up after {seconds:5.1f} s   {growth}", flush=True)
            time.sleep(max(0.0, round_started + arguments.every - time.monotonic()))
        growth.look(service)
        codes, wrong = stop_clients(clients)
    return {
        "minutes": arguments.minutes,
        "every": arguments.every,
        "clients": arguments.clients,
        "disturbed": dict(done),
        "answers": codes[200],
        "refused": codes[503],
        "unanswered": codes[0],
        "wrong": wrong,
        "slowest": slowest,
        "grown": growth.most,
        "good": not wrong
        and slowest <= BACK_WITHIN
        and codes[200] > 0
        and growth.most <= MOST_HEALING,
    }


class Growth:
    """Memory growth of processes since their first sample."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self.most = 0

    def look(self, service: Service) -> None:
        """Sample all processes."""
        self._last = service.memory()
        for name, size in self._last.items():
            first = self._first.setdefault(service.processes[name].pid, size)
            self.most = max(self.most, size - first)

    def __str__(self) -> str:
        return "MB " + " ".join(f"{size >> 20}" for size in self._last.values())


def flat(arguments: argparse.Namespace) -> Figures:
    """Run batches; return the memory growth of processes."""
    sizes: list[dict[str, int]] = []
    with running(arguments.dealers) as (service, ids, expected):
        clients = start_clients(
            service, ids, expected, arguments.clients, arguments.pause, arguments.seed
        )
        print(f"{'batches':>8}", *(f"{name:>10}" for name in service.processes), " in MB")
        while len(sizes) < 10:
            done = service.get("/health")[1]["batches"]
            if done < (len(sizes) + 1) * arguments.batches / 10:
                time.sleep(0.05)
                continue
            sizes.append(service.memory())
            print(f"{done:>8}", *(f"{size / 2**20:>10.1f}" for size in sizes[-1].values()))
            sys.stdout.flush()
        codes, wrong = stop_clients(clients)
    grown = max(sizes[-1][name] - sizes[1][name] for name in sizes[-1])
    return {
        "batches": arguments.batches,
        "answers": codes[200],
        "wrong": wrong,
        "grown": grown,
        "good": not wrong and grown <= MOST_GROWTH,
    }


def long_training(arguments: argparse.Namespace) -> Figures:
    """Train; return the memory growth of processes, and the size of a model part."""
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    sizes: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory(prefix="privet-soak-") as folder:
        local = LocalFederation(Path(folder), n_dealers=arguments.dealers)
        local.write_tables(rows, new)
        local.write_configuration(data.task, {"tables": arguments.tables, **TABLES})
        logs = {name: local.folder / f"{name}.log" for name in local.member_names}
        started = time.monotonic()
        processes = {}
        for name, path in logs.items():
            with path.open("wb") as log:
                command = local.make_command(name, "train", "--log-format=json")
                processes[name] = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        least: dict[str, int] = {}  # minimum in a tenth, without temporary arrays
        while processes[local.recipient].poll() is None:
            now = {name: resident(p.pid) for name, p in processes.items()}
            least = {name: min(size, least.get(name, size)) for name, size in now.items()}
            done = logs[local.recipient].read_text().count('"event": "table"')
            if len(sizes) < 10 and done >= (len(sizes) + 1) * (arguments.tables - 5) / 10:
                sizes.append(least)
                least = {}
                print(f"{done:>8}", *(f"{size / 2**20:>10.1f}" for size in sizes[-1].values()))
                sys.stdout.flush()
            time.sleep(0.1)
        codes = {name: process.wait(60) for name, process in processes.items()}
        seconds = time.monotonic() - started
        assert not any(codes.values()), codes
        model = max(local.get_part_path(name).stat().st_size for name in local.party_names)
    grown = {name: sizes[-1][name] - sizes[1][name] for name in sizes[-1]}
    return {
        "tables": arguments.tables,
        "seconds": seconds,
        "grown": max(grown.values()),
        "model_bytes": model,
        "good": max(grown.values()) <= MOST_TRAINING,
    }


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## For long\n"
    yield (
        "Three participants and a dealer as processes over TLS, on Breast Cancer. A service is "
        "disturbed again and again, by SIGKILL, SIGTERM, or SIGSTOP for "
        f"{FROZEN:.0f} s, and must be up within {BACK_WITHIN:.0f} s; every answer is compared with "
        "the model in the clear. In peace, growth is that from the second tenth of the time to the "
        "last, where what a process has at least in a tenth of a training counts.\n"
    )
    body = []
    for found in figures["runs"].values():
        if "minutes" in found:
            disturbance_text = ", ".join(f"{k} {n}" for k, n in sorted(found["disturbed"].items()))
            run_text = (
                f"{found['minutes']:g} minutes of service, disturbed every {found['every']:g} s"
            )
            result_text = (
                f"{disturbance_text}; {found['answers']:,} answers, {found['refused']:,} times "
                f"503, {len(found['wrong'])} wrong; up again after at most {found['slowest']:.1f} s"
            )
        elif "batches" in found:
            run_text = f"{found['batches']:,} batches of a service"
            result_text = f"{found['answers']:,} answers, {len(found['wrong'])} wrong"
        else:
            run_text = f"a training of {found['tables']:,} tables"
            result_text = (
                f"{found['seconds']:.0f} s; a part of the model has {_mb(found['model_bytes'])}"
            )
        run = f"`{found['command']}`; {found['machine']}, {found['date']}"
        body.append([run_text, result_text, _mb(found["grown"]), run])
    yield from table(("", "what came of it", "most growth of a process", "measured"), body)


def _mb(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def main() -> None:
    """Run one of the soak tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between disturbances")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two requests")
    parser.add_argument("--dealers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, help="instead: look at memory over so many")
    parser.add_argument("--tables", type=int, help="instead: look at memory over a training")
    parser.add_argument("--keep", action="store_true", help="for docs/results, not build/quick")
    arguments = parser.parse_args()
    if arguments.batches is not None:
        kind, found = "batches", flat(arguments)
    elif arguments.tables is not None:
        kind, found = "tables", long_training(arguments)
    else:
        kind, found = "disturbed", soak(arguments)
    command = " ".join(["python -m benchmarks.soak", *sys.argv[1:]]).replace(" --keep", "")
    path = results(not arguments.keep) / f"{NAME}.json"
    runs = read(path)["runs"] if path.exists() else {}
    runs[kind] = {"command": command, **environment(), **found}
    print(wrapped(section(keep(path, {"runs": runs}, "python -m benchmarks.soak"))))
    print("good" if found["good"] else f"NOT GOOD: {found}")
    sys.exit(not found["good"])


if __name__ == "__main__":
    main()
