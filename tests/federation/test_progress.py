"""Progress of worker groups during training: the awaited group, and the traffic."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from privet.errors import PeerError, PeerMisbehavedError
from privet.federation.monitoring.progress import describe_shard_groups
from privet.runtime.accounting import Meter, MeterTotals
from privet.runtime.workers import Command, CommandLoop, WorkerHandle, receive_responses
from privet.transport import channel
from privet.transport.memory import create_memory_channels


def make_groups(count: int) -> tuple[list[WorkerHandle], list[CommandLoop]]:
    """Return the coordinator's handles and the workers' command loops of `count` groups."""
    links = [create_memory_channels(["coordinator", "worker"]) for _ in range(count)]
    handles = [WorkerHandle(link["coordinator"], "worker", k) for k, link in enumerate(links)]
    return handles, [CommandLoop(link["worker"], "coordinator") for link in links]


def start_command(handles: list[WorkerHandle], workers: list[CommandLoop]) -> threading.Thread:
    """Send a command to all workers; return the thread that waits for their responses."""
    for handle in handles:
        handle.send_command(Command("setup"))
    for worker in workers:
        assert worker.receive_command().name == "setup"
    thread = threading.Thread(target=receive_responses, args=(handles, [[] for _ in handles]))
    thread.start()
    return thread


def wait_for(handles: list[WorkerHandle], number: int) -> dict[str, Any]:
    """Wait until this group is the awaited one; return the description."""
    deadline = time.monotonic() + 10
    while (description := describe_shard_groups(handles))["waits_for_group"] != number:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return description


def test_awaited_group_is_reported() -> None:
    assert describe_shard_groups(()) == {}
    handles, workers = make_groups(2)
    thread = start_command(handles, workers)
    wait_for(handles, 1)
    time.sleep(0.1)
    workers[0].send_result()
    assert wait_for(handles, 2)["waits_seconds"] >= 0
    time.sleep(0.05)
    workers[1].send_result()
    thread.join(10)
    found = describe_shard_groups(handles)
    # The coordinator waited longer for group 1, but group 2 was the slowest.
    assert (found["groups"], found["slowest_group"], found["waits_for_group"]) == (2, 2, None)
    assert found["seconds_waited"] >= 0.15


def test_the_slowest_of_several_groups() -> None:
    """The middle group is the slowest, in either order of the other two."""
    handles, workers = make_groups(3)
    for early, late in ((0, 2), (2, 0)):
        thread = start_command(handles, workers)
        wait_for(handles, 1)
        for number in (early, late, 1):
            time.sleep(0.02)
            workers[number].send_result()
        thread.join(10)
    waited = [handle.wait_seconds for handle in handles]
    assert waited[0] == waited[2] == 0.0
    assert waited[1] >= 0.12


def test_early_response_has_no_wait_time() -> None:
    handles, workers = make_groups(2)
    for handle in handles:
        handle.send_command(Command("setup"))
    for worker in workers:
        worker.receive_command()
        worker.send_result()
    receive_responses(handles, [[], []])
    assert [handle.wait_seconds for handle in handles] == [0.0, 0.0]


@pytest.mark.parametrize("peak", ["NaN", "Infinity", "null", "[]", '"much"', ""])
def test_invalid_worker_memory_is_rejected(peak: str) -> None:
    (handle,), (worker,) = make_groups(1)
    worker.send_meter(Meter(), 12.5)
    assert handle.receive_meter() == Meter()
    assert handle.peak_rss_mb == 12.5
    worker.send_result()
    content = '{"online": {}, "offline": {}' + (f', "peak_rss_mb": {peak}' if peak else "") + "}"
    channel.send_message(worker.channel, ["coordinator"], content.encode())
    with pytest.raises(PeerMisbehavedError, match="has no meter"):
        handle.receive_meter()


def test_worker_traffic_is_updated_by_responses() -> None:
    """Rounds are those of one worker, bytes are summed; a failure changes nothing."""
    handles, workers = make_groups(2)
    for metered in (
        (MeterTotals(1, 10, 100, 1000), MeterTotals(1, 20, 200, 2000)),
        (MeterTotals(5, 11),),
    ):
        for handle, worker, figures in zip(handles, workers, metered, strict=False):
            worker.send_result(totals=figures)
            handle.receive_response([])
    expected = {"rounds": 5, "sent": 31, "received": 200, "dealt": 2000}
    assert describe_shard_groups(handles)["by_workers"] == expected
    workers[1].send_failure(OSError("gone"), "table 1")
    with pytest.raises(PeerError):
        handles[1].receive_response([])
    assert describe_shard_groups(handles)["by_workers"] == expected
