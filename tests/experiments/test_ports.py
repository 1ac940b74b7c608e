from __future__ import annotations

import os
import subprocess
import sys

from privet.experiments import local_federation
from privet.experiments.local_federation import find_free_ports
from privet.transport.rendezvous import listen

SCRIPT = (
    "from privet.experiments.local_federation import find_free_ports; "
    "print(*find_free_ports(200)); input()"
)


def test_ports_are_distinct_before_any_listener() -> None:
    ports = [port for _ in range(20) for port in find_free_ports(5)]
    assert len(set(ports)) == len(ports)


def test_used_ports_are_skipped() -> None:
    block = local_federation._reserve_block(os.getpid())
    with listen(port=block[0]), listen(port=block[2]):
        used = {block[0], block[2]}
        assert not used & set(find_free_ports(5))


def test_processes_receive_distinct_ports() -> None:
    """Nine processes at the same time, half of a block each."""
    processes = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    ports = [str(port) for port in find_free_ports(200)]
    for process in processes:
        assert process.stdout is not None
        ports += process.stdout.readline().split()
    for process in processes:
        process.communicate("\n")
    assert len(ports) == len(set(ports)) == 9 * 200
