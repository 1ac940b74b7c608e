"""For long: a service that is disturbed and looked at, and memory that must not grow.

    python -m benchmarks.soak [--minutes 5] [--every 60] [--clients 8] [--pause 0] [--dealers 1]
    python -m benchmarks.soak --batches 10000
    python -m benchmarks.soak --tables 1000

The first has a random process of a running service killed, frozen for a while or terminated every
so many seconds, and started again. It is good if no answer was wrong, if the only others were 503
or, while the recipient itself was gone, none, if the service was up within 10 s of the restart, and
if no process grew from one look to the last as long as it lived.

The second leaves all in peace, and looks at the memory of every process after each tenth of so many
batches; the third does the same in a training. Each is good if no process grew from the second
tenth to the last: by no more than a megabyte, and in a training sixteen.

With `--keep`, figures go to docs/results/soak.json, beside those of the other two.
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
"""Seconds from the start of who was lost until predictions are to be had again."""
FROZEN = 13.0
"""Seconds for which a process is frozen: longer than it takes to give it up."""
MOST_GROWTH = 1 << 20
"""Bytes, in peace."""
MOST_HEALING = 8 << 20
"""Bytes, of a process that loses others and meets them again."""
MOST_TRAINING = 16 << 20
"""Bytes, in a training, whose arrays of all sizes come and go: 16 kB a table would be found."""
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
        """Start a role, for the first time or again."""
        keep = name != self.local.recipient
        options = ["--keep"] if keep else [f"--http=127.0.0.1:{self.port}"]
        command = self.local.make_command(name, "serve", *options)
        command = [part.replace("new.csv", "train.csv") for part in command]
        log = (self.local.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def get(self, path: str) -> tuple[int, Any]:
        """Ask for a page; 0 if nobody is there."""
        try:
            with contextlib.closing(_line(self.port)) as line:
                line.request("GET", path)
                answer = line.getresponse()
                return answer.status, json.loads(answer.read())
        except OSError:
            return 0, None

    def await_ready(self) -> float:
        """Return how many seconds it took until predictions are to be had."""
        started = time.monotonic()
        while self.get("/ready")[0] != 200:
            if time.monotonic() - started > 120:
                raise TimeoutError("the service does not come up")
            time.sleep(0.05)
        return time.monotonic() - started

    def memory(self) -> dict[str, int]:
        """Return how many bytes each process has in memory."""
        return {name: resident(process.pid) for name, process in self.processes.items()}


def resident(process: int) -> int:
    """Return how many bytes a process has in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _line(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


class Client(threading.Thread):
    """Asks for random rows, and compares every answer with the model in the clear."""

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
        """Ask until it is over."""
        while not self.over.is_set():
            try:
                with contextlib.closing(_line(self._port)) as line:
                    while not self.over.is_set():
                        self._ask(line)
                        time.sleep(self._pause)
            except (OSError, http.client.HTTPException):
                self.codes[0] += 1  # the recipient itself is gone
                time.sleep(0.1)

    def _ask(self, line: http.client.HTTPConnection) -> None:
        count = self._random.choice((1, 1, 1, 20))
        numbers = [self._random.randrange(len(self._ids)) for _ in range(count)]
        body = json.dumps({"ids": [self._ids[number] for number in numbers]})
        line.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        told = json.loads(answer.read())
        self.codes[answer.status] += 1
        if answer.status == 200:
            found = np.array([pair[1] for pair in told["probabilities"]])
            if not np.allclose(found, self._expected[numbers], atol=TOLERANCE, rtol=0):
                self.wrong.append(f"{numbers}: {found}, not {self._expected[numbers]}")
        elif answer.status == 503:
            time.sleep(0.1)
        else:
            self.wrong.append(f"{answer.status}: {told}")


def disturb(service: Service, how: str, victim: str) -> float:
    """Do something to a process, start it again if need be; return how long healing took."""
    process = service.processes[victim]
    if how == "freeze":
        process.send_signal(signal.SIGSTOP)
        time.sleep(FROZEN)
        process.send_signal(signal.SIGCONT)
    else:
        process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        process.wait(30)
        service.start(victim)
    time.sleep(0.5)  # the others find out at once, but not before that
    return 0.5 + service.await_ready()


@contextlib.contextmanager
def running(dealers: int) -> Iterator[tuple[Service, list[str], FloatArray]]:
    """Train on Breast Cancer and serve; yield the service, ids, and predictions in the clear."""
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    with tempfile.TemporaryDirectory(prefix="privet-soak-") as folder:
        local = LocalFederation(Path(folder), n_dealers=dealers)
        local.write_tables(rows, new)
        params = {"tables": 10, "depth": 3, "learning_rate": 1.0}
        local.write_configuration(data.task, params)
        for name, ended in local.run_command("train").items():
            assert not ended.return_code, f"{name}: {ended.stderr}"
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


def asking(
    service: Service, ids: list[str], expected: FloatArray, count: int, pause: float, seed: int
) -> list[Client]:
    """Return clients that have begun to ask, and pause after each answer."""
    clients = [Client(service.port, ids, expected, pause, 1000 * seed + k) for k in range(count)]
    for client in clients:
        client.start()
    return clients


def told(clients: list[Client]) -> tuple[Counter[int], list[str]]:
    """End clients; return how often each status came, and what was wrong."""
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(90)
    codes = sum((client.codes for client in clients), Counter[int]())
    return codes, [text for client in clients for text in client.wrong]


def soak(given: argparse.Namespace) -> Figures:
    """Disturb a service again and again; return what came of it."""
    chance = random.Random(given.seed)  # noqa: S311
    done: Counter[str] = Counter()
    growth = Growth()
    with running(given.dealers) as (service, ids, expected):
        clients = asking(service, ids, expected, given.clients, given.pause, given.seed)
        until, slowest = time.monotonic() + 60 * given.minutes, 0.0
        while (begun := time.monotonic()) < until:
            victim, how = (
                chance.choice(service.local.member_names),
                chance.choice(("kill", "kill", "terminate", "freeze")),
            )
            growth.look(service)
            seconds = disturb(service, how, victim)
            done[how] += 1
            slowest = max(slowest, seconds)
            print(f"{how:>10} {victim:<8} up after {seconds:5.1f} s   {growth}", flush=True)
            time.sleep(max(0.0, begun + given.every - time.monotonic()))
        growth.look(service)
        codes, wrong = told(clients)
    return {
        "minutes": given.minutes,
        "every": given.every,
        "clients": given.clients,
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
    """By how much processes have grown since they were looked at for the first time."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self.most = 0

    def look(self, service: Service) -> None:
        """Look at all of them."""
        self._last = service.memory()
        for name, size in self._last.items():
            first = self._first.setdefault(service.processes[name].pid, size)
            self.most = max(self.most, size - first)

    def __str__(self) -> str:
        return "MB " + " ".join(f"{size >> 20}" for size in self._last.values())


def flat(given: argparse.Namespace) -> Figures:
    """Run so many batches; return by how much processes have grown."""
    sizes: list[dict[str, int]] = []
    with running(given.dealers) as (service, ids, expected):
        clients = asking(service, ids, expected, given.clients, given.pause, given.seed)
        print(f"{'batches':>8}", *(f"{name:>10}" for name in service.processes), " in MB")
        while len(sizes) < 10:
            done = service.get("/health")[1]["batches"]
            if done < (len(sizes) + 1) * given.batches / 10:
                time.sleep(0.05)
                continue
            sizes.append(service.memory())
            print(f"{done:>8}", *(f"{size / 2**20:>10.1f}" for size in sizes[-1].values()))
            sys.stdout.flush()
        codes, wrong = told(clients)
    grown = max(sizes[-1][name] - sizes[1][name] for name in sizes[-1])
    return {
        "batches": given.batches,
        "answers": codes[200],
        "wrong": wrong,
        "grown": grown,
        "good": not wrong and grown <= MOST_GROWTH,
    }


def long_training(given: argparse.Namespace) -> Figures:
    """Train so many tables; return by how much processes have grown, and how large a model is."""
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    sizes: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory(prefix="privet-soak-") as folder:
        local = LocalFederation(Path(folder), n_dealers=given.dealers)
        local.write_tables(rows, new)
        local.write_configuration(data.task, {"tables": given.tables, **TABLES})
        logs = {name: local.folder / f"{name}.log" for name in local.member_names}
        started = time.monotonic()
        processes = {}
        for name, path in logs.items():
            with path.open("wb") as log:
                command = local.make_command(name, "train", "--log-format=json")
                processes[name] = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        least: dict[str, int] = {}  # of a tenth: what comes and goes does not count
        while processes[local.recipient].poll() is None:
            now = {name: resident(p.pid) for name, p in processes.items()}
            least = {name: min(size, least.get(name, size)) for name, size in now.items()}
            done = logs[local.recipient].read_text().count('"event": "table"')
            if len(sizes) < 10 and done >= (len(sizes) + 1) * (given.tables - 5) / 10:
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
        "tables": given.tables,
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
            how = ", ".join(f"{k} {n}" for k, n in sorted(found["disturbed"].items()))
            what = f"{found['minutes']:g} minutes of service, disturbed every {found['every']:g} s"
            came = (
                f"{how}; {found['answers']:,} answers, {found['refused']:,} times 503, "
                f"{len(found['wrong'])} wrong; up again after at most {found['slowest']:.1f} s"
            )
        elif "batches" in found:
            what = f"{found['batches']:,} batches of a service"
            came = f"{found['answers']:,} answers, {len(found['wrong'])} wrong"
        else:
            what = f"a training of {found['tables']:,} tables"
            came = f"{found['seconds']:.0f} s; a part of the model has {_mb(found['model_bytes'])}"
        run = f"`{found['command']}`; {found['machine']}, {found['date']}"
        body.append([what, came, _mb(found["grown"]), run])
    yield from table(("", "what came of it", "most growth of a process", "measured"), body)


def _mb(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def main() -> None:
    """Run one of them."""
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
    given = parser.parse_args()
    if given.batches is not None:
        kind, found = "batches", flat(given)
    elif given.tables is not None:
        kind, found = "tables", long_training(given)
    else:
        kind, found = "disturbed", soak(given)
    command = " ".join(["python -m benchmarks.soak", *sys.argv[1:]]).replace(" --keep", "")
    path = results(not given.keep) / f"{NAME}.json"
    runs = read(path)["runs"] if path.exists() else {}
    runs[kind] = {"command": command, **environment(), **found}
    print(wrapped(section(keep(path, {"runs": runs}, "python -m benchmarks.soak"))))
    print("good" if found["good"] else f"NOT GOOD: {found}")
    sys.exit(not found["good"])


if __name__ == "__main__":
    main()
