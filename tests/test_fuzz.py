"""A short part of `make fuzz`, and everything that it has ever found."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from privet.laboratory.local_federation import LocalFederation
from tests.federation.harness import run
from tests.fuzz import sessions
from tests.fuzz.__main__ import CORPUS
from tests.fuzz.readers import Reader, damage, misread, readers
from tests.fuzz.sessions import STATES, Case, attack, federation

FOUND: list[dict[str, Any]] = [json.loads(p.read_text()) for p in sorted(CORPUS.glob("*.json"))]
LIES = ["noise", "other lengths", "flipped bits of the header", "cut short", "a control frame"]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    return federation(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    home = tmp_path_factory.mktemp("readers")
    trained = federation(home / "federation")
    run(trained, "train").checked()
    return readers(trained, home)


def test_all_readers_read_what_was_written(known: dict[str, Reader]) -> None:
    """Otherwise nonsense would be refused for reasons that have nothing to do with it."""
    for content, read, _ in known.values():
        read(content)


def test_nonsense_raises_our_errors(known: dict[str, Reader]) -> None:
    chance = random.Random(7)
    for name, reader in known.items():
        for _ in range(100):
            content = damage(chance, reader[0])
            assert misread(reader, content) is None, (name, content)


@pytest.mark.parametrize(("state", "lie"), zip(STATES, LIES, strict=True))
def test_a_liar_in_every_state(local: LocalFederation, state: str, lie: str) -> None:
    case = Case("bank", state, nth=0, lie=lie, seed=3)
    assert attack(local, case) == []


def test_a_liar_that_nobody_notices_is_found_here(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks for problems sees one: an error that is not ours."""
    outcome: Any = ({"bank": sessions.LiarError(), "shop": KeyError("x")}, {})
    monkeypatch.setattr(sessions, "_train", lambda *_: outcome)
    case = Case("bank", "level", nth=0, lie="noise", seed=0)
    assert attack(local, case) == ["shop: KeyError('x') is none of our errors"]


@pytest.mark.parametrize("record", FOUND, ids=lambda record: record["problem"][:40])
def test_what_was_found(
    record: dict[str, Any], local: LocalFederation, known: dict[str, Reader]
) -> None:
    if "reader" in record:
        assert misread(known[record["reader"]], bytes.fromhex(record["content"])) is None
        return
    fields = {key: value for key, value in record.items() if key != "problem"}
    assert attack(local, Case(**fields)) == []
