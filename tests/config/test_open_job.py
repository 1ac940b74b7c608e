"""A job on its way round: seats that are open, filled in, and filled in twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.draft import JobDraft
from privet.config.job import Job
from privet.config.members import format_settings_digest, join_names
from privet.errors import DisagreementError, ParameterError

BY_HAND = """\
# Agreed on in May.
name = "churn"
task = "classification"

[dealer]      # a notary

[[participants]]
name = "bank"
role = "active"   # has the label
monotone = { income = 1 }

[[participants]]
name = "shop"
address = "shop.example:7402"
fingerprint = "{shop}"
"""
KEYS = {name: letter * 64 for name, letter in (("bank", "a"), ("shop", "b"), ("dealer", "c"))}


@pytest.fixture
def by_hand(tmp_path: Path) -> JobDraft:
    path = tmp_path / "job.toml"
    path.write_text(BY_HAND.replace("{shop}", KEYS["shop"]))
    return JobDraft.read(path)


def filled(job: JobDraft, *names: str) -> JobDraft:
    for number, name in enumerate(names, start=7410):
        job = job.with_entry(name, f"{name}.example:{number}", KEYS[name])
    return job


def test_a_job_by_hand_may_leave_seats_open(by_hand: JobDraft) -> None:
    """Comments, and how it is written, stay; so does what is beside a seat."""
    assert by_hand.open_names == ["bank", "dealer"]
    with pytest.raises(ParameterError, match="the seats of bank and dealer are not filled in yet"):
        Job.read(by_hand.display_name)
    whole = filled(by_hand, "bank", "dealer")
    for line in ("# Agreed on in May.", "# a notary", "# has the label", "{ income = 1 }"):
        assert line in whole.text
    assert whole.open_names == []
    assert whole.to_job().get_entry("dealer").fingerprint == KEYS["dealer"]
    assert whole.to_job().monotone == {"bank": {"income": 1}}


def test_seats_come_together_in_any_order(by_hand: JobDraft) -> None:
    bank = filled(by_hand, "bank")
    dealer = filled(by_hand, "dealer").with_entry("dealer", "d.example:7400", KEYS["dealer"])
    assert bank.merge(dealer).text == dealer.merge(bank).text
    assert bank.merge(bank) == bank
    assert bank.merge(by_hand) == bank


def test_a_seat_with_another_key_is_refused(by_hand: JobDraft) -> None:
    ours = filled(by_hand, "bank")
    other = by_hand.with_entry("bank", "bank.example:7410", "d" * 64)
    with pytest.raises(DisagreementError, match="the seat of bank is filled in twice") as error:
        ours.merge(other)
    assert error.value.peer == "bank"
    assert ours.merge(other, ["bank"]).entries["bank"]["fingerprint"] == "d" * 64


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "churn"', 'name = "fraud"', "job: churn here, fraud there"),
        ("income = 1", "income = -1", "monotone"),
        ('name = "bank"', 'name = "bench"', "participants"),
        ("[dealer]", 'export = "shop"\n[dealer]', "export: .*shop there"),
    ],
)
def test_nothing_but_seats_may_differ(
    by_hand: JobDraft, old: str, new: str, complaint: str
) -> None:
    sent = JobDraft(by_hand.text.replace(old, new), "sent.toml")
    with pytest.raises(DisagreementError, match=f"are not the same job: .*{complaint}"):
        by_hand.merge(sent)


def test_one_digest_for_terms_addresses_and_keys(by_hand: JobDraft) -> None:
    job = filled(by_hand, "bank", "dealer")
    others = [
        job.with_entry("bank", "bank.example:1", KEYS["bank"]),
        job.with_entry("bank", "bank.example:7410", "d" * 64),
        JobDraft(job.text.replace("income = 1", "income = -1")),
        JobDraft(job.text.replace('name = "churn"', 'name = "churn"\nparams = { tables = 9 }')),
    ]
    digests = {
        format_settings_digest(each.to_job().list_agreed_settings()) for each in (job, *others)
    }
    assert len(digests) == 5
    again = JobDraft(job.text.replace("# Agreed on in May.", 'recipient = "bank"  # said twice'))
    assert format_settings_digest(again.to_job().list_agreed_settings()) == format_settings_digest(
        job.to_job().list_agreed_settings()
    )


def test_two_at_one_address_are_refused(by_hand: JobDraft) -> None:
    with pytest.raises(ParameterError, match="two have the same of addresses"):
        by_hand.with_entry("bank", "shop.example:7402", KEYS["bank"])


def test_half_a_seat_is_a_mistake_and_no_open_one(by_hand: JobDraft) -> None:
    half = JobDraft(by_hand.text.replace(f'fingerprint = "{KEYS["shop"]}"', ""))
    with pytest.raises(ParameterError, match=r"participants.1.fingerprint: is required"):
        half.make_placeholder_job()


def test_names_in_a_sentence() -> None:
    assert [join_names(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
