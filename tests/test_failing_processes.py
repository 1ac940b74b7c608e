"""Processes that fail before all have met: the others end within seconds, and name who it was."""

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
from tests.federation.by_hand import come, coming
from tests.federation.harness import change, prepare
from tests.federation.test_bad_peers import new_keys
from tests.test_processes import await_event, events

SECONDS = 10.0
"""Within which the others must end, once they could know."""
PATIENCE = 60.0
"""Within which all must end, on a machine that takes its time to start a process."""


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
    """Start some, and wait until they wait for the others: ten minutes, unless they are told."""
    with ExitStack() as stack:
        starting = {name: started(local, name, verb, "--log-format=json") for name in names}
        running = {name: stack.enter_context(each) for name, each in starting.items()}
        for process in running.values():
            await_event(process, "listening")
        yield running


def expect_end(
    running: dict[str, subprocess.Popen[str]], who: str, complaint: str
) -> dict[str, list[dict[str, Any]]]:
    """All of them must end, naming the one who failed; return what they said."""
    said = {}
    until = time.monotonic() + PATIENCE
    for name, process in running.items():
        _, text = process.communicate(timeout=max(0.1, until - time.monotonic()))
        said[name] = events(text)
        last = said[name][-1]
        assert (process.returncode, last["code"]) == (7, 7), name
        assert (last["error"], last["peer"]) == ("PeerFailedError", who)
        assert complaint in last["text"]
    return said


