"""Job drafts: entries that are open, filled in, and filled in twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.draft import JobDraft
from privet.config.job import Job
from privet.config.members import format_settings_digest, join_names
from privet.errors import DisagreementError, ParameterError

DRAFT = """\
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
def draft(tmp_path: Path) -> JobDraft:
    path = tmp_path / "job.toml"
    path.write_text(DRAFT.replace("{shop}", KEYS["shop"]))
    return JobDraft.read(path)


def fill_in(job: JobDraft, *names: str) -> JobDraft:
    for number, name in enumerate(names, start=7410):
        job = job.with_entry(name, f"{name}.example:{number}", KEYS[name])
    return job


def test_draft_may_have_open_entries(draft: JobDraft) -> None:
    """Comments, layout and other keys of an entry stay unchanged."""
    assert draft.open_names == ["bank", "dealer"]
    with pytest.raises(ParameterError, match="the seats of bank and dealer are not filled in yet"):
        Job.read(draft.display_name)
    complete = fill_in(draft, "bank", "dealer")
    for line in ("# Agreed on in May.", "# a notary", "# has the label", "{ income = 1 }"):
        assert line in complete.text
    assert complete.open_names == []
    assert complete.to_job().get_entry("dealer").fingerprint == KEYS["dealer"]
    assert complete.to_job().monotone == {"bank": {"income": 1}}


def test_entries_merge_in_any_order(draft: JobDraft) -> None:
    bank = fill_in(draft, "bank")
    dealer = fill_in(draft, "dealer").with_entry("dealer", "d.example:7400", KEYS["dealer"])
    assert bank.merge(dealer).text == dealer.merge(bank).text
    assert bank.merge(bank) == bank
    assert bank.merge(draft) == bank


def test_entry_with_another_key_is_rejected(draft: JobDraft) -> None:
    local = fill_in(draft, "bank")
    other = draft.with_entry("bank", "bank.example:7410", "d" * 64)
    with pytest.raises(DisagreementError, match="the seat of bank is filled in twice") as error:
        local.merge(other)
    assert error.value.peer == "bank"
    assert local.merge(other, ["bank"]).entries["bank"]["fingerprint"] == "d" * 64


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "churn"', 'name = "fraud"', "job: churn here, fraud there"),
        ("income = 1", "income = -1", "monotone"),
        ('name = "bank"', 'name = "bench"', "participants"),
        ("[dealer]", 'export = "shop"\n[dealer]', "export: .*shop there"),
    ],
)
def test_drafts_may_differ_only_in_entries(
    draft: JobDraft, old: str, new: str, complaint: str
) -> None:
    received = JobDraft(draft.text.replace(old, new), "received.toml")
    with pytest.raises(DisagreementError, match=f"are not the same job: .*{complaint}"):
        draft.merge(received)


def test_digest_covers_settings_addresses_and_keys(draft: JobDraft) -> None:
    job = fill_in(draft, "bank", "dealer")
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
    again = JobDraft(
        job.text.replace("# Agreed on in May.", 'recipient = "bank"  # set explicitly')
    )
    assert format_settings_digest(again.to_job().list_agreed_settings()) == format_settings_digest(
        job.to_job().list_agreed_settings()
    )


def test_duplicate_address_is_rejected(draft: JobDraft) -> None:
    with pytest.raises(ParameterError, match="two have the same of addresses"):
        draft.with_entry("bank", "shop.example:7402", KEYS["bank"])


def test_half_filled_entry_is_not_open(draft: JobDraft) -> None:
    half = JobDraft(draft.text.replace(f'fingerprint = "{KEYS["shop"]}"', ""))
    with pytest.raises(ParameterError, match=r"participants.1.fingerprint: is required"):
        half.make_placeholder_job()


def test_join_names() -> None:
    assert [join_names(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
