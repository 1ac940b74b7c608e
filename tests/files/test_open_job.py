"""A job on its way round: seats that are open, filled in, and filled in twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.draft import OpenJob
from privet.config.job import Job
from privet.config.members import listed, read_out
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
def by_hand(tmp_path: Path) -> OpenJob:
    path = tmp_path / "job.toml"
    path.write_text(BY_HAND.replace("{shop}", KEYS["shop"]))
    return OpenJob.read(path)


def filled(job: OpenJob, *names: str) -> OpenJob:
    for number, name in enumerate(names, start=7410):
        job = job.with_seat(name, f"{name}.example:{number}", KEYS[name])
    return job


def test_a_job_by_hand_may_leave_seats_open(by_hand: OpenJob) -> None:
    """Comments, and how it is written, stay; so does what is beside a seat."""
    assert by_hand.waited_for == ["bank", "dealer"]
    with pytest.raises(ParameterError, match="the seats of bank and dealer are not filled in yet"):
        Job.read(by_hand.where)
    whole = filled(by_hand, "bank", "dealer")
    for line in ("# Agreed on in May.", "# a notary", "# has the label", "{ income = 1 }"):
        assert line in whole.text
    assert whole.waited_for == []
    assert whole.whole().contact("dealer").fingerprint == KEYS["dealer"]
    assert whole.whole().monotone == {"bank": {"income": 1}}


def test_seats_come_together_in_any_order(by_hand: OpenJob) -> None:
    bank = filled(by_hand, "bank")
    dealer = filled(by_hand, "dealer").with_seat("dealer", "d.example:7400", KEYS["dealer"])
    assert bank.joined(dealer).text == dealer.joined(bank).text
    assert bank.joined(bank) == bank
    assert bank.joined(by_hand) == bank


def test_a_seat_with_another_key_is_refused(by_hand: OpenJob) -> None:
    ours = filled(by_hand, "bank")
    other = by_hand.with_seat("bank", "bank.example:7410", "d" * 64)
    with pytest.raises(DisagreementError, match="the seat of bank is filled in twice") as error:
        ours.joined(other)
    assert error.value.peer == "bank"
    assert ours.joined(other, ["bank"]).seats["bank"]["fingerprint"] == "d" * 64


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "churn"', 'name = "fraud"', "job: churn here, fraud there"),
        ("income = 1", "income = -1", "monotone"),
        ('name = "bank"', 'name = "bench"', "participants"),
        ("[dealer]", 'export = "shop"\n[dealer]', "export: .*shop there"),
    ],
)
def test_nothing_but_seats_may_differ(by_hand: OpenJob, old: str, new: str, complaint: str) -> None:
    sent = OpenJob(by_hand.text.replace(old, new), "sent.toml")
    with pytest.raises(DisagreementError, match=f"are not the same job: .*{complaint}"):
        by_hand.joined(sent)


def test_one_digest_for_terms_addresses_and_keys(by_hand: OpenJob) -> None:
    job = filled(by_hand, "bank", "dealer")
    others = [
        job.with_seat("bank", "bank.example:1", KEYS["bank"]),
        job.with_seat("bank", "bank.example:7410", "d" * 64),
        OpenJob(job.text.replace("income = 1", "income = -1")),
        OpenJob(job.text.replace('name = "churn"', 'name = "churn"\nparams = { tables = 9 }')),
    ]
    digests = {read_out(each.whole().terms()) for each in (job, *others)}
    assert len(digests) == 5
    again = OpenJob(job.text.replace("# Agreed on in May.", 'recipient = "bank"  # said twice'))
    assert read_out(again.whole().terms()) == read_out(job.whole().terms())


def test_two_at_one_address_are_refused(by_hand: OpenJob) -> None:
    with pytest.raises(ParameterError, match="two have the same of addresses"):
        by_hand.with_seat("bank", "shop.example:7402", KEYS["bank"])


def test_half_a_seat_is_a_mistake_and_no_open_one(by_hand: OpenJob) -> None:
    half = OpenJob(by_hand.text.replace(f'fingerprint = "{KEYS["shop"]}"', ""))
    with pytest.raises(ParameterError, match=r"participants.1.fingerprint: is required"):
        half.as_if_filled()


def test_names_in_a_sentence() -> None:
    assert [listed(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