def clock(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def others(local: LocalFederation, who: str) -> list[str]:
    return [name for name in local.member_names if name != who]


@pytest.mark.parametrize("who", ["bank", "shop"])
def test_a_table_that_cannot_be_read(tmp_path: Path, who: str) -> None:
    local = prepare(tmp_path)
    (tmp_path / who / "train.csv").write_text("")
    with (
        waiting(local, "train", *others(local, who)) as running,
        started(local, who, "train") as failing,
    ):
        _, said = failing.communicate(timeout=PATIENCE)
        ended = time.time()
        heard = expect_end(running, who, "its table cannot be read or used (exit code 4)")
        assert max(clock(each[-1]) for each in heard.values()) < ended + SECONDS
    assert failing.returncode == 4
    told, complaint = said.splitlines()
    assert told == f"told {', '.join(others(local, who))} that we cannot take part"
    assert complaint.startswith("error: ")
    assert "the file is empty" in complaint


# Two of all pairs, which tests/federation/test_failures_at_home.py has in threads.
@pytest.mark.parametrize(("who", "keys"), [("shop", "missing"), ("dealer", "others")])
def test_keys_that_cannot_be_used(tmp_path: Path, who: str, keys: str) -> None:
    local = prepare(tmp_path)
    if keys == "missing":
        (tmp_path / who / f"{who}.key").unlink()
    else:
        new_keys(local, who)
    with (
        waiting(local, "train", *others(local, who)) as running,
        started(local, who, "train") as failing,
    ):
        heard = expect_end(running, who, "no agreement with what answers")
        _, said = failing.communicate(timeout=PATIENCE)
    seen = [event for each in heard.values() for event in each if "certificate" in event["text"]]
    start = min(clock(event) for event in seen)
    assert max(clock(each[-1]) for each in heard.values()) < start + SECONDS
    assert failing.returncode == (6 if keys == "missing" else 3)
    refused, complaint = said.splitlines()
    assert refused == f"could not prove to {', '.join(others(local, who))} who we are"
    assert complaint.startswith("error: ")


@pytest.mark.parametrize(
    ("who", "number"),
    [("bank", signal.SIGINT), ("shop", signal.SIGTERM), ("dealer", signal.SIGTERM)],
    ids=["bank-INT", "shop-TERM", "dealer-TERM"],
)
def test_one_that_is_interrupted_while_it_waits(tmp_path: Path, who: str, number: int) -> None:
    """One of three has not come; one has met the third, and goes."""
    local = prepare(tmp_path)
    absent = "bank" if who == "shop" else "shop"
    with waiting(
        local, "train", *(name for name in local.member_names if name != absent)
    ) as running:
        leaving = running.pop(who)
        await_event(leaving, "waiting")
        leaving.send_signal(number)
        interrupted = time.time()
        heard = expect_end(running, who, "it was interrupted (exit code 130)")
        assert max(clock(each[-1]) for each in heard.values()) < interrupted + SECONDS
        _, said = leaving.communicate(timeout=PATIENCE)
        last = events(said)[-1]
        assert (leaving.returncode, last["event"], last["code"]) == (130, "interrupted", 130)


def test_the_last_line_for_people_says_that_it_was_interrupted(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    with started(local, "bank", "train") as bank:
        assert bank.stderr is not None
        assert "listens on" in bank.stderr.readline()
        bank.send_signal(signal.SIGTERM)
        _, said = bank.communicate(timeout=PATIENCE)
    assert bank.returncode == 130
    assert said.splitlines()[-1] == "interrupted"


def test_a_part_that_is_not_there(tmp_path: Path) -> None:
    """Who predicts by a job of its own knows whom to tell."""
    local = prepare(tmp_path, tables=1)
    ended = local.run_command("train", timeout=60)
    assert {end.return_code for end in ended.values()} == {0}, ended
    local.get_part_path("bank").unlink()
    with (
        waiting(local, "predict", "shop", "dealer") as running,
        started(local, "bank", "predict", f"--job={local.job_path}") as failing,
    ):
        expect_end(running, "bank", "its model cannot be read or used")
        failing.communicate(timeout=PATIENCE)
    assert failing.returncode == 5


def test_a_dealer_that_stays_goes_on(tmp_path: Path) -> None:
    """It is told of a failure, and deals for those who come again."""
    local = prepare(tmp_path, tables=1)
    table = tmp_path / "bank" / "train.csv"
    whole = table.read_text()
    table.write_text("")
    with started(local, "dealer", "train", "--keep", "--log-format=json") as dealer:
        await_event(dealer, "listening")
        with started(local, "bank", "train") as failing:
            failing.communicate(timeout=PATIENCE)
        failed = await_event(dealer, "failed")
        assert failed["peer"] == "bank"
        assert "its table cannot be read" in failed["text"]
        table.write_text(whole)
        with (
            started(local, "bank", "train", "--wait=60") as bank,
            started(local, "shop", "train", "--wait=60") as shop,
        ):
            for process in (bank, shop):
                _, said = process.communicate(timeout=PATIENCE)
                assert process.returncode == 0, said
        await_event(dealer, "done")
        dealer.send_signal(signal.SIGTERM)
        _, said = dealer.communicate(timeout=PATIENCE)
        assert (dealer.returncode, events(said)[-1]["event"]) == (130, "interrupted")


def test_a_dealer_that_stays_is_not_held_by_those_who_freeze(tmp_path: Path) -> None:
    """They have come, and never say anything again, not even that they live."""
    local = prepare(tmp_path)
    with started(local, "dealer", "train", "--keep", "--log-format=json") as dealer:
        await_event(dealer, "listening")
        bank = coming(local, "bank")
        frozen = come(local, "shop"), bank()
        await_event(dealer, "connected")
        start = time.monotonic()
        failed = await_event(dealer, "failed")
        assert failed["peer"] in ("bank", "shop")
        assert failed["step"] == "agreement"
        assert "nothing heard from it for 10 s" in failed["error"]
        assert time.monotonic() - start < 2 * SECONDS
        await_event(dealer, "listening")
    for link in (link for links in frozen for link in links.values()):
        link.sock.close()


def test_one_that_freezes_while_it_waits_may_thaw(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    with waiting(local, "train", "bank", "shop") as running:
        while "dealer" not in await_event(running["bank"], "waiting")["text"]:
            pass
        running["shop"].send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        while "shop (was here, but nothing" not in await_event(running["bank"], "waiting")["text"]:
            assert time.monotonic() < frozen + 2 * SECONDS, "nobody notices"
        running["shop"].send_signal(signal.SIGCONT)
        with started(local, "dealer", "train") as dealer:
            for process in (*running.values(), dealer):
                _, said = process.communicate(timeout=PATIENCE)
                assert process.returncode == 0, said


def test_a_disagreement_is_told_though_the_other_never_says_goodbye(tmp_path: Path) -> None:
    """It only shows that it lives: nobody waits for that."""
    local = prepare(tmp_path)
    with waiting(local, "train", "bank", "dealer") as running:
        channel = SocketChannel("shop", come(local, "shop"))
        job = Job.read(local.job_path)
        stated = Proposal.for_job(job, command="train")
        other = stated.model_copy(update={"terms": {**stated.terms, "tables": 7}})
        send_message(channel, channel.peers, other.model_dump_json().encode())
        start = time.monotonic()
        for process in running.values():
            _, said = process.communicate(timeout=PATIENCE)
            last = events(said)[-1]
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
    """Though that is killed: the port is needed for the next attempt."""
    names = ("bank", "telecom", "shop")
    local = prepare(tmp_path, names=names, dealers=3)
    for name, dealer in zip(names, local.dealer_names, strict=True):
        change(local.job_path, (f'name = "{dealer}"', f'name = "{dealer}"\nby = "{name}"'))
    keys = tmp_path / "dealer1" / "dealer1"
    with (tmp_path / "bank" / "party.toml").open("a") as file:
        file.write(f'\n[dealer]\nkey = "{keys}.key"\ncertificate = "{keys}.crt"\n')
    address = parse_address(Job.read(local.job_path).get_entry("dealer1").address)
    until = time.monotonic() + PATIENCE
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
