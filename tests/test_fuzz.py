"""A short part of `make fuzz`, and everything that it has ever found."""

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
from tests.fuzz.channels import Harness, Said
from tests.fuzz.readers import Reader, misread, readers
from tests.fuzz.sessions import STATES, Case, Victims, attack, victims
from tests.fuzz.tally import CORPUS, Tally, unpacked

FOUND: list[dict[str, Any]] = [json.loads(p.read_text()) for p in sorted(CORPUS.glob("*.json"))]
LIES = ["noise", "other lengths", "flipped bits of the header", "cut short", "a control frame"]


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory: pytest.TempPathFactory) -> Victims:
    return victims(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    home = tmp_path_factory.mktemp("readers")
    trained = prepare(home / "federation", tables=1)
    run(trained, "train").checked()
    return {**readers(trained), **files.readers(trained, home)}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    return Harness(tmp_path_factory.mktemp("keys"))


def test_all_readers_read_what_was_written(known: dict[str, Reader]) -> None:
    """Otherwise nonsense would be refused for reasons that have nothing to do with it."""
    for name, reader in known.items():
        if name.startswith("failures"):
            with pytest.raises(PeerLostError, match=r"^bank: has gone"):
                reader.read(reader.samples[0])
        else:
            reader.read(reader.samples[0])


def test_nonsense_raises_our_errors(known: dict[str, Reader]) -> None:
    chance = random.Random(7)
    for name, reader in known.items():
        for _ in range(100):
            content = reader.draw(chance)
            assert misread(reader, content) is None, (name, content)


def test_a_reader_that_is_broken_is_found(known: dict[str, Reader]) -> None:
    """Errors of others, and those that name nobody."""

    def raises(error: Exception) -> Reader:
        def read(_: bytes) -> object:
            raise error

        return Reader([b"a"], read, "bank")

    problem = misread(raises(KeyError("x")), b"a")
    assert problem is not None
    assert problem.text == "KeyError('x')"
    problem = misread(raises(PrivetError("somebody failed")), b"a")
    assert problem is not None
    assert "does not name bank" in problem.text


def test_a_round_counts_and_keeps_what_it_finds(
    tmp_path: Path, known: dict[str, Reader], lied_to: Victims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case once; of a fault, the first case, as the tests go through it."""
    monkeypatch.setattr(fuzzer, "readers", lambda _: {"numbers": known["numbers"]})
    monkeypatch.setattr(fuzzer, "victims", lambda _: lied_to)
    monkeypatch.setattr(fuzzer, "_LIVE", 20)
    tally = Tally(tmp_path)
    tried = fuzzer.Fuzzer(tmp_path / "home", random.Random(1), tally)
    fragile = known["numbers"]

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


def test_what_was_kept_can_be_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "results", lambda quick: tmp_path)
    monkeypatch.setattr(program, "Fuzzer", lambda *_: pytest.fail("nothing was asked for"))
    monkeypatch.setattr("sys.argv", ["fuzz", "--cases", "0", "--keep"])
    with pytest.raises(pytest.fail.Exception):
        program.main()
    monkeypatch.setattr(program, "Fuzzer", lambda *_: None)
    assert program.main() == 0
    assert "**None of them did anything else.**" in "\n".join(section(read(tmp_path / "fuzz.json")))


def test_live_channels_name_the_liar(harness: Harness) -> None:
    chance, tried = random.Random(3), set()
    for _ in range(400):
        said = harness.draw(chance)
        assert harness.suffer(said) is None, said
        tried.add(said.due)
    assert tried == set(channels.STATES)


@pytest.mark.parametrize("secure", ["tls", "raw"])
@pytest.mark.parametrize("due", list(channels.STATES))
def test_lies_over_tls(harness: Harness, due: str, secure: str) -> None:
    said = Said(due, (b"PV" + bytes(70)).hex(), secure=secure)
    assert harness.suffer(said) is None


def _dies(*_: Any) -> None:
    raise KeyError("x")


def _blames_another(link: PeerConnection, _: object) -> None:
    link.error = PeerLostError("dealer", "has gone")


@pytest.mark.parametrize(
    ("place", "broken", "problem"),
    [
        ("handle_frame", _dies, r"KeyError\('x'\) is none of our errors"),
        ("mark_disconnected", _blames_another, r"does not name bank: PeerLostError\('dealer'"),
    ],
)
def test_a_link_that_is_broken_is_found(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, place: str, broken: Any, problem: str
) -> None:
    monkeypatch.setattr(PeerConnection, place, broken)
    frame = channels.STATES["an array of a stream"][0][0]
    found = harness.suffer(Said("an array", frame.hex()))
    assert found is not None
    assert re.match(problem, found)


def test_an_honest_peer_is_no_liar(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies are made from is what is due: nothing is wrong with it."""
    monkeypatch.setattr(SocketChannel, "_fail", _dies)
    for due, (frames, _) in channels.STATES.items():
        assert harness.suffer(Said(due, b"".join(frames).hex(), stays=True)) is None


@pytest.mark.parametrize(("state", "lie"), zip(STATES, [*LIES, "noise"], strict=True))
def test_a_liar_in_every_state(lied_to: Victims, state: str, lie: str) -> None:
    case = Case("bank", state, nth=0, lie=lie, seed=3)
    assert attack(lied_to, case) == []


@pytest.mark.parametrize("liar", ["shop", "dealer"])
def test_a_liar_in_a_service(lied_to: Victims, liar: str) -> None:
    assert attack(lied_to, Case(liar, "service", nth=2, lie="other lengths", seed=3)) == []


def test_a_liar_that_nobody_notices_is_found_here(
    lied_to: Victims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks for problems sees one: an error that is not ours."""
    outcome: Any = ({"bank": sessions.LiarError(), "shop": KeyError("x")}, {})
    monkeypatch.setattr(sessions, "_train", lambda *_: outcome)
    case = Case("bank", "level", nth=0, lie="noise", seed=0)
    assert attack(lied_to, case) == ["shop: KeyError('x') is none of our errors"]


@pytest.mark.parametrize("record", FOUND, ids=lambda record: record["problem"][:40])
def test_what_was_found(
    record: dict[str, Any], lied_to: Victims, known: dict[str, Reader], harness: Harness
) -> None:
    if "reader" in record:
        content = unpacked(record["packed"])
        assert misread(known[record["reader"]], content) is None
        return
    fields = {key: value for key, value in record.items() if key != "problem"}
    if "due" in fields:
        assert harness.suffer(Said(**fields)) is None
    else:
        assert attack(lied_to, Case(**fields)) == []
