"""A short part of `make fuzz`, and all cases of its corpus."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence.kept import read
from benchmarks.nonsense import section

from privet.errors import PeerLostError, PrivetError
from privet.transport.connection import PeerConnection
from privet.transport.sockets import SocketChannel
from tests.federation.harness import prepare, run
from tests.fuzz import __main__ as program
from tests.fuzz import channels, files, fuzzer, sessions
from tests.fuzz.channels import Harness, Injection
from tests.fuzz.readers import Reader, find_problem, readers
from tests.fuzz.sessions import STATES, Case, Victims, attack, make_victims
from tests.fuzz.tally import CORPUS, Tally, unpacked

FOUND: list[dict[str, Any]] = [json.loads(p.read_text()) for p in sorted(CORPUS.glob("*.json"))]
LIES = ["noise", "other lengths", "flipped bits of the header", "cut short", "a control frame"]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Victims:
    return make_victims(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    home = tmp_path_factory.mktemp("readers")
    trained = prepare(home / "federation", tables=1)
    run(trained, "train").checked()
    return {**readers(trained), **files.readers(trained, home)}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    return Harness(tmp_path_factory.mktemp("keys"))


def test_readers_accept_valid_messages(all_readers: dict[str, Reader]) -> None:
    """Otherwise readers would reject invalid messages for unrelated reasons."""
    for name, reader in all_readers.items():
        if name.startswith("failures"):
            with pytest.raises(PeerLostError, match=r"^bank: has gone"):
                reader.read(reader.samples[0])
        else:
            reader.read(reader.samples[0])


def test_invalid_messages_raise_privet_errors(all_readers: dict[str, Reader]) -> None:
    chance = random.Random(7)
    for name, reader in all_readers.items():
        for _ in range(100):
            content = reader.draw(chance)
            assert find_problem(reader, content) is None, (name, content)


def test_broken_reader_is_detected(all_readers: dict[str, Reader]) -> None:
    """Errors of other libraries, and errors that name no member."""

    def raises(error: Exception) -> Reader:
        def read(_: bytes) -> object:
            raise error

        return Reader([b"a"], read, "bank")

    problem = find_problem(raises(KeyError("x")), b"a")
    assert problem is not None
    assert problem.text == "KeyError('x')"
    problem = find_problem(raises(PrivetError("somebody failed")), b"a")
    assert problem is not None
    assert "does not name bank" in problem.text


def test_round_counts_cases_and_writes_failures(
    tmp_path: Path,
    all_readers: dict[str, Reader],
    attacked: Victims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each case counts once, and the first case of a problem is written to the corpus."""
    monkeypatch.setattr(fuzzer, "readers", lambda _: {"numbers": all_readers["numbers"]})
    monkeypatch.setattr(fuzzer, "make_victims", lambda _: attacked)
    monkeypatch.setattr(fuzzer, "_CHANNEL_CASES", 20)
    tally = Tally(tmp_path)
    tried = fuzzer.Fuzzer(tmp_path / "home", random.Random(1), tally)
    fragile = all_readers["numbers"]

    def read(content: bytes) -> object:
        if len(content) % 2:
            raise ZeroDivisionError
        return fragile.read(content)

    tried.readers["fragile"] = Reader(fragile.samples, read, "bank")
    tried.round()
    (found,) = tmp_path.glob("*.json")
    record = json.loads(found.read_text())
    assert (record["reader"], record["problem"]) == ("fragile", "ZeroDivisionError()")
    assert len(unpacked(record["packed"])) % 2
    assert 200 < tally.tried["reader: numbers"] <= 300
    assert tally.cases == sum(tally.tried.values()) > 300
    figures = program.figures(tally, 60.0, 1)
    text = "\n".join(section({**figures, "command": "a", "machine": "b", "date": "c"}))
    assert "**1 of them did anything else.**" in text
    assert f"{tally.tried['reader: numbers']:,}" in text


