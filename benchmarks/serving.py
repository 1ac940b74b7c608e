"""How fast `privet serve` answers: single rows and batches of 1,000, on loopback and at 5 ms.

    python benchmarks/serving.py [--seconds 5] [--networks loopback,5ms] [--dealers 1] [--rows]

A dealer, or three, and three participants serve Breast Cancer (10 tables of depth 3) as processes
over TLS, and clients in threads ask the recipient over HTTP; with --rows, the recipient's columns
come with the request. At 5 ms, all traffic passes an emulated link of 100 Mbit/s.

"cpu ms" is the computing of all roles, but not of the clients, for one request. It tells more than
seconds do where the machine is not ours alone. The goals, on two cores and loopback: 1,500 single
rows a second to 64 clients, 100 to one, and a p99 below 5 times the median.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privet.config.job import Job
from privet.config.members import parse_address
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.data.reader import read_frame
from privet.experiments.local_federation import LocalFederation
from privet.runtime.local.network import EmulatedLink, Route, emulate_links
from privet.transport.rendezvous import listen

DELAYS = {"loopback": None, "5ms": 0.005}
COLUMNS = (
    *("network", "clients", "rows", "requests/s", "rows/s", "median ms", "p99 ms", "p99/median"),
    "cpu ms",
)


class Served(NamedTuple):
    """A service that runs."""

    port: int
    processes: list[subprocess.Popen[str]]


@contextlib.contextmanager
def serving(local: LocalFederation, delay: float | None) -> Iterator[Served]:
    """Run all roles of a service, and yield where it is asked."""
    with contextlib.ExitStack() as stack:
        if delay is not None:
            stack.enter_context(_behind_a_link(local, delay))
        processes = {}
        for name in local.member_names:
            command = local.make_command(name, "serve")
            if name == local.recipient:
                command += ["--http=127.0.0.1:0", "--log-format=json"]
            if name not in local.dealer_names:
                data = next(part for part in command if part.startswith("--data"))
                command[command.index(data)] = data.replace("new.csv", "train.csv")
            elif delay is not None:
                command.append(f"--listen={_real_addresses(local)[name]}")
            processes[name] = stack.enter_context(
                subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
            )
            stack.callback(processes[name].kill)
        said = processes[local.recipient].stderr
        assert said is not None
        port = 0
        for line in said:
            event = json.loads(line)
            port = event.get("port", port) if event["event"] == "http" else port
            if event["event"] == "serving":
                break
        yield Served(port, list(processes.values()))
        processes[local.recipient].terminate()
        for process in processes.values():
            process.communicate(timeout=20)


def _real_addresses(local: LocalFederation) -> dict[str, str]:
    return json.loads((local.folder / "real.json").read_text())  # type: ignore[no-any-return]


@contextlib.contextmanager
def _behind_a_link(local: LocalFederation, delay: float) -> Iterator[None]:
    """Let everybody listen elsewhere, and put the relay's doors where the job says they are."""
    job = Job.read(local.job_path)
    with contextlib.ExitStack() as stack:
        doors = [
            stack.enter_context(listen(*parse_address(job.get_entry(name).address)))
            for name in local.member_names
        ]
        real = {}
        with contextlib.ExitStack() as free:
            for name in local.member_names:
                host, port = free.enter_context(listen()).getsockname()[:2]
                real[name] = f"{host}:{port}"
        (local.folder / "real.json").write_text(json.dumps(real))
        for name in local.party_names:
            path = local.folder / name / "party.toml"
            path.write_text(f'listen = "{real[name]}"\n{path.read_text()}')
        routes = [
            Route(door, parse_address(real[name]), 0, 0)
            for door, name in zip(doors, local.member_names, strict=True)
        ]
        stack.enter_context(emulate_links(routes, [EmulatedLink(delay, 100e6 / 8)]))
        yield


def ask(port: int, body: str, size: int, until: float) -> list[float]:
    """Ask again and again until a time; return how long each answer took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    taken = []
    while time.perf_counter() < until:
        started = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        assert len(answer["predictions"]) == size, answer
        taken.append(time.perf_counter() - started)
    connection.close()
    return taken


def computing(service: Served) -> float:
    """Return the seconds of computing that all roles took so far."""
    total = 0.0
    for process in service.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def bodies(local: LocalFederation, ids: list[str], size: int, *, with_rows: bool) -> str:
    """Return a request for so many rows: their ids, or the recipient's columns, too."""
    if not with_rows:
        return json.dumps({"ids": [ids[k % len(ids)] for k in range(size)]})
    frame = read_frame(local.folder / local.recipient / "train.csv", id="id", label="label")
    cells = frame.columns.T.tolist()
    rows = [dict(zip(frame.names, cells[k % len(ids)], strict=True)) for k in range(size)]
    return json.dumps({"rows": [{"id": ids[k % len(ids)], **row} for k, row in enumerate(rows)]})


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="of every measurement")
    parser.add_argument("--networks", default=",".join(DELAYS))
    parser.add_argument("--dealers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rows", action="store_true", help="ask with the recipient's columns")
    given = parser.parse_args()
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    with tempfile.TemporaryDirectory(prefix="privet-serving-") as folder:
        local = LocalFederation(Path(folder), n_dealers=given.dealers)
        local.write_tables(rows, new)
        params = {"tables": 10, "depth": 3, "learning_rate": 1.0}
        local.write_configuration(data.task, params)
        for name, ended in local.run_command("train").items():
            assert not ended.return_code, f"{name}: {ended.stderr}"
        assert rows.ids is not None
        ids = rows.ids.tolist()
        print("".join(f"{title:>12}" for title in COLUMNS))
        for network in given.networks.split(","):
            with serving(local, DELAYS[network]) as service:
                for clients, size in ((1, 1), (16, 1), (64, 1), (1, 1000), (8, 1000)):
                    body = bodies(local, ids, size, with_rows=given.rows)
                    cells: tuple[str, ...] = (network, f"{clients}", f"{size}")
                    cells += measured(service, body, clients, size, given.seconds)
                    print("".join(f"{cell:>12}" for cell in cells), flush=True)


def measured(
    service: Served, body: str, clients: int, size: int, seconds: float
) -> tuple[str, ...]:
    """Ask for a while; return what is told of it."""
    ask(service.port, body, size, time.perf_counter() + 0.2)  # to warm up
    before, until = computing(service), time.perf_counter() + seconds
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda _: ask(service.port, body, size, until), range(clients)))
    taken = np.concatenate(found)
    median, late = np.quantile(taken, (0.5, 0.99))
    return (
        f"{len(taken) / seconds:.1f}",
        f"{len(taken) * size / seconds:.0f}",
        f"{1000 * median:.1f}",
        f"{1000 * late:.1f}",
        f"{late / median:.1f}",
        f"{1000 * (computing(service) - before) / len(taken):.2f}",
    )


if __name__ == "__main__":
    main()
