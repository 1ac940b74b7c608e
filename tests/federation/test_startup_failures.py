"""A member that fails before all are connected notifies the others, without local details."""

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
from tests.federation.harness import Run, change, prepare, preprocess_offline, run
from tests.federation.test_setup_errors import new_keys

SECONDS = 10.0
"""All members must end within this time."""


def expect_end(found: Run, failed: str, complaint: str, secrets: tuple[str, ...] = ()) -> None:
    """Check that all other members end in time and name the failed one, without its secrets."""
    others = {name: error for name, error in found.errors.items() if name != failed}
    assert others
    for name, error in others.items():
        assert isinstance(error, PeerFailedError), (name, error)
        assert error.peer == failed
        assert complaint in str(error)
        assert not any(secret in str(error) for secret in secrets)
    assert max(found.seconds.values()) < SECONDS


def notified_by(found: Run, failed: str) -> list[str]:
    """Return the members that the failed member reports to have notified."""
    notified: list[str] = []
    for event in found.events.get(failed, []):
        if event.kind == "told":
            assert event.fields["who"] == failed
            notified += event.fields["told"]
    return notified


def empty_table(local: LocalFederation, failed: str) -> None:
    (local.folder / failed / "train.csv").write_text("")


def spoil_cell(local: LocalFederation, failed: str) -> None:
    change(local.folder / failed / "train.csv", ("1-7,", "1-7,secret"))


def block_model_folder(local: LocalFederation, failed: str) -> None:
    (local.folder / failed / "models").write_text("a file where the folder should be")


def name_missing_correlations(local: LocalFederation, failed: str) -> None:
    path = local.folder / failed / "party.toml"
    change(path, ("[data]", 'correlations = "lost.secret"\n[data]'))


def change_label(local: LocalFederation, failed: str) -> None:
    path = local.folder / failed / "party.toml"
    text = path.read_text()
    path.write_text(
        text.replace('label = "label"\n', "") if "label" in text else f'{text}label="a"'
    )


@pytest.mark.parametrize("failed", ["bank", "shop"])
@pytest.mark.parametrize(
    ("damage", "code", "complaint"),
    [
        (empty_table, 4, "its table cannot be read or used (exit code 4)"),
        (spoil_cell, 4, "its table cannot be read or used (exit code 4)"),
        (change_label, 3, "a parameter of its cannot be used (exit code 3)"),
        (
            block_model_folder,
            6,
            "it cannot have something that it needs: a file, a port, a disk (exit code 6)",
        ),
        (name_missing_correlations, 8, "its correlations cannot be used (exit code 8)"),
    ],
)
def test_participant_failure_ends_the_other_members(
    tmp_path: Path,
    failed: str,
    damage: Callable[[LocalFederation, str], None],
    code: int,
    complaint: str,
) -> None:
    local = prepare(tmp_path)
    damage(local, failed)
    found = run(local, "train", wait=60.0, last=(failed,))
    error = found.errors[failed]
    assert isinstance(error, PrivetError)
    assert error.exit_code == code
    expect_end(found, failed, complaint, ("secret", "train.csv", str(tmp_path)))
    assert {*notified_by(found, failed), failed} == {"bank", "shop", "dealer"}


@pytest.mark.parametrize("failed", ["bank", "shop", "dealer"])
@pytest.mark.parametrize("keys", ["missing", "others", "expired"])
def test_unusable_keys_end_the_other_members(
    tmp_path: Path, failed: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)  # processes use the default
    local = prepare(tmp_path)
    new = ""
    if keys == "missing":
        (tmp_path / failed / f"{failed}.key").unlink()
    elif keys == "expired":
        new_keys(local, failed, valid_days=-1)
    else:
        _, new = new_keys(local, failed)
    found = run(local, "train", wait=60.0, last=(failed,))
    expect_end(found, failed, "no agreement with what answers")
    assert notified_by(found, failed) == []
    (refused,) = [event.fields for event in found.events[failed] if event.kind == "refused"]
    assert {*refused["by"], failed} == {"bank", "shop", "dealer"}
    # The member that detects it first notifies the others.
    reason = f"its certificate has the fingerprint {new[:16]}" if new else "it has no certificate"
    refusal = f"there: {failed} at {Job.read(local.job_path).get_entry(failed).address} ({reason}"
    assert any(refusal in str(error) for error in found.errors.values())


@pytest.mark.parametrize("failed", ["bank", "shop", "dealer"])
def test_port_in_use_ends_the_other_members(tmp_path: Path, failed: str) -> None:
    local = prepare(tmp_path)
    # A silent listener on the port is not taken for the member.
    with socket.create_server(parse_address(Job.read(local.job_path).get_entry(failed).address)):
        found = run(local, "train", wait=60.0, last=(failed,))
    assert isinstance(found.errors[failed], UnavailableError)
    expect_end(found, failed, "it cannot have something that it needs")
    assert len(notified_by(found, failed)) == 2


def test_second_start_does_not_end_the_first(tmp_path: Path) -> None:
    """The second process finds the port in use by the first, which continues."""
    local = prepare(tmp_path)
    second: list[Run] = []

    def start_again(event: object) -> None:
        if getattr(event, "kind", "") == "waiting" and not second:
            second.append(Run())
            second[0] = run(local, "train", absent=("shop", "dealer"))

    first = run(local, "train", handlers={"bank": start_again}, absent=("shop",), wait=3.0)
    assert isinstance(second[0].errors["bank"], UnavailableError)
    assert notified_by(second[0], "bank") == []
    for name in ("bank", "dealer"):
        assert not isinstance(first.errors[name], PeerFailedError)
        assert "not reached within 3 s" in str(first.errors[name])


def test_failure_before_a_prediction_or_a_service(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    change(tmp_path / "bank" / "new.csv", ("id,a,", "id,colour,"))
    found = run(local, "predict", wait=60.0, last=("bank",))
    expect_end(found, "bank", "its table cannot be read or used", ("colour",))
    local.get_part_path("shop").write_bytes(local.get_part_path("bank").read_bytes())
    found = run(local, "serve", wait=60.0, last=("shop",))
    expect_end(found, "shop", "its model cannot be read or used")


def test_failure_with_offline_preprocessing(tmp_path: Path) -> None:
    """The dealer is not a peer, and gets no failure notice."""
    local = prepare(tmp_path)
    preprocess_offline(local)
    empty_table(local, "bank")
    found = run(local, "train", wait=60.0, absent=("dealer",), last=("bank",))
    expect_end(found, "bank", "its table cannot be read or used")


def test_failure_ends_three_other_members(tmp_path: Path) -> None:
    local = prepare(tmp_path, names=("bank", "telecom", "shop"))
    empty_table(local, "telecom")
    found = run(local, "train", wait=60.0, last=("telecom",))
    expect_end(found, "telecom", "its table cannot be read or used")


def test_timeout_sends_no_failure_notice(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    found = run(local, "train", absent=("dealer",), wait=1.0)
    for name, error in found.errors.items():
        assert not isinstance(error, PeerFailedError)
        assert "not reached within 1 s" in str(error)
        assert notified_by(found, name) == []