def test_results_can_be_rendered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "results", lambda quick: tmp_path)
    monkeypatch.setattr(program, "Fuzzer", lambda *_: pytest.fail("no cases were requested"))
    monkeypatch.setattr("sys.argv", ["fuzz", "--cases", "0", "--keep"])
    with pytest.raises(pytest.fail.Exception):
        program.main()
    monkeypatch.setattr(program, "Fuzzer", lambda *_: None)
    assert program.main() == 0
    assert "**None of them did anything else.**" in "\n".join(section(read(tmp_path / "fuzz.json")))


def test_live_channels_name_the_liar(harness: Harness) -> None:
    chance, tried = random.Random(3), set()
    for _ in range(400):
        injection = harness.draw(chance)
        assert harness.inject(injection) is None, injection
        tried.add(injection.due)
    assert tried == set(channels.STATES)


@pytest.mark.parametrize("secure", ["tls", "raw"])
@pytest.mark.parametrize("expected", list(channels.STATES))
def test_lies_over_tls(harness: Harness, expected: str, secure: str) -> None:
    injection = Injection(expected, (b"PV" + bytes(70)).hex(), secure=secure)
    assert harness.inject(injection) is None


def _fail(*_: Any) -> None:
    raise KeyError("x")


def _blame_another(link: PeerConnection, _: object) -> None:
    link.error = PeerLostError("dealer", "has gone")


@pytest.mark.parametrize(
    ("method", "replacement", "problem"),
    [
        ("handle_frame", _fail, r"KeyError\('x'\) is none of our errors"),
        ("mark_disconnected", _blame_another, r"does not name bank: PeerLostError\('dealer'"),
    ],
)
def test_broken_connection_is_detected(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, method: str, replacement: Any, problem: str
) -> None:
    monkeypatch.setattr(PeerConnection, method, replacement)
    frame = channels.STATES["an array of a stream"][0][0]
    found = harness.inject(Injection("an array", frame.hex()))
    assert found is not None
    assert re.match(problem, found)


def test_valid_frames_cause_no_error(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lies are made from the expected frames, which are valid themselves."""
    monkeypatch.setattr(SocketChannel, "_fail", _fail)
    for expected, (frames, _) in channels.STATES.items():
        assert harness.inject(Injection(expected, b"".join(frames).hex(), stays=True)) is None


@pytest.mark.parametrize(("state", "lie"), zip(STATES, [*LIES, "noise"], strict=True))
def test_a_liar_in_every_state(attacked: Victims, state: str, lie: str) -> None:
    case = Case("bank", state, nth=0, lie=lie, seed=3)
    assert attack(attacked, case) == []


@pytest.mark.parametrize("liar", ["shop", "dealer"])
def test_a_liar_in_a_service(attacked: Victims, liar: str) -> None:
    assert attack(attacked, Case(liar, "service", nth=2, lie="other lengths", seed=3)) == []


def test_foreign_error_is_reported(attacked: Victims, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reports an error that is not one of Privet's."""
    outcome: Any = ({"bank": sessions.LiarError(), "shop": KeyError("x")}, {})
    monkeypatch.setattr(sessions, "_train", lambda *_: outcome)
    case = Case("bank", "level", nth=0, lie="noise", seed=0)
    assert attack(attacked, case) == ["shop: KeyError('x') is none of our errors"]


@pytest.mark.parametrize("record", FOUND, ids=lambda record: record["problem"][:40])
def test_corpus(
    record: dict[str, Any], attacked: Victims, all_readers: dict[str, Reader], harness: Harness
) -> None:
    if "reader" in record:
        content = unpacked(record["packed"])
        assert find_problem(all_readers[record["reader"]], content) is None
        return
    fields = {key: value for key, value in record.items() if key != "problem"}
    if "due" in fields:
        assert harness.inject(Injection(**fields)) is None
    else:
        assert attack(attacked, Case(**fields)) == []
