"""Settings of job.toml and party.toml, and errors for invalid ones."""

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


def test_participants_and_defaults_of_a_job(job: Path) -> None:
    job_settings = Job.read(job)
    assert (
        job_settings.party_names,
        job_settings.label_holder_index,
        job_settings.recipient_index,
    ) == (
        ["bank", "shop"],
        1,
        1,
    )
    assert job_settings.protocol == "masked"
    assert job_settings.make_params().l2 == 1.0
    assert [member.name for member in job_settings.make_members()] == ["bank", "shop", "dealer"]
    assert job_settings.make_members()[0].host == "127.0.0.1"


def test_digest_depends_on_values_not_on_defaults_being_set(job: Path) -> None:
    digest = Job.read(job).digest
    change(job, ("[params]", 'protocol = "masked"\nrecipient = "shop"\n\n[params]\nl2 = 1'))
    assert Job.read(job).digest == digest  # the defaults, set explicitly
    change(job, ("l2 = 1", "l2 = 2"))
    assert Job.read(job).digest != digest
    change(
        job, ("l2 = 2", "l2 = 1"), ('recipient = "shop"', 'recipient = "shop"\ncuts = "rounded"')
    )
    assert Job.read(job).digest == digest
    change(job, ('cuts = "rounded"', 'cuts = "exact"'))
    assert Job.read(job).digest != digest


def test_agreed_settings_include_defaults(job: Path) -> None:
    """Defaults are compared, so that a difference shows two values."""
    default_settings = Job.read(job).list_agreed_settings()
    assert (default_settings["shards"], default_settings["monotone"]) == (1, {})
    change(
        job,
        ("\n[params]", "shards = 2\n[params]"),
        ('role = "active"', 'role = "active"\nmonotone = { a = 1 }'),
    )
    settings = Job.read(job).list_agreed_settings()
    assert (settings["shards"], settings["monotone"]) == (2, {"shop": {"a": 1}})
    assert set(settings) == set(default_settings)


def test_params_are_not_keys_of_the_job() -> None:
    """Except for the task, so that every key has a single place."""
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
def test_invalid_jobs_are_rejected(job: Path, old: str, new: str, complaint: str) -> None:
    change(job, (old, new))
    with pytest.raises(ParameterError, match=complaint) as caught:
        Job.read(job)
    assert str(caught.value).startswith(str(job))


def test_participant_with_the_name_of_a_worker(job: Path) -> None:
    """A lost connection would be ambiguous; without shards there are no workers."""
    change(job, ('name = "bank"', 'name = "worker2"'))
    assert Job.read(job).party_names == ["worker2", "shop"]
    change(job, ("\n[params]", "shards = 2\n[params]"))
    for name in ("worker2", "head"):
        change(job, ('name = "worker2"', f'name = "{name}"'))
        with pytest.raises(ParameterError, match=f"participants: '{name}' is a worker's name"):
            Job.read(job)


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file"):
        Job.read(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ParameterError, match="not a text file"):
        Job.read(tmp_path / "job.toml")


def test_unknown_participant_is_rejected(job: Path) -> None:
    with pytest.raises(ParameterError, match=r"'moon' takes no part .*bank, shop, dealer"):
        Job.read(job).get_entry("moon")


def test_paths_are_relative_to_party_toml(job: Path) -> None:
    folder = job.parent / "bank"
    party = PartyConfig.load(folder / "party.toml")
    assert (party.key, party.folder) == (str(folder / "bank.key"), str(folder / "models"))
    assert party.data.path == str(folder / "train.csv")
    change(folder / "party.toml", ('"train.csv"', '"/data/train.csv"'))
    assert PartyConfig.load(folder / "party.toml").data.path == "/data/train.csv"


def test_only_the_label_holder_has_a_label(job: Path) -> None:
    bank = job.parent / "bank" / "party.toml"
    change(bank, ('id = "id"', 'id = "id"\nlabel = "a"'))
    with pytest.raises(ParameterError, match=r"data\.label: bank is a passive participant"):
        PartyConfig.load(bank).read_rows(Job.read(job))
    shop = job.parent / "shop" / "party.toml"
    change(shop, ('label = "label"\n', ""))
    with pytest.raises(ParameterError, match=r"data\.label: is required of shop"):
        PartyConfig.load(shop).read_rows(Job.read(job))
