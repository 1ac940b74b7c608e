"""Throughput and latency of `privet serve`: single rows and batches of 1,000, loopback and 5 ms.

    python benchmarks/serving.py [--seconds 5] [--networks loopback,5ms] [--dealers 1] [--rows]

One or three dealers and three participants serve Breast Cancer (10 tables of depth 3) as processes
over TLS. Clients in threads send HTTP requests to the recipient; with --rows, requests contain the
recipient's columns. At 5 ms, all traffic passes an emulated link of 100 Mbit/s.

"cpu ms" is the computing time of all roles for one request, without the clients; it is more
reliable than wall-clock time on a shared machine. The goals on two cores and loopback: 1,500 single
rows a second for 64 clients, 100 for one client, and a p99 below 5 times the median.
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
    """A running service."""

    port: int
    processes: list[subprocess.Popen[str]]


@contextlib.contextmanager
def serving(local: LocalFederation, delay: float | None) -> Iterator[Served]:
    """Run all roles of a service; yield its port and processes."""
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
        events = processes[local.recipient].stderr
        assert events is not None
        port = 0
        for line in events:
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
    """Move all members to other addresses, and let the relay listen on those of the job."""
    job = Job.read(local.job_path)
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(listen(*parse_address(job.get_entry(name).address)))
            for name in local.member_names
        ]
        real_addresses = {}
        with contextlib.ExitStack() as reserved:
            for name in local.member_names:
                host, port = reserved.enter_context(listen()).getsockname()[:2]
                real_addresses[name] = f"{host}:{port}"
        (local.folder / "real.json").write_text(json.dumps(real_addresses))
        for name in local.party_names:
            path = local.folder / name / "party.toml"
            path.write_text(f'listen = "{real_addresses[name]}"\n{path.read_text()}')
        routes = [
            Route(listener, parse_address(real_addresses[name]), 0, 0)
            for listener, name in zip(listeners, local.member_names, strict=True)
        ]
        stack.enter_context(emulate_links(routes, [EmulatedLink(delay, 100e6 / 8)]))
        yield


def ask(port: int, body: str, size: int, deadline: float) -> list[float]:
    """Send requests until a deadline; return the latency of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    latencies = []
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        assert len(answer["predictions"]) == size, answer
        latencies.append(time.perf_counter() - started)
    connection.close()
    return latencies


def computing(service: Served) -> float:
    """Return the total computing seconds of all roles so far."""
    total = 0.0
    for process in service.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def bodies(local: LocalFederation, ids: list[str], size: int, *, with_rows: bool) -> str:
    """Return a request body for a number of rows: ids, or inline rows."""
    if not with_rows:
        return json.dumps({"ids": [ids[k % len(ids)] for k in range(size)]})
    frame = read_frame(local.folder / local.recipient / "train.csv", id="id", label="label")
    cells = frame.columns.T.tolist()
    rows = [dict(zip(frame.names, cells[k % len(ids)], strict=True)) for k in range(size)]
    return json.dumps({"rows": [{"id": ids[k % len(ids)], **row} for k, row in enumerate(rows)]})


def main() -> None:
    """Measure all combinations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="of every measurement")
    parser.add_argument("--networks", default=",".join(DELAYS))
    parser.add_argument("--dealers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rows", action="store_true", help="ask with the recipient's columns")
    arguments = parser.parse_args()
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    with tempfile.TemporaryDirectory(prefix="privet-serving-") as folder:
        local = LocalFederation(Path(folder), n_dealers=arguments.dealers)
        local.write_tables(rows, new)
        params = {"tables": 10, "depth": 3, "learning_rate": 1.0}
        local.write_configuration(data.task, params)
        for name, process in local.run_command("train").items():
            assert not process.return_code, f"{name}: {process.stderr}"
        assert rows.ids is not None
        ids = rows.ids.tolist()
        print("".join(f"{title:>12}" for title in COLUMNS))
        for network in arguments.networks.split(","):
            with serving(local, DELAYS[network]) as service:
                for clients, size in ((1, 1), (16, 1), (64, 1), (1, 1000), (8, 1000)):
                    body = bodies(local, ids, size, with_rows=arguments.rows)
                    cells: tuple[str, ...] = (network, f"{clients}", f"{size}")
                    cells += measured(service, body, clients, size, arguments.seconds)
                    print("".join(f"{cell:>12}" for cell in cells), flush=True)


def measured(
    service: Served, body: str, clients: int, size: int, seconds: float
) -> tuple[str, ...]:
    """Send requests for a while; return the cells of the row."""
    ask(service.port, body, size, time.perf_counter() + 0.2)  # to warm up
    computing_before, deadline = computing(service), time.perf_counter() + seconds
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda _: ask(service.port, body, size, deadline), range(clients)))
    latencies = np.concatenate(found)
    median, late = np.quantile(latencies, (0.5, 0.99))
    return (
        f"{len(latencies) / seconds:.1f}",
        f"{len(latencies) * size / seconds:.0f}",
        f"{1000 * median:.1f}",
        f"{1000 * late:.1f}",
        f"{late / median:.1f}",
        f"{1000 * (computing(service) - computing_before) / len(latencies):.2f}",
    )


if __name__ == "__main__":
    main()
