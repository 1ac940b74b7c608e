"""Jobs and participants' files: what they say, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import ParameterError
from privet.spec.params import Params
from tests.federation.harness import change, prepare


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return prepare(tmp_path).job_path


def test_a_job_says_who_does_what(job: Path) -> None:
    read = Job.read(job)
    assert (read.party_names, read.label_holder_index, read.recipient_index) == (
        ["bank", "shop"],
        1,
        1,
    )
    assert read.protocol == "masked"
    assert read.make_params().l2 == 1.0
    assert [member.name for member in read.make_members()] == ["bank", "shop", "dealer"]
    assert read.make_members()[0].host == "127.0.0.1"


def test_the_digest_is_of_what_is_meant(job: Path) -> None:
    digest = Job.read(job).digest
    change(job, ("[params]", 'protocol = "masked"\nrecipient = "shop"\n\n[params]\nl2 = 1'))
    assert Job.read(job).digest == digest  # the defaults, said aloud
    change(job, ("l2 = 1", "l2 = 2"))
    assert Job.read(job).digest != digest
    change(
        job, ("l2 = 2", "l2 = 1"), ('recipient = "shop"', 'recipient = "shop"\ncuts = "rounded"')
    )
    assert Job.read(job).digest == digest
    change(job, ('cuts = "rounded"', 'cuts = "exact"'))
    assert Job.read(job).digest != digest


def test_terms_that_nobody_has_said(job: Path) -> None:
    """They are among what is compared, so a difference is one of values and not of None."""
    terms = Job.read(job).list_agreed_settings()
    assert (terms["shards"], terms["monotone"]) == (1, {})
    change(
        job,
        ("\n[params]", "shards = 2\n[params]"),
        ('role = "active"', 'role = "active"\nmonotone = { a = 1 }'),
    )
    said = Job.read(job).list_agreed_settings()
    assert (said["shards"], said["monotone"]) == (2, {"shop": {"a": 1}})
    assert set(said) == set(terms)


def test_params_are_no_keys_of_the_job() -> None:
    """But for what is learned: then nobody has to guess what goes where."""
    assert set(Job.model_fields) & set(Params.model_fields) == {"task", "classes"}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("tables = 3", "tables = 0", r"params\.tables: .*greater than or equal to 1"),
        ("tables = 3", "trees = 3", r"params\.trees: is not known"),
        ("tables = 3", 'task = "regression"', r"params\.task: is a key of the job itself"),
        (
            "tables = 3",
            "shards = 2",
            r"params\.shards: is a key of the job itself, and not of \[params\]: write it above",
        ),
        ("tables = 3", "align = true", r"params\.align: is a key of the job itself"),
        ('role = "active"', 'role = "passive"', 'exactly one has role = "active", and here 0'),
        ('role = "active"', 'role = "chief"', r"participants\.1\.role"),
        ("\n[params]", 'recipient = "moon"\n[params]', "recipient: 'moon' is none of bank, shop"),
        (
            "\n[params]",
            'protocol = "plain"\n[params]',
            "protocol: 'plain' is none of masked, paper",
        ),
        ("\n[params]", "colour = 1\n[params]", "colour: is not known"),
        ('name = "bank"', 'name = "shop"', "two have the same of names, 'shop'"),
        ('name = "bank"', 'name = "dealer"', "'dealer' is the name of somebody else"),
        ('name = "bank"', 'name = "../bank"', "is none: up to 64 of"),
        ("127.0.0.1:", "127.0.0.1", "is not HOST:PORT"),
        ('fingerprint = "', 'fingerprint = "x', "fingerprint"),
        ("[params]", "[params", "not TOML"),
    ],
)
def test_what_is_no_job(job: Path, old: str, new: str, complaint: str) -> None:
    change(job, (old, new))
    with pytest.raises(ParameterError, match=complaint) as caught:
        Job.read(job)
    assert str(caught.value).startswith(str(job))


def test_a_participant_called_like_a_worker(job: Path) -> None:
    """Who was lost would not be clear; without shards there are none."""
    change(job, ('name = "bank"', 'name = "worker2"'))
    assert Job.read(job).party_names == ["worker2", "shop"]
    change(job, ("\n[params]", "shards = 2\n[params]"))
    for name in ("worker2", "head"):
        change(job, ('name = "worker2"', f'name = "{name}"'))
        with pytest.raises(ParameterError, match=f"participants: '{name}' is a worker's name"):
            Job.read(job)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file"):
        Job.read(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ParameterError, match="not a text file"):
        Job.read(tmp_path / "job.toml")


def test_somebody_who_takes_no_part(job: Path) -> None:
    with pytest.raises(ParameterError, match=r"'moon' takes no part .*bank, shop, dealer"):
        Job.read(job).get_entry("moon")


def test_a_participants_paths_start_from_its_file(job: Path) -> None:
    folder = job.parent / "bank"
    party = PartyConfig.load(folder / "party.toml")
    assert (party.key, party.folder) == (str(folder / "bank.key"), str(folder / "models"))
    assert party.data.path == str(folder / "train.csv")
    change(folder / "party.toml", ('"train.csv"', '"/data/train.csv"'))
    assert PartyConfig.load(folder / "party.toml").data.path == "/data/train.csv"


def test_the_label_is_the_active_participants(job: Path) -> None:
    bank = job.parent / "bank" / "party.toml"
    change(bank, ('id = "id"', 'id = "id"\nlabel = "a"'))
    with pytest.raises(ParameterError, match=r"data\.label: bank is a passive participant"):
        PartyConfig.load(bank).read_rows(Job.read(job))
    shop = job.parent / "shop" / "party.toml"
    change(shop, ('label = "label"\n', ""))
    with pytest.raises(ParameterError, match=r"data\.label: is required of shop"):
        PartyConfig.load(shop).read_rows(Job.read(job))
