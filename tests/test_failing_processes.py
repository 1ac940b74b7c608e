"""Processes that fail before all are connected: the others end in seconds and name them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from privet.config.job import Job
from privet.config.members import parse_address
from privet.errors import UnavailableError
from privet.experiments.local_federation import LocalFederation
from privet.federation.session.agreement import Proposal
from privet.transport.channel import send_message
from privet.transport.rendezvous import listen
from privet.transport.sockets import SocketChannel
from tests.federation.harness import change, prepare
from tests.federation.manual_peer import connect_as, connect_in_background
from tests.federation.test_setup_errors import new_keys
from tests.test_processes import await_event, events

SECONDS = 10.0
"""The others must end within this time after they can detect the failure."""
TIMEOUT_SECONDS = 60.0
"""Limit for processes to start and end on a slow machine."""


@contextmanager
def started(
    local: LocalFederation, name: str, verb: str, *options: str
) -> Iterator[subprocess.Popen[str]]:
    with local.start_process(name, verb, *options) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@contextmanager
def waiting(
    local: LocalFederation, verb: str, *names: str
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start members, and wait until they listen; they wait ten minutes for the others."""
    with ExitStack() as stack:
        starting = {name: started(local, name, verb, "--log-format=json") for name in names}
        running = {name: stack.enter_context(each) for name, each in starting.items()}
        for process in running.values():
            await_event(process, "listening")
        yield running


def expect_end(
    running: dict[str, subprocess.Popen[str]], failed: str, complaint: str
) -> dict[str, list[dict[str, Any]]]:
    """Check that all processes end and name the failed member; return their logs."""
    logs = {}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for name, process in running.items():
        _, stderr = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        logs[name] = events(stderr)
        last = logs[name][-1]
        assert (process.returncode, last["code"]) == (7, 7), name
        assert (last["error"], last["peer"]) == ("PeerFailedError", failed)
        assert complaint in last["text"]
    return logs


