"""What is found out before anything is computed: named at everybody, whoever is the odd one out."""

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


def test_other_jobs_are_named_on_all_sides(tmp_path: Path) -> None:
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


def test_the_dealer_with_another_job(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    path = other_job(local, ("[params]", 'protocol = "paper"\n[params]'))
    errors = run(local, "train", jobs={"dealer": path}).errors
    assert "protocol: paper here, masked at bank and at shop" in str(errors["dealer"])
    assert "protocol: masked here and at shop, paper at dealer" in str(errors["bank"])


def test_numbers_of_samples(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    data = tmp_path / "bank" / "train.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    errors = run(local, "train").errors
    assert "samples: 39 here, 40 at shop" in str(errors["bank"])
    assert "samples: 39 at bank, 40 at shop" in str(errors["dealer"])


def test_misaligned_ids(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    data = tmp_path / "bank" / "train.csv"
    head, first, second, *rest = data.read_text().splitlines(keepends=True)
    data.write_text("".join([head, second, first, *rest]))
    errors = run(local, "train").errors
    for name in (*NAMES, "dealer"):
        assert isinstance(errors[name], DisagreementError), errors[name]
        assert "ids: the samples of bank are not those of shop" in str(errors[name])
        assert "sort all tables by id" in str(errors[name])


def test_misaligned_ids_of_three_and_of_new_rows(tmp_path: Path) -> None:
    """Who is unlike the first is named, whoever that is; a prediction compares them, too."""
    names = ("bank", "telecom", "shop")
    local = prepare(tmp_path, tables=1, names=names)
    run(local, "train").checked()
    for who, told in (
        ("telecom", "the samples of bank are not those of telecom"),
        ("bank", "the samples of bank are not those of telecom or of shop"),
    ):
        data = tmp_path / who / "new.csv"
        whole = data.read_text()
        data.write_text(whole.replace("2-3", "2-33"))
        errors = run(local, "predict").errors
        for name in (*names, "dealer"):
            assert isinstance(errors[name], DisagreementError), errors[name]
            assert f"ids: {told}, or in another order" in str(errors[name])
        data.write_text(whole)
    run(local, "predict").checked()


def test_other_numbers_are_named_on_all_sides(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """One participant whose arithmetic, or whose constants, differ in a last bit."""

    def at_shop(function: Any, changed: Any) -> Any:
        def patched(*arguments: Any) -> Any:
            result = function(*arguments)
            return changed(result) if threading.current_thread().name == "shop" else result

        return patched

    def series(numbers: Any) -> Any:
        (first, *rest), slopes = numbers
        return (first + 1, *rest), slopes

    def waves(both: Any) -> Any:
        both[0][17] += 1
        return both

    for place, changed, what in (
        (
            "privet.protocols.masked.protocol.compute_sigmoid_coefficients",
            series,
            "numbers of the sigmoid",
        ),
        ("privet.gates.masked.fourier.compute_sin_cos", waves, "numbers of this machine's sines"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, at_shop(locate(place), changed))
            stated = statement(job, features=["a"]), statement(job, features=["b"])
            found = agreeing(job, *stated, by_the_dealer(job))
        for name, error in found.items():
            assert isinstance(error, DisagreementError), (name, error)
            assert f"{what}: " in str(error)
            assert "train noise" in str(error)
            assert ("at shop" in str(error)) == (name != "shop")


Said = tuple[Proposal, DataSummary]


def statement(job: Job, **values: Any) -> Said:
    values = {"cuts": [7], **values}
    return Proposal.for_job(job, command="train"), DataSummary(samples=3, n_features=1, **values)


def by_the_dealer(job: Job) -> Said:
    return Proposal.for_job(job), DataSummary()


def agreeing(
    job: Job,
    *statements: Said | bytes,
    channels: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Let two participants and the dealer agree; return what each found or raised."""
    channels = channels or create_memory_channels([*NAMES, "dealer"])

    def role(name: str, said: Said | bytes) -> Any:
        with channels[name] as channel:
            if isinstance(said, bytes):
                return exchange_messages(channel, dict.fromkeys(channel.peers, said))
            purpose = exchange_proposals(channel, job, said[0])
            return exchange_summaries(channel, job, purpose, said[1])

    found: dict[str, Any] = {}

    def guard(name: str, said: Said | bytes) -> None:
        try:
            found[name] = role(name, said)
        except Exception as error:  # noqa: BLE001
            found[name] = error

    threads = [
        threading.Thread(target=guard, args=(name, said), name=name, daemon=True)
        for name, said in zip(channels, statements, strict=True)
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


def test_the_latest_stage_that_all_have(job: Job) -> None:
    found = agreeing(
        job,
        statement(job, features=["a"], stages=[(3, "r"), (4, "r")]),
        statement(job, features=["b"], stages=[(4, "s"), (3, "r"), (2, "r")]),
        by_the_dealer(job),
    )
    assert {name: value.resume_from for name, value in found.items()} == dict.fromkeys(
        found, (3, "r")
    )
    assert found["bank"].run == found["shop"].run
    assert [feature.name for feature in found["bank"].features] == ["a", "b"]
    # The dealer learns how many features each has, not what they are called.
    assert [feature.name for feature in found["dealer"].features] == ["0", "0"]


@pytest.mark.parametrize("missing", ["tables", "protocol", "bank's address"])
def test_whoever_leaves_something_out(job: Job, missing: str) -> None:
    whole = Proposal.for_job(job)
    terms = {key: value for key, value in whole.terms.items() if key != missing}
    lacking = whole.model_copy(update={"terms": terms}), DataSummary()
    found = agreeing(job, statement(job), statement(job), lacking)
    assert isinstance(found["bank"], DisagreementError)
    assert f"{missing}: " in str(found["bank"])
    assert "None at dealer" in str(found["bank"])


def test_a_participant_without_a_command(job: Job) -> None:
    found = agreeing(job, statement(job), by_the_dealer(job), by_the_dealer(job))
    assert "command: train here, None at shop" in str(found["bank"])


def test_what_peers_write_is_shown_harmlessly(job: Job) -> None:
    whole = Proposal.for_job(job)
    terms = {**whole.terms, "tables": "\x1b[2J", "\x1b]0;x\x07": 1}
    strange = whole.model_copy(update={"terms": terms}), DataSummary()
    found = agreeing(job, statement(job), statement(job), strange)
    assert "tables: " in str(found["bank"])
    assert str(found["bank"]).isprintable()


def test_features_that_cannot_be(job: Job) -> None:
    for names in (["a", "b"], ["\x1b"], [" "]):
        found = agreeing(job, statement(job), statement(job, features=names), by_the_dealer(job))
        assert isinstance(found["bank"], PeerMisbehavedError), names
        assert found["bank"].peer == "shop"


def test_numbers_of_cuts(job: Job) -> None:
    stated = statement(job, features=["a"], cuts=[3]), statement(job, features=["b"])
    found = agreeing(job, *stated, by_the_dealer(job))
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
def test_numbers_of_cuts_that_cannot_be(job: Job, cuts: list[int] | None, complaint: str) -> None:
    stated = statement(job, features=["a"]), statement(job, features=["b"], cuts=cuts)
    found = agreeing(job, *stated, by_the_dealer(job))
    for name in ("bank", "dealer"):
        assert isinstance(found[name], PeerMisbehavedError)
        assert found[name].peer == "shop"
        assert complaint in str(found[name])


def test_numbers_of_cuts_where_they_are_hidden(job: Job) -> None:
    hidden = job.model_copy(update={"cuts": "hidden"})
    stated = [statement(hidden, features=["a"], cuts=None), statement(hidden, features=["b"])]
    found = agreeing(hidden, *stated, by_the_dealer(hidden))
    assert "they are hidden" in str(found["bank"])
    stated[1] = statement(hidden, features=["b"], cuts=None)
    found = agreeing(hidden, *stated, by_the_dealer(hidden))
    assert {value.cut_counts for value in found.values()} == {None}


def test_whoever_tells_different_peers_different_numbers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bank is told of three cuts, and everybody else of seven."""

    def swapped(channel: Any, content: dict[str, bytes]) -> dict[str, bytes]:
        if channel.name == "shop":
            lie = content["bank"].replace(b'"cuts":[7]', b'"cuts":[3]')
            content = {**content, "bank": lie}
        return exchange_messages(channel, content)

    monkeypatch.setattr("privet.federation.session.agreement.exchange_messages", swapped)
    stated = statement(job, features=["a"]), statement(job, features=["b"])
    found = agreeing(job, *stated, by_the_dealer(job))
    for error in found.values():
        assert isinstance(error, DisagreementError)
        assert "numbers of cuts: " in str(error)
        assert "somebody has told one of us other numbers" in str(error)


def test_every_run_has_a_name_of_its_own(job: Job) -> None:
    runs = set()
    for _ in range(3):
        stated = (statement(job, features=["a"]), statement(job, features=["b"]))
        runs.add(agreeing(job, *stated, by_the_dealer(job))["bank"].run)
    assert len(runs) == 3


def test_another_version(job: Job) -> None:
    newer = Proposal.for_job(job).model_copy(update={"version": "99.0"})
    found = agreeing(job, statement(job), statement(job), (newer, DataSummary()))
    assert "version: " in str(found["bank"])
    assert "99.0 at dealer" in str(found["bank"])
    assert isinstance(found["bank"], DisagreementError)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"", "no statement"),
        (b"\xff" * 50, "no statement"),
        (b"[" * 100_000, "no statement"),
        (b'{"version": "VERSION", "terms": 3}', "stated nonsense: terms"),
        (b'{"version": "VERSION", "terms": {}, "nonce": "xyz"}', "stated nonsense: nonce"),
    ],
)
def test_nonsense(job: Job, said: bytes, complaint: str) -> None:
    said = said.replace(b"VERSION", __version__.encode())
    found = agreeing(job, statement(job), statement(job), said)
    for name in NAMES:
        assert isinstance(found[name], PeerMisbehavedError)
        assert found[name].peer == "dealer"
        assert complaint in str(found[name])


def test_a_message_that_is_too_long() -> None:
    channels = create_memory_channels(["a", "b"])
    channels["b"].send("a", np.array([MAX_MESSAGE_BYTES + 1], dtype=np.uint64), MESSAGE_TAG)
    with pytest.raises(PeerMisbehavedError, match="too many"):
        receive_message(channels["a"], "b")


def test_where_longer_messages_are_expected() -> None:
    channels = create_memory_channels(["a", "b"])
    send_message(channels["b"], ["a"], bytes(MAX_MESSAGE_BYTES + 1))
    assert (
        len(receive_message(channels["a"], "b", max_bytes=2 * MAX_MESSAGE_BYTES))
        == MAX_MESSAGE_BYTES + 1
    )


def test_nan_labels_and_empty_files_are_found_before_anybody_is_met(tmp_path: Path) -> None:
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
