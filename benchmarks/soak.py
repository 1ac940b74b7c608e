"""A service for minutes or hours: kill, freeze and stop its processes, and look at every answer.

    python benchmarks/soak.py [--minutes 5] [--every 60] [--clients 8] [--dealers 1] [--seed 0]
    python benchmarks/soak.py --batches 10000

The first has a random process of a running service killed, frozen for a while or terminated every
so many seconds, and started again. It is good if no answer was wrong, if the only others were 503
or, while the recipient itself was gone, none, and if the service was up within 10 s of the restart.

The second leaves all in peace, and looks at the memory of every process after each tenth of so many
batches. It is good if none grew by more than a megabyte from the second tenth to the last.
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

from privet.arrays import FloatArray
from privet.boosting.part import join
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.files.part_file import load_part
from privet.laboratory.local_federation import LocalFederation, free_ports

BACK_WITHIN = 10.0
"""Seconds from the start of who was lost until predictions are to be had again."""
FROZEN = 13.0
"""Seconds for which a process is frozen: longer than it takes to give it up."""
MOST_GROWTH = 1 << 20
TOLERANCE = 1e-3
"""Predictions are rounded to 2^-10 of the log-odds, which is at most a quarter of that."""


class Service:
    """All roles of a service as processes."""

    def __init__(self, local: LocalFederation) -> None:
        self.local = local
        (self.port,) = free_ports(1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a role, for the first time or again."""
        keep = name != self.local.recipient
        options = ["--keep"] if keep else [f"--http=127.0.0.1:{self.port}"]
        command = self.local.command(name, "serve", *options)
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
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            name: page * int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            for name, process in self.processes.items()
        }


def _line(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


class Client(threading.Thread):
    """Asks for random rows, and compares every answer with the model in the clear."""

    def __init__(self, port: int, ids: list[str], expected: FloatArray, seed: int) -> None:
        super().__init__(daemon=True)
        self._port, self._ids, self._expected = port, ids, expected
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
        for name, ended in local.run("train").items():
            assert not ended.code, f"{name}: {ended.err}"
        assert rows.ids is not None
        model = join([load_part(local.part(name)).part for name in local.names])
        service = Service(local)
        try:
            for name in local.everybody:
                service.start(name)
            service.await_ready()
            yield service, rows.ids.tolist(), model.predict(rows.columns)
        finally:
            for process in service.processes.values():
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


def asking(
    service: Service, ids: list[str], expected: FloatArray, count: int, seed: int
) -> list[Client]:
    """Return clients that have begun to ask."""
    clients = [Client(service.port, ids, expected, 1000 * seed + k) for k in range(count)]
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


def soak(minutes: float, every: float, n_clients: int, dealers: int, seed: int) -> bool:
    """Disturb a service again and again; tell whether it was good all the while."""
    chance = random.Random(seed)  # noqa: S311
    with running(dealers) as (service, ids, expected):
        clients = asking(service, ids, expected, n_clients, seed)
        until, slowest = time.monotonic() + 60 * minutes, 0.0
        while (begun := time.monotonic()) < until:
            victim, how = (
                chance.choice(service.local.everybody),
                chance.choice(("kill", "kill", "terminate", "freeze")),
            )
            before = service.memory()
            seconds = disturb(service, how, victim)
            slowest = max(slowest, seconds)
            megabytes = " ".join(f"{size >> 20}" for size in before.values())
            print(f"{how:>10} {victim:<8} up after {seconds:5.1f} s   MB {megabytes}", flush=True)
            time.sleep(max(0.0, begun + every - time.monotonic()))
        health = service.get("/health")[1]
        codes, wrong = told(clients)
    print(f"answers {dict(codes)}, in the last recipient's time {health}")
    print(f"wrong: {len(wrong)} {wrong[:3]}; slowest to be up again: {slowest:.1f} s")
    return not wrong and slowest <= BACK_WITHIN and codes[200] > 0


def flat(batches: int, n_clients: int, dealers: int, seed: int) -> bool:
    """Run so many batches; tell whether no process has grown."""
    sizes: list[dict[str, int]] = []
    with running(dealers) as (service, ids, expected):
        clients = asking(service, ids, expected, n_clients, seed)
        print(f"{'batches':>8}", *(f"{name:>10}" for name in service.processes), " in MB")
        while len(sizes) < 10:
            done = service.get("/health")[1]["batches"]
            if done < (len(sizes) + 1) * batches / 10:
                time.sleep(0.05)
                continue
            sizes.append(service.memory())
            print(f"{done:>8}", *(f"{size / 2**20:>10.1f}" for size in sizes[-1].values()))
            sys.stdout.flush()
        codes, wrong = told(clients)
    grown = {name: sizes[-1][name] - sizes[1][name] for name in sizes[-1]}
    print(f"answers {dict(codes)}; wrong: {len(wrong)} {wrong[:3]}")
    print("grown from the second tenth to the last, in bytes:", grown)
    return not wrong and max(grown.values()) <= MOST_GROWTH


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between disturbances")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--dealers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, help="instead: look at memory over so many")
    given = parser.parse_args()
    if given.batches is not None:
        good = flat(given.batches, given.clients, given.dealers, given.seed)
    else:
        good = soak(given.minutes, given.every, given.clients, given.dealers, given.seed)
    print("good" if good else "NOT GOOD")
    sys.exit(not good)


if __name__ == "__main__":
    main()
