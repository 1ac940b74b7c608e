"""Whoever fails before all have met ends the waiting of the others, and tells them no more."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from privet.config.job import Job
from privet.config.members import parse_address
from privet.errors import PeerFailedError, PrivetError, UnavailableError
from privet.experiments.local_federation import LocalFederation
from privet.transport import rendezvous
from tests.federation.harness import Run, change, deal_for, prepare, run
from tests.federation.test_bad_peers import new_keys

SECONDS = 10.0
"""Within which all must have ended."""


def expect_end(found: Run, who: str, complaint: str, secrets: tuple[str, ...] = ()) -> None:
    """All others must end in time, naming the one who failed and why, and nothing of its own."""
    others = {name: error for name, error in found.errors.items() if name != who}
    assert others
    for name, error in others.items():
        assert isinstance(error, PeerFailedError), (name, error)
        assert error.peer == who
        assert complaint in str(error)
        assert not any(secret in str(error) for secret in secrets)
    assert max(found.seconds.values()) < SECONDS


def told_by(found: Run, who: str) -> list[str]:
    """Return whom somebody says to have told that it cannot take part."""
    told: list[str] = []
    for event in found.events.get(who, []):
        if event.kind == "told":
            assert event.fields["who"] == who
            told += event.fields["told"]
    return told


def empty(local: LocalFederation, who: str) -> None:
    (local.folder / who / "train.csv").write_text("")


def bad_cell(local: LocalFederation, who: str) -> None:
    change(local.folder / who / "train.csv", ("1-7,", "1-7,secret"))


def no_room(local: LocalFederation, who: str) -> None:
    (local.folder / who / "models").write_text("a file where the folder should be")


def no_file(local: LocalFederation, who: str) -> None:
    path = local.folder / who / "party.toml"
    change(path, ("[data]", 'correlations = "lost.secret"\n[data]'))


def other_label(local: LocalFederation, who: str) -> None:
    path = local.folder / who / "party.toml"
    text = path.read_text()
    path.write_text(
        text.replace('label = "label"\n', "") if "label" in text else f'{text}label="a"'
    )


@pytest.mark.parametrize("who", ["bank", "shop"])
@pytest.mark.parametrize(
    ("damage", "code", "complaint"),
    [
        (empty, 4, "its table cannot be read or used (exit code 4)"),
        (bad_cell, 4, "its table cannot be read or used (exit code 4)"),
        (other_label, 3, "a parameter of its cannot be used (exit code 3)"),
        (
            no_room,
            6,
            "it cannot have something that it needs: a file, a port, a disk (exit code 6)",
        ),
        (no_file, 8, "its correlations cannot be used (exit code 8)"),
    ],
)
def test_what_fails_at_a_participant(
    tmp_path: Path,
    who: str,
    damage: Callable[[LocalFederation, str], None],
    code: int,
    complaint: str,
) -> None:
    local = prepare(tmp_path)
    damage(local, who)
    found = run(local, "train", wait=60.0, last=(who,))
    own = found.errors[who]
    assert isinstance(own, PrivetError)
    assert own.exit_code == code
    expect_end(found, who, complaint, ("secret", "train.csv", str(tmp_path)))
    assert {*told_by(found, who), who} == {"bank", "shop", "dealer"}


@pytest.mark.parametrize("who", ["bank", "shop", "dealer"])
@pytest.mark.parametrize("keys", ["missing", "others", "expired"])
def test_keys_that_cannot_be_used(
    tmp_path: Path, who: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)  # a process is as patient as it is
    local = prepare(tmp_path)
    new = ""
    if keys == "missing":
        (tmp_path / who / f"{who}.key").unlink()
    elif keys == "expired":
        new_keys(local, who, valid_days=-1)
    else:
        _, new = new_keys(local, who)
    found = run(local, "train", wait=60.0, last=(who,))
    expect_end(found, who, "no agreement with what answers")
    assert told_by(found, who) == []
    (refused,) = [event.fields for event in found.events[who] if event.kind == "refused"]
    assert {*refused["by"], who} == {"bank", "shop", "dealer"}
    # Whoever finds it out first tells the others.
    why = f"its certificate has the fingerprint {new[:16]}" if new else "it has no certificate"
    seen = f"there: {who} at {Job.read(local.job_path).get_entry(who).address} ({why}"
    assert any(seen in str(error) for error in found.errors.values())


@pytest.mark.parametrize("who", ["bank", "shop", "dealer"])
def test_a_port_that_is_taken(tmp_path: Path, who: str) -> None:
    local = prepare(tmp_path)
    # Somebody who listens and says nothing is not taken for the one who should be there.
    with socket.create_server(parse_address(Job.read(local.job_path).get_entry(who).address)):
        found = run(local, "train", wait=60.0, last=(who,))
    assert isinstance(found.errors[who], UnavailableError)
    expect_end(found, who, "it cannot have something that it needs")
    assert len(told_by(found, who)) == 2


def test_one_who_is_started_twice_ends_nothing(tmp_path: Path) -> None:
    """The second one finds the port taken by the first, which takes part."""
    local = prepare(tmp_path)
    second: list[Run] = []

    def start_again(event: object) -> None:
        if getattr(event, "kind", "") == "waiting" and not second:
            second.append(Run())
            second[0] = run(local, "train", absent=("shop", "dealer"))

    first = run(local, "train", tells={"bank": start_again}, absent=("shop",), wait=3.0)
    assert isinstance(second[0].errors["bank"], UnavailableError)
    assert told_by(second[0], "bank") == []
    for name in ("bank", "dealer"):
        assert not isinstance(first.errors[name], PeerFailedError)
        assert "not reached within 3 s" in str(first.errors[name])


def test_what_fails_before_a_prediction(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    change(tmp_path / "bank" / "new.csv", ("id,a,", "id,colour,"))
    found = run(local, "predict", wait=60.0, last=("bank",))
    expect_end(found, "bank", "its table cannot be read or used", ("colour",))
    local.get_part_path("shop").write_bytes(local.get_part_path("bank").read_bytes())
    found = run(local, "serve", wait=60.0, last=("shop",))
    expect_end(found, "shop", "its model cannot be read or used")


def test_with_correlations_that_were_dealt_ahead(tmp_path: Path) -> None:
    """There the dealer is nobody to be met, and none to be told."""
    local = prepare(tmp_path)
    deal_for(local)
    empty(local, "bank")
    found = run(local, "train", wait=60.0, absent=("dealer",), last=("bank",))
    expect_end(found, "bank", "its table cannot be read or used")


def test_of_four_all_end(tmp_path: Path) -> None:
    local = prepare(tmp_path, names=("bank", "telecom", "shop"))
    empty(local, "telecom")
    found = run(local, "train", wait=60.0, last=("telecom",))
    expect_end(found, "telecom", "its table cannot be read or used")


def test_those_who_are_out_of_patience_leave_the_others_theirs(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    found = run(local, "train", absent=("dealer",), wait=1.0)
    for name, error in found.errors.items():
        assert not isinstance(error, PeerFailedError)
        assert "not reached within 1 s" in str(error)
        assert told_by(found, name) == []
