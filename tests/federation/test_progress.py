"""What is said of groups while a training goes on: which one is waited for."""

from __future__ import annotations

import threading
import time
from typing import Any

from privet.federation.progress import groups
from privet.runtime.orders import Head, Order, Worker
from privet.transport.memory import memory_channels


def test_the_group_that_is_waited_for() -> None:
    links = [memory_channels(["head", "worker"]) for _ in range(2)]
    heads = [Head(link["head"], "worker", k) for k, link in enumerate(links)]
    workers = [Worker(link["worker"], "head") for link in links]
    assert groups(()) == {}
    for head in heads:
        head.give(Order("setup"))
    for worker in workers:
        assert worker.next().name == "setup"
    workers[0].done()

    def wait() -> None:
        for head in heads:
            head.answer([])

    thread = threading.Thread(target=wait)
    thread.start()
    until = time.monotonic() + 10
    seen: dict[str, Any] = groups(heads)
    while seen["waits_for_group"] != 2 and time.monotonic() < until:
        seen = groups(heads)
        time.sleep(0.01)
    assert seen["waits_for_group"] == 2
    assert seen["waits_seconds"] >= 0
    time.sleep(0.05)  # longer than the first one's answer, which was there, took to be read
    workers[1].done()
    thread.join(10)
    found = groups(heads)
    assert (found["groups"], found["slowest_group"], found["waits_for_group"]) == (2, 2, None)
    assert found["seconds_waited"] >= 0.05
