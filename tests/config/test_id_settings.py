"""The id settings of a job, and how participants apply them."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.job import IdSettings, Job
from privet.config.party import PartyConfig
from privet.errors import DataError, ParameterError
from tests.federation.harness import change, prepare


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return prepare(tmp_path).job_path


def with_ids(job: Path, text: str, align: bool = True) -> Job:
    aligned = "align = true\n\n" if align else ""
    change(job, ("[params]", f"{aligned}[ids]\n{text}\n\n[params]"))
    return Job.read(job)


def test_defaults_compare_ids_unchanged(job: Path) -> None:
    found = Job.read(job)
    assert not found.align
    assert (found.ids.parts, found.ids.rules_by_part) == (["id"], [[]])
    assert (found.ids.minimum, found.ids.padded, found.ids.most_alignments) == (100, None, None)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('normalise = ["strip", "casefold"]', [["strip", "casefold"]]),
        ('parts = ["name", "born"]\nnormalise = ["strip"]', [["strip"], ["strip"]]),
        ('parts = ["name", "born"]\nnormalise = {born = ["digits"]}', [[], ["digits"]]),
    ],
)
def test_rules_for_all_parts_or_for_some(job: Path, text: str, rules: list[list[str]]) -> None:
    found = with_ids(job, text)
    assert found.ids.rules_by_part == rules
    assert Job.parse(found.model_dump()) == found  # as a model part stores it


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('normalise = ["upper"]', r"ids\.normalise\.id\.0: input should be 'strip', 'casefold' or"),
        ('normalise = {name = ["strip"]}', r"ids\.normalise: 'name' is no part of an id; .* id"),
        ("normalise = 3", r"ids\.normalise: input should be a valid dictionary"),
        ("parts = []", r"ids\.parts: list should have at least 1 item"),
        ('parts = ["a", "a"]', r"ids\.parts: \['a', 'a'\] are not names that all differ"),
        ("minimum = 0", r"ids\.minimum: input should be greater than or equal to 1"),
        ("minimum = 10\npadded = 9", r"ids\.padded: 9 rows are fewer than the minimum"),
        ("most_alignments = 0", r"ids\.most_alignments: input should be greater"),
        ("most = 1", r"ids\.most: is not known"),
    ],
)
def test_invalid_settings_are_rejected(job: Path, text: str, complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        with_ids(job, text)


@pytest.mark.parametrize("text", ["minimum = 5", "padded = 1000", "most_alignments = 3"])
def test_limits_require_alignment(job: Path, text: str) -> None:
    key = text.split()[0]
    with pytest.raises(ParameterError, match=rf"ids\.{key}: is for jobs that say align = true"):
        with_ids(job, text, align=False)


def test_limits_are_agreed_but_not_in_the_digest(job: Path) -> None:
    one = Job.read(job)
    other = with_ids(job, "minimum = 5\npadded = 1000\nmost_alignments = 3")
    digest_keys = {"align", "ids.parts", "ids.normalise"}
    mutable_keys = {"ids.minimum", "ids.padded", "ids.most_alignments"}
    assert digest_keys <= set(one.list_digest_settings())
    assert digest_keys | mutable_keys <= set(one.list_agreed_settings())
    aligned = one.model_copy(update={"align": True})
    assert aligned.digest == other.digest != one.digest


def test_number_of_id_columns_must_match_the_parts(job: Path) -> None:
    found = with_ids(job, 'parts = ["name", "born"]')
    path = job.parent / "bank" / "party.toml"
    with pytest.raises(ParameterError, match=r"data\.id: names id, and an id of the job has 2 par"):
        PartyConfig.load(path).read_rows(found)
    change(path, ('id = "id"', 'id = ["id", "a"]'))
    rows = PartyConfig.load(path).read_rows(found).collect()
    assert rows.names == ("b", "c")
    assert rows.ids is not None
    assert rows.ids.names == ("id", "a")
    with pytest.raises(ParameterError, match=r"names id, a, and an id of the job has 1 parts, id"):
        PartyConfig.load(path).read_rows(Job.read(prepare(job.parent / "other").job_path))
    change(path, ('id = ["id", "a"]', 'id = ["id", "a"]\ncolumns = ["a", "b"]'))
    with pytest.raises(DataError, match="'a' is asked for twice: as id, label or weight, and"):
        PartyConfig.load(path).read_rows(found)
    change(path, ('id = ["id", "a"]', 'id = ["id", "id"]'))
    with pytest.raises(DataError, match=r"column 'id' is asked for twice"):
        PartyConfig.load(path).read_rows(found)


def test_rules_normalise_the_match_keys(job: Path) -> None:
    found = with_ids(job, 'normalise = ["digits"]', align=False)
    ids = PartyConfig.load(job.parent / "bank" / "party.toml").read_ids(found)
    assert ids.tolist()[:2] == ["1-0", "1-1"]
    assert ids.match_keys.to_pylist()[:2] == ["10", "11"]


def test_digest_settings_list_the_rules_of_each_part() -> None:
    settings = IdSettings(parts=["a", "b"], normalise={"a": ["strip"]})
    assert settings.list_digest_settings()["ids.normalise"] == {"a": ["strip"], "b": []}
