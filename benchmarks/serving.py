"""How fast `privet serve` answers: single rows and batches of 1,000, on loopback and at 5 ms.

    python benchmarks/serving.py

A dealer and three participants serve Breast Cancer (10 tables of depth 3) as processes over TLS,
and clients in threads ask the recipient over HTTP. At 5 ms, all traffic passes
an emulated link of 100 Mbit/s.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.files.contacts import parse_address
from privet.files.job import Job
from privet.laboratory.local_federation import LocalFederation
from privet.runtime.roles import DEALER
from privet.transport.emulator import Link, Route, emulate
from privet.transport.mesh import listen

SECONDS = 5.0


@contextlib.contextmanager
def serving(local: LocalFederation, delay: float | None) -> Iterator[int]:
    """Run all roles of a service, and yield the port where it is asked."""
    with contextlib.ExitStack() as stack:
        if delay is not None:
            stack.enter_context(_behind_a_link(local, delay))
        processes = {}
        for name in local.everybody:
            command = local.command(name, "serve")
            if name == local.recipient:
                command += ["--http=127.0.0.1:0", "--log-format=json"]
            if name != DEALER:
                data = next(part for part in command if part.startswith("--data"))
                command[command.index(data)] = data.replace("new.csv", "train.csv")
            elif delay is not None:
                command.append(f"--listen={_real_addresses(local)[DEALER]}")
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
        yield port
        processes[local.recipient].terminate()
        for process in processes.values():
            process.communicate(timeout=20)


def _real_addresses(local: LocalFederation) -> dict[str, str]:
    return json.loads((local.folder / "real.json").read_text())  # type: ignore[no-any-return]


@contextlib.contextmanager
def _behind_a_link(local: LocalFederation, delay: float) -> Iterator[None]:
    """Let everybody listen elsewhere, and put the relay's doors where the job says they are."""
    job = Job.read(local.job)
    with contextlib.ExitStack() as stack:
        doors = [
            stack.enter_context(listen(*parse_address(job.contact(name).address)))
            for name in local.everybody
        ]
        real = {}
        with contextlib.ExitStack() as free:
            for name in local.everybody:
                host, port = free.enter_context(listen()).getsockname()[:2]
                real[name] = f"{host}:{port}"
        (local.folder / "real.json").write_text(json.dumps(real))
        for name in local.names:
            path = local.folder / name / "party.toml"
            path.write_text(f'listen = "{real[name]}"\n{path.read_text()}')
        routes = [
            Route(door, parse_address(real[name]), 0, 0)
            for door, name in zip(doors, local.everybody, strict=True)
        ]
        stack.enter_context(emulate(routes, [Link(delay, 100e6 / 8)]))
        yield


def ask(port: int, ids: list[str], until: float) -> list[float]:
    """Ask again and again until a time; return how long each answer took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"ids": ids})
    taken = []
    while time.perf_counter() < until:
        started = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        assert len(answer["predictions"]) == len(ids), answer
        taken.append(time.perf_counter() - started)
    return taken


def main() -> None:
    """Run all of it."""
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    with tempfile.TemporaryDirectory(prefix="privet-serving-") as folder:
        local = LocalFederation(Path(folder))
        local.write_tables(rows, new)
        params = {"tables": 10, "depth": 3, "learning_rate": 1.0}
        local.write_configuration(data.task, params)
        for name, ended in local.run("train").items():
            assert not ended.code, f"{name}: {ended.err}"
        assert rows.ids is not None
        ids = rows.ids.tolist()
        head = (
            "network",
            "clients",
            "rows",
            "requests/s",
            "rows/s",
            "median ms",
            "p99 ms",
            "p99/median",
        )
        print("".join(f"{title:>12}" for title in head))
        for network, delay in (("loopback", None), ("5 ms", 0.005)):
            with serving(local, delay) as port:
                for clients, size in ((1, 1), (16, 1), (64, 1), (1, 1000), (8, 1000)):
                    asked = [ids[k % len(ids)] for k in range(size)]
                    ask(port, asked, time.perf_counter())  # one to warm up
                    until = time.perf_counter() + SECONDS
                    with ThreadPoolExecutor(clients) as pool:
                        found = list(pool.map(lambda _: ask(port, asked, until), range(clients)))  # noqa: B023
                    taken = np.concatenate(found)
                    cells = (
                        network,
                        f"{clients}",
                        f"{size}",
                        f"{len(taken) / SECONDS:.1f}",
                        f"{len(taken) * size / SECONDS:.0f}",
                        f"{1000 * np.median(taken):.1f}",
                        f"{1000 * np.quantile(taken, 0.99):.1f}",
                        f"{np.quantile(taken, 0.99) / np.median(taken):.1f}",
                    )
                    print("".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
