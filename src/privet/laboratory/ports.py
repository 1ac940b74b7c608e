"""Ports on this machine, for federations that are about to start.

Whoever listens does so a moment after its port was found to be free, and meanwhile somebody else
may take it. So ports come from below those that systems give to outgoing connections, and every
process has a block of them for itself: it holds the first for as long as it lives.
"""

from __future__ import annotations

import atexit
import os
import random
from collections import deque
from contextlib import ExitStack, suppress
from functools import cache

from privet.errors import UnavailableError
from privet.transport.mesh import listen

_BLOCK = 400
_BLOCKS = range(20_000, 32_000, _BLOCK)


def free_ports(count: int) -> list[int]:
    """Return ports on this machine that nobody listens on, and that nobody else is given.

    They are given in turn: several federations may be made before anybody listens.
    """
    block = _own_block(os.getpid())
    ports: list[int] = []
    with ExitStack() as stack:
        for _ in range(len(block)):
            port = block[0]
            block.rotate(-1)
            with suppress(UnavailableError):
                stack.enter_context(listen(port=port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise UnavailableError(
        f"no {count} ports from {min(block)} to {max(block)} are free on this machine"
    )


@cache
def _own_block(process: int) -> deque[int]:
    """Return the block of a process; one that it inherited by a fork is not its own."""
    for first in random.SystemRandom().sample(_BLOCKS, len(_BLOCKS)):
        with suppress(UnavailableError):
            atexit.register(listen(port=first).close)
            return deque(range(first + 1, first + _BLOCK))
    raise UnavailableError(f"all blocks of ports from {_BLOCKS[0]} on this machine are in use")
