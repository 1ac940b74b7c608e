"""The mutants fit the code, and a few are caught here; `make test-mutants` runs all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.privacy.mutants.run import ROOT, Mutant, judge, load, written

MUTANTS = {mutant.name: mutant for mutant in load()}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_it_fits(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "privet", tmp_path / "privet")
    mutant.apply(tmp_path / "privet")


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 100
    assert list(written()) == list(MUTANTS)  # the page was written with all of them


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("outcomes-unmasked", "privacy/test_explanation.py::test_training_with_other_features"),
        ("predictions-rounded-by-dither", "privacy/test_explanation.py::test_batches_of_a_service"),
        ("leaf-masks-16-bits-short", "privacy/test_uniform.py::test_a_training_of_two"),
        (
            "nonce-left-out",
            "privacy/test_sessions.py::test_a_dealer_that_repeats_itself_repeats_no_mask",
        ),
        (
            "one-veil-for-all-rows",
            "gates/test_leakage.py::test_every_element_of_a_loser_has_a_veil_of_its_own",
        ),
        (
            "halves-of-ids-accepted",
            "privacy/test_alignment.py::test_a_dealer_that_cheats_is_named_by_all",
        ),
        (
            "client-sends-plain",
            "privacy/test_three_dealers.py::"
            "test_what_a_dealer_hears_fits_other_masks[0-0-prediction]",
        ),
        (
            "seeds-told-to-all-dealers",
            "privacy/test_three_dealers.py::"
            "test_what_a_dealer_hears_fits_other_masks[1-2-prediction]",
        ),
    ],
)
def test_it_is_caught(name: str, test: str) -> None:
    assert judge(MUTANTS[name], f"tests/{test}").test
