from __future__ import annotations

import os
import subprocess
import sys

from privet.experiments import local_federation
from privet.experiments.local_federation import find_free_ports
from privet.transport.rendezvous import listen

OTHERS = (
    "from privet.experiments.local_federation import find_free_ports; "
    "print(*find_free_ports(200)); input()"
)


def test_no_port_is_given_twice_before_anybody_listens() -> None:
    given = [port for _ in range(20) for port in find_free_ports(5)]
    assert len(set(given)) == len(given)


def test_ports_that_are_in_use_are_passed_over() -> None:
    block = local_federation._reserve_block(os.getpid())
    with listen(port=block[0]), listen(port=block[2]):
        taken = {block[0], block[2]}
        assert not taken & set(find_free_ports(5))


def test_no_two_processes_are_given_the_same() -> None:
    """Eight of them and us, at the same time, half of a block each."""
    processes = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", OTHERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    given = [str(port) for port in find_free_ports(200)]
    for process in processes:
        assert process.stdout is not None
        given += process.stdout.readline().split()
    for process in processes:
        process.communicate("\n")
    assert len(given) == len(set(given)) == 9 * 200
