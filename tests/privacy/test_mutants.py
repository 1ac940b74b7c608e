"""All mutants fit the code, and a few are caught here; `make test-mutants` runs all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.privacy.mutants.run import ROOT, Mutant, Verdict, judge, load, written

MUTANTS = {mutant.name: mutant for mutant in load()}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_mutant_fits_the_code(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "privet", tmp_path / "privet")
    mutant.apply(tmp_path / "privet")


def test_list_and_page_are_complete() -> None:
    assert len(MUTANTS) >= 100
    assert list(written()) == list(MUTANTS)  # the page was written with all of them


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("AttributeError: 'Dealer' object has no attribute '_total'", "BROKEN PATCH, failed"),
        ("AssertionError: at step 'predict', a mask is not fresh", "caught by"),
    ],
)
def test_broken_patch_does_not_count_as_caught(message: str, outcome: str) -> None:
    verdict = Verdict(next(iter(MUTANTS.values())), "test_uniform.py::test_views", message, 1.0)
    assert verdict.is_caught == (outcome == "caught by")
    assert str(verdict) == f"{outcome} test_uniform.py::test_views: {message}"


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("outcomes-unmasked", "privacy/test_explanation.py::test_training_with_other_features"),
        ("predictions-rounded-by-dither", "privacy/test_explanation.py::test_service_batches"),
        (
            "leaf-masks-16-bits-short",
            "privacy/test_uniform.py::test_views_of_two_participants_are_uniform",
        ),
        (
            "nonce-left-out",
            "privacy/test_sessions.py::test_restored_dealer_repeats_no_mask",
        ),
        (
            "one-blind-for-all-rows",
            "gates/test_leakage.py::test_every_element_of_a_loser_has_its_own_blind",
        ),
        (
            "halves-of-ids-accepted",
            "privacy/test_alignment.py::test_cheating_dealer_is_detected_by_all_participants",
        ),
        (
            "s-holder-sends-plain",
            "privacy/test_three_dealers.py::"
            "test_other_masks_explain_the_view_of_a_dealer[0-0-prediction]",
        ),
        (
            "seeds-sent-to-all-dealers",
            "privacy/test_three_dealers.py::"
            "test_other_masks_explain_the_view_of_a_dealer[1-2-prediction]",
        ),
    ],
)
def test_mutant_is_caught(name: str, test: str) -> None:
    assert judge(MUTANTS[name], f"tests/{test}").is_caught