def clock(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def others(local: LocalFederation, failed: str) -> list[str]:
    return [name for name in local.member_names if name != failed]


@pytest.mark.parametrize("failed", ["bank", "shop"])
def test_unreadable_table(tmp_path: Path, failed: str) -> None:
    local = prepare(tmp_path)
    (tmp_path / failed / "train.csv").write_text("")
    with (
        waiting(local, "train", *others(local, failed)) as running,
        started(local, failed, "train") as failing,
    ):
        _, stderr = failing.communicate(timeout=TIMEOUT_SECONDS)
        ended = time.time()
        logs = expect_end(running, failed, "its table cannot be read or used (exit code 4)")
        assert max(clock(each[-1]) for each in logs.values()) < ended + SECONDS
    assert failing.returncode == 4
    notice, complaint = stderr.splitlines()
    assert notice == f"told {', '.join(others(local, failed))} that we cannot take part"
    assert complaint.startswith("error: ")
    assert "the file is empty" in complaint


# Two of the cases that tests/federation/test_startup_failures.py runs in threads.
@pytest.mark.parametrize(("failed", "keys"), [("shop", "missing"), ("dealer", "others")])
def test_unusable_keys(tmp_path: Path, failed: str, keys: str) -> None:
    local = prepare(tmp_path)
    if keys == "missing":
        (tmp_path / failed / f"{failed}.key").unlink()
    else:
        new_keys(local, failed)
    with (
        waiting(local, "train", *others(local, failed)) as running,
        started(local, failed, "train") as failing,
    ):
        logs = expect_end(running, failed, "no agreement with what answers")
        _, stderr = failing.communicate(timeout=TIMEOUT_SECONDS)
    certificate_events = [
        event for each in logs.values() for event in each if "certificate" in event["text"]
    ]
    start = min(clock(event) for event in certificate_events)
    assert max(clock(each[-1]) for each in logs.values()) < start + SECONDS
    assert failing.returncode == (6 if keys == "missing" else 3)
    refusal, complaint = stderr.splitlines()
    assert refusal == f"could not prove to {', '.join(others(local, failed))} who we are"
    assert complaint.startswith("error: ")


@pytest.mark.parametrize(
    ("interrupted", "number"),
    [("bank", signal.SIGINT), ("shop", signal.SIGTERM), ("dealer", signal.SIGTERM)],
    ids=["bank-INT", "shop-TERM", "dealer-TERM"],
)
def test_interrupt_while_waiting(tmp_path: Path, interrupted: str, number: int) -> None:
    """One of three members is absent; another is interrupted after it connected to the third."""
    local = prepare(tmp_path)
    absent = "bank" if interrupted == "shop" else "shop"
    with waiting(
        local, "train", *(name for name in local.member_names if name != absent)
    ) as running:
        leaving = running.pop(interrupted)
        await_event(leaving, "waiting")
        leaving.send_signal(number)
        interrupt_time = time.time()
        logs = expect_end(running, interrupted, "it was interrupted (exit code 130)")
        assert max(clock(each[-1]) for each in logs.values()) < interrupt_time + SECONDS
        _, stderr = leaving.communicate(timeout=TIMEOUT_SECONDS)
        last = events(stderr)[-1]
        assert (leaving.returncode, last["event"], last["code"]) == (130, "interrupted", 130)


def test_interrupt_is_the_last_line_of_text_output(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    with started(local, "bank", "train") as bank:
        assert bank.stderr is not None
        assert "listens on" in bank.stderr.readline()
        bank.send_signal(signal.SIGTERM)
        _, stderr = bank.communicate(timeout=TIMEOUT_SECONDS)
    assert bank.returncode == 130
    assert stderr.splitlines()[-1] == "interrupted"


def test_missing_part(tmp_path: Path) -> None:
    """With `--job`, a participant without a part can still notify the others."""
    local = prepare(tmp_path, tables=1)
    ended = local.run_command("train", timeout=60)
    assert {end.return_code for end in ended.values()} == {0}, ended
    local.get_part_path("bank").unlink()
    with (
        waiting(local, "predict", "shop", "dealer") as running,
        started(local, "bank", "predict", f"--job={local.job_path}") as failing,
    ):
        expect_end(running, "bank", "its model cannot be read or used")
        failing.communicate(timeout=TIMEOUT_SECONDS)
    assert failing.returncode == 5


def test_kept_dealer_continues_after_a_failure(tmp_path: Path) -> None:
    """It reports the failure notice, and serves the next session."""
    local = prepare(tmp_path, tables=1)
    table = tmp_path / "bank" / "train.csv"
    whole = table.read_text()
    table.write_text("")
    with started(local, "dealer", "train", "--keep", "--log-format=json") as dealer:
        await_event(dealer, "listening")
        with started(local, "bank", "train") as failing:
            failing.communicate(timeout=TIMEOUT_SECONDS)
        failed = await_event(dealer, "failed")
        assert failed["peer"] == "bank"
        assert "its table cannot be read" in failed["text"]
        table.write_text(whole)
        with (
            started(local, "bank", "train", "--wait=60") as bank,
            started(local, "shop", "train", "--wait=60") as shop,
        ):
            for process in (bank, shop):
                _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
                assert process.returncode == 0, stderr
        await_event(dealer, "done")
        dealer.send_signal(signal.SIGTERM)
        _, stderr = dealer.communicate(timeout=TIMEOUT_SECONDS)
        assert (dealer.returncode, events(stderr)[-1]["event"]) == (130, "interrupted")


def test_kept_dealer_is_not_blocked_by_silent_peers(tmp_path: Path) -> None:
    """The peers connect, and then send nothing, not even heartbeats."""
    local = prepare(tmp_path)
    with started(local, "dealer", "train", "--keep", "--log-format=json") as dealer:
        await_event(dealer, "listening")
        bank = connect_in_background(local, "bank")
        frozen = connect_as(local, "shop"), bank()
        await_event(dealer, "connected")
        start = time.monotonic()
        failed = await_event(dealer, "failed")
        assert failed["peer"] in ("bank", "shop")
        assert failed["step"] == "agreement"
        assert "nothing heard from it for 10 s" in failed["error"]
        assert time.monotonic() - start < 2 * SECONDS
        await_event(dealer, "listening")
    for connection in (connection for connections in frozen for connection in connections.values()):
        connection.sock.close()


def test_suspended_process_can_continue(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    with waiting(local, "train", "bank", "shop") as running:
        while "dealer" not in await_event(running["bank"], "waiting")["text"]:
            pass
        running["shop"].send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        while "shop (was here, but nothing" not in await_event(running["bank"], "waiting")["text"]:
            assert time.monotonic() < frozen + 2 * SECONDS, "the silence is not noticed"
        running["shop"].send_signal(signal.SIGCONT)
        with started(local, "dealer", "train") as dealer:
            for process in (*running.values(), dealer):
                _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
                assert process.returncode == 0, stderr


def test_disagreement_is_reported_without_a_goodbye(tmp_path: Path) -> None:
    """The other member only sends heartbeats, which the processes do not wait for."""
    local = prepare(tmp_path)
    with waiting(local, "train", "bank", "dealer") as running:
        channel = SocketChannel("shop", connect_as(local, "shop"))
        job = Job.read(local.job_path)
        stated = Proposal.for_job(job, command="train")
        other = stated.model_copy(update={"terms": {**stated.terms, "tables": 7}})
        send_message(channel, channel.peers, other.model_dump_json().encode())
        start = time.monotonic()
        for process in running.values():
            _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
            last = events(stderr)[-1]
            assert (process.returncode, last["error"], last["peer"]) == (
                9,
                "DisagreementError",
                "shop",
            )
            assert "tables: 3 here" in last["text"]
        assert time.monotonic() - start < SECONDS
        channel.abort()


def is_free(address: tuple[str, int]) -> bool:
    try:
        listen(*address).close()
    except UnavailableError:
        return False
    return True


def test_a_dealer_ends_with_who_plays_it(tmp_path: Path) -> None:
    """The dealer's port must be free for the next attempt."""
    names = ("bank", "telecom", "shop")
    local = prepare(tmp_path, names=names, dealers=3)
    for name, dealer in zip(names, local.dealer_names, strict=True):
        change(local.job_path, (f'name = "{dealer}"', f'name = "{dealer}"\nby = "{name}"'))
    keys = tmp_path / "dealer1" / "dealer1"
    with (tmp_path / "bank" / "party.toml").open("a") as file:
        file.write(f'\n[dealer]\nkey = "{keys}.key"\ncertificate = "{keys}.crt"\n')
    address = parse_address(Job.read(local.job_path).get_entry("dealer1").address)
    until = time.monotonic() + TIMEOUT_SECONDS
    with started(local, "bank", "train", "--log-format=json") as bank:
        await_event(bank, "dealer")
        while is_free(address):
            assert time.monotonic() < until, "the dealer does not start"
            time.sleep(0.1)
        bank.kill()
        killed = time.monotonic()
        while not is_free(address):
            assert time.monotonic() < killed + SECONDS, "the dealer stays"
            time.sleep(0.1)
