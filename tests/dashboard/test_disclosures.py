"""Disclosures in words, compared with those that a job permits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import privet
from privet.config.job import Job
from privet.dashboard import disclosures
from privet.dashboard.disclosures import (
    add_disclosures,
    compare_with_permitted,
    format_disclosure,
    list_permitted,
)
from tests.federation.harness import change, prepare, run


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.read(prepare(tmp_path).job_path)


@pytest.mark.parametrize(
    ("what", "to", "count", "sentence"),
    [
        ("predictions", ["shop"], 114, "shop learned 114 predictions"),
        ("predictions", ["shop"], 1, "shop learned 1 prediction"),
        ("predictions", ["shop"], 1001, "shop learned 1,001 predictions"),
        ("split feature", ["bank", "shop"], 15, "which feature is tested at 15 levels"),
        ("split bucket", ["bank"], 1, "bank learned the thresholds of 1 test on features"),
        (
            "number of tables to keep, or none yet",
            ["bank", "shop", "dealer"],
            4,
            "All participants and dealer learned whether training goes on, 4 times",
        ),
        ("something new", ["bank"], 2, "bank learned 2 of: something new"),
    ],
)
def test_sentences(job: Job, what: str, to: list[str], count: int, sentence: str) -> None:
    assert sentence in format_disclosure(what, to, count, job)


def test_all_disclosures_have_sentences() -> None:
    """Every literal disclosure name in the source has a sentence."""
    source = "".join(path.read_text() for path in Path(privet.__file__).parent.rglob("*.py"))
    calls = (
        r'\.reveal\(\s*[^\n]*"([a-z][^"]+)"',
        r'\.announce\(\s*[^\n]*"([^"\n]+)"',
        r'\.record_disclosure\(\s*"([^"]+)"',
        r'ledger\.record\("([^"]+)"',
        r'Reveal\(what="([^"]+)"',
        r'reveal_to_all\.defer\(\s*[^\n]*disclosure="([^"]+)"',
        r'_WHAT = "([^"]+)"',
    )
    for call in calls:
        found = set(re.findall(call, source))
        assert found, call  # the pattern still finds them
        assert found <= set(disclosures._SENTENCES)


def train(tmp_path: Path, settings: str, params: str = "") -> tuple[Job, list[dict[str, Any]]]:
    local = prepare(tmp_path, tables=2)
    change(local.job_path, ("[params]", f"{settings}\n[params]\n{params}"))
    outcome = run(local, "train").checked()
    return Job.read(local.job_path), [reveal.model_dump() for reveal in outcome["bank"][0].reveals]


def test_training_reveals_only_permitted_disclosures(tmp_path: Path) -> None:
    settings = (
        'explain = "feature"\nreveal_loss = true\nreveal_validation = true\nreveal_gain = true'
    )
    more_settings = "\nreveal_importances = true"
    job, reveals = train(tmp_path, settings + more_settings, "validation = 0.25\npatience = 2")
    rows = compare_with_permitted(job, reveals)
    assert [row["what"] for row in rows if row["count"] and not row["allowed"]] == []
    assert sum(row["count"] for row in rows) == sum(each["count"] for each in reveals)
    learned = {row["what"] for row in rows if row["count"]}
    assert {
        "the training loss",
        "predictions of validation rows",
        "what each level gains",
    } < learned


def test_unpermitted_disclosures_are_marked(job: Job) -> None:
    reveals = [
        {"what": "training loss", "to": ["bank", "shop"], "count": 3},
        {"what": "predictions", "to": ["bank"], "count": 1},
        {"what": "predictions", "to": ["shop"], "count": 5},
    ]
    rows = [row for row in compare_with_permitted(job, reveals) if row["count"]]
    marked = {(row["what"], row["count"]) for row in rows if not row["allowed"]}
    assert marked == {("training loss", 3), ("predictions", 1)}
    assert [row["sentences"] for row in rows if row["allowed"]] == [["shop learned 5 predictions"]]


def test_unset_disclosures_have_no_recipients(job: Job) -> None:
    unset = {each.text for each in list_permitted(job) if not each.recipients}
    assert {"the training loss", "leaf values", "the mean loss on validation rows"} <= unset
    assert "predictions" not in unset


def test_add_disclosures() -> None:
    one = [{"what": "predictions", "to": ["shop"], "count": 2}]
    two = [*one, {"what": "predictions", "to": ["bank"], "count": 1}]
    assert [(each["to"], each["count"]) for each in add_disclosures([one, two])] == [
        (["shop"], 4),
        (["bank"], 1),
    ]
