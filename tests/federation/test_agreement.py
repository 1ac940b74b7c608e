"""Checks before any computation: every member reports a difference, whichever member causes it."""

from __future__ import annotations

import threading
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pytest

from privet.config.job import Job
from privet.errors import DataError, DisagreementError, PeerMisbehavedError
from privet.experiments.local_federation import LocalFederation
from privet.federation.session.agreement import (
    DataSummary,
    Proposal,
    exchange_proposals,
    exchange_summaries,
)
from privet.transport.channel import (
    MAX_MESSAGE_BYTES,
    MESSAGE_TAG,
    exchange_messages,
    receive_message,
    send_message,
)
from privet.transport.memory import create_memory_channels
from privet.version import __version__
from tests.federation.harness import NAMES, change, prepare, run


def other_job(local: LocalFederation, *changes: tuple[str, str]) -> Path:
    path = local.folder / "other.toml"
    path.write_bytes(local.job_path.read_bytes())
    change(path, *changes)
    return path


def test_job_differences_are_reported_to_all_members(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    path = other_job(local, ("tables = 3", "tables = 5"), ("depth = 2", "depth = 4"))
    errors = run(local, "train", jobs={"shop": path}).errors
    assert all(isinstance(error, DisagreementError) for error in errors.values())
    assert "tables: 3 here and at dealer, 5 at shop" in str(errors["bank"])
    assert "tables: 5 here, 3 at bank and at dealer" in str(errors["shop"])
    assert "tables: 3 here and at bank, 5 at shop" in str(errors["dealer"])
    assert "depth: 2 here" in str(errors["bank"])
    blamed = {name: (e.peer, e.step) for name, e in errors.items()}  # type: ignore[attr-defined]
    assert blamed == {
        "bank": ("shop", "agreement"),
        "shop": (None, "agreement"),  # it differs from two
        "dealer": ("shop", "agreement"),
    }


def test_dealer_with_another_job_is_reported(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    path = other_job(local, ("[params]", 'protocol = "paper"\n[params]'))
    errors = run(local, "train", jobs={"dealer": path}).errors
    assert "protocol: paper here, masked at bank and at shop" in str(errors["dealer"])
    assert "protocol: masked here and at shop, paper at dealer" in str(errors["bank"])


def test_different_sample_counts_are_reported(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    data = tmp_path / "bank" / "train.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    errors = run(local, "train").errors
    assert "samples: 39 here, 40 at shop" in str(errors["bank"])
    assert "samples: 39 at bank, 40 at shop" in str(errors["dealer"])


def test_misaligned_ids(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    data = tmp_path / "bank" / "train.csv"
    header, first, second, *rest = data.read_text().splitlines(keepends=True)
    data.write_text("".join([header, second, first, *rest]))
    errors = run(local, "train").errors
    for name in (*NAMES, "dealer"):
        assert isinstance(errors[name], DisagreementError), errors[name]
        assert "ids: the samples of bank are not those of shop" in str(errors[name])
        assert "sort all tables by id" in str(errors[name])


def test_misaligned_ids_of_three_participants_and_of_new_rows(tmp_path: Path) -> None:
    """A participant whose ids differ from the first one's is named, also before a prediction."""
    names = ("bank", "telecom", "shop")
    local = prepare(tmp_path, tables=1, names=names)
    run(local, "train").checked()
    for name_changed, expected in (
        ("telecom", "the samples of bank are not those of telecom"),
        ("bank", "the samples of bank are not those of telecom or of shop"),
    ):
        data = tmp_path / name_changed / "new.csv"
        whole = data.read_text()
        data.write_text(whole.replace("2-3", "2-33"))
        errors = run(local, "predict").errors
        for name in (*names, "dealer"):
            assert isinstance(errors[name], DisagreementError), errors[name]
            assert f"ids: {expected}, or in another order" in str(errors[name])
        data.write_text(whole)
    run(local, "predict").checked()


def test_different_public_constants_are_reported_to_all_members(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arithmetic or the constants of one participant differ in the last bit."""

    def at_shop(function: Any, change_result: Any) -> Any:
        def patched(*arguments: Any) -> Any:
            result = function(*arguments)
            return change_result(result) if threading.current_thread().name == "shop" else result

        return patched

    def series(numbers: Any) -> Any:
        (first, *rest), slopes = numbers
        return (first + 1, *rest), slopes

    def sin_cos(both: Any) -> Any:
        both[0][17] += 1
        return both

    for target, change_result, label in (
        (
            "privet.protocols.masked.protocol.compute_sigmoid_coefficients",
            series,
            "numbers of the sigmoid",
        ),
        ("privet.gates.masked.fourier.compute_sin_cos", sin_cos, "numbers of this machine's sines"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, at_shop(locate(target), change_result))
            statements = statement(job, features=["a"]), statement(job, features=["b"])
            errors = run_agreement(job, *statements, dealer_statement(job))
        for name, error in errors.items():
            assert isinstance(error, DisagreementError), (name, error)
            assert f"{label}: " in str(error)
            assert "train noise" in str(error)
            assert ("at shop" in str(error)) == (name != "shop")


Statement = tuple[Proposal, DataSummary]


def statement(job: Job, **values: Any) -> Statement:
    values = {"cuts": [7], **values}
    return Proposal.for_job(job, command="train"), DataSummary(samples=3, n_features=1, **values)


def dealer_statement(job: Job) -> Statement:
    return Proposal.for_job(job), DataSummary()


def run_agreement(
    job: Job,
    *statements: Statement | bytes,
    channels: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the agreement of two participants and the dealer; return each result or error."""
    channels = channels or create_memory_channels([*NAMES, "dealer"])

    def role(name: str, content: Statement | bytes) -> Any:
        with channels[name] as channel:
            if isinstance(content, bytes):
                return exchange_messages(channel, dict.fromkeys(channel.peers, content))
            plan = exchange_proposals(channel, job, content[0])
            return exchange_summaries(channel, job, plan, content[1])

    found: dict[str, Any] = {}

    def guard(name: str, content: Statement | bytes) -> None:
        try:
            found[name] = role(name, content)
        except Exception as error:  # noqa: BLE001
            found[name] = error

    threads = [
        threading.Thread(target=guard, args=(name, content), name=name, daemon=True)
        for name, content in zip(channels, statements, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return found


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.read(prepare(tmp_path).job_path)


def test_latest_common_checkpoint_is_chosen(job: Job) -> None:
    found = run_agreement(
        job,
        statement(job, features=["a"], stages=[(3, "r"), (4, "r")]),
        statement(job, features=["b"], stages=[(4, "s"), (3, "r"), (2, "r")]),
        dealer_statement(job),
    )
    assert {name: value.resume_from for name, value in found.items()} == dict.fromkeys(
        found, (3, "r")
    )
    assert found["bank"].run == found["shop"].run
    assert [feature.name for feature in found["bank"].features] == ["a", "b"]
    # The dealer learns the number of features of each participant, not their names.
    assert [feature.name for feature in found["dealer"].features] == ["0", "0"]


@pytest.mark.parametrize("missing", ["tables", "protocol", "bank's address"])
def test_missing_setting_is_reported(job: Job, missing: str) -> None:
    complete = Proposal.for_job(job)
    terms = {key: value for key, value in complete.terms.items() if key != missing}
    incomplete = complete.model_copy(update={"terms": terms}), DataSummary()
    found = run_agreement(job, statement(job), statement(job), incomplete)
    assert isinstance(found["bank"], DisagreementError)
    assert f"{missing}: " in str(found["bank"])
    assert "None at dealer" in str(found["bank"])


def test_a_participant_without_a_command(job: Job) -> None:
    found = run_agreement(job, statement(job), dealer_statement(job), dealer_statement(job))
    assert "command: train here, None at shop" in str(found["bank"])


def test_peer_text_is_shown_without_control_characters(job: Job) -> None:
    complete = Proposal.for_job(job)
    terms = {**complete.terms, "tables": "\x1b[2J", "\x1b]0;x\x07": 1}
    malicious = complete.model_copy(update={"terms": terms}), DataSummary()
    found = run_agreement(job, statement(job), statement(job), malicious)
    assert "tables: " in str(found["bank"])
    assert str(found["bank"]).isprintable()


def test_invalid_features_are_rejected(job: Job) -> None:
    for names in (["a", "b"], ["\x1b"], [" "]):
        found = run_agreement(
            job, statement(job), statement(job, features=names), dealer_statement(job)
        )
        assert isinstance(found["bank"], PeerMisbehavedError), names
        assert found["bank"].peer == "shop"


def test_cut_counts_are_exchanged(job: Job) -> None:
    stated = statement(job, features=["a"], cuts=[3]), statement(job, features=["b"])
    found = run_agreement(job, *stated, dealer_statement(job))
    assert {value.cut_counts for value in found.values()} == {(3, 7)}


@pytest.mark.parametrize(
    ("cuts", "complaint"),
    [
        ([5], "5 is no number of cuts that may be told: rounded, it is one of 1, 3, 7"),
        ([0], "0 is no number"),
        ([8], "8 is no number"),
        ([1, 1], "stated 2 numbers of cuts, and 1 are due"),
        (None, "stated 0 numbers of cuts, and 1 are due"),
    ],
)
def test_invalid_cut_counts_are_rejected(job: Job, cuts: list[int] | None, complaint: str) -> None:
    stated = statement(job, features=["a"]), statement(job, features=["b"], cuts=cuts)
    found = run_agreement(job, *stated, dealer_statement(job))
    for name in ("bank", "dealer"):
        assert isinstance(found[name], PeerMisbehavedError)
        assert found[name].peer == "shop"
        assert complaint in str(found[name])


def test_cut_counts_are_rejected_if_hidden(job: Job) -> None:
    hidden = job.model_copy(update={"cuts": "hidden"})
    stated = [statement(hidden, features=["a"], cuts=None), statement(hidden, features=["b"])]
    found = run_agreement(hidden, *stated, dealer_statement(hidden))
    assert "they are hidden" in str(found["bank"])
    stated[1] = statement(hidden, features=["b"], cuts=None)
    found = run_agreement(hidden, *stated, dealer_statement(hidden))
    assert {value.cut_counts for value in found.values()} == {None}


def test_inconsistent_cut_counts_are_detected(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop sends three cuts to the bank and seven to the other members."""

    def swapped(channel: Any, content: dict[str, bytes]) -> dict[str, bytes]:
        if channel.name == "shop":
            lie = content["bank"].replace(b'"cuts":[7]', b'"cuts":[3]')
            content = {**content, "bank": lie}
        return exchange_messages(channel, content)

    monkeypatch.setattr("privet.federation.session.agreement.exchange_messages", swapped)
    stated = statement(job, features=["a"]), statement(job, features=["b"])
    found = run_agreement(job, *stated, dealer_statement(job))
    for error in found.values():
        assert isinstance(error, DisagreementError)
        assert "numbers of cuts: " in str(error)
        assert "somebody has told one of us other numbers" in str(error)


def test_every_run_has_a_unique_name(job: Job) -> None:
    runs = set()
    for _ in range(3):
        stated = (statement(job, features=["a"]), statement(job, features=["b"]))
        runs.add(run_agreement(job, *stated, dealer_statement(job))["bank"].run)
    assert len(runs) == 3


def test_different_version_is_reported(job: Job) -> None:
    newer = Proposal.for_job(job).model_copy(update={"version": "99.0"})
    found = run_agreement(job, statement(job), statement(job), (newer, DataSummary()))
    assert "version: " in str(found["bank"])
    assert "99.0 at dealer" in str(found["bank"])
    assert isinstance(found["bank"], DisagreementError)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no statement"),
        (b"\xff" * 50, "no statement"),
        (b"[" * 100_000, "no statement"),
        (b'{"version": "VERSION", "terms": 3}', "stated nonsense: terms"),
        (b'{"version": "VERSION", "terms": {}, "nonce": "xyz"}', "stated nonsense: nonce"),
    ],
)
def test_invalid_statement_is_rejected(job: Job, content: bytes, complaint: str) -> None:
    content = content.replace(b"VERSION", __version__.encode())
    found = run_agreement(job, statement(job), statement(job), content)
    for name in NAMES:
        assert isinstance(found[name], PeerMisbehavedError)
        assert found[name].peer == "dealer"
        assert complaint in str(found[name])


def test_message_over_the_limit_is_rejected() -> None:
    channels = create_memory_channels(["a", "b"])
    channels["b"].send("a", np.array([MAX_MESSAGE_BYTES + 1], dtype=np.uint64), MESSAGE_TAG)
    with pytest.raises(PeerMisbehavedError, match="too many"):
        receive_message(channels["a"], "b")


def test_message_limit_can_be_raised() -> None:
    channels = create_memory_channels(["a", "b"])
    send_message(channels["b"], ["a"], bytes(MAX_MESSAGE_BYTES + 1))
    assert (
        len(receive_message(channels["a"], "b", max_bytes=2 * MAX_MESSAGE_BYTES))
        == MAX_MESSAGE_BYTES + 1
    )


def test_nan_labels_and_empty_files_are_found_before_connecting(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    data = tmp_path / "shop" / "train.csv"
    lines = data.read_text().splitlines()
    lines[3] = lines[3].rsplit(",", 1)[0] + ","
    data.write_text("\n".join(lines) + "\n")
    found = run(local, "train", absent=("bank", "dealer"))
    with pytest.raises(DataError, match=r"train\.csv: the label of row 3 is missing"):
        raise found.errors["shop"]
    data.write_text("")
    found = run(local, "train", absent=("bank", "dealer"))
    with pytest.raises(DataError, match="the file is empty"):
        raise found.errors["shop"]
