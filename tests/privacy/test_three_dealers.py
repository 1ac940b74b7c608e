"""One of three dealers, with all participants but one, learns nothing about masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from privet.arithmetic.shares import N_HOLDERS
from tests.privacy.cases import prediction, training
from tests.privacy.choosing import explain
from tests.privacy.hidden import Coalition
from tests.privacy.three import MEETING, Dealing, deal
from tests.privacy.uniform import groups, unfair, untested

N_PARTIES = 3
CASES = ["regression", "classification", "prediction"]


@cache
def dealt(case: str, rounds: int = 1) -> tuple[Callable[[Any], None], Dealing]:
    """Return a program, and what its dealers say; each has each role once in a round."""
    program: Any
    if case == "prediction":
        program, _ = prediction("masked", N_PARTIES, 0, 1)
    else:
        program, _ = training("masked", case, N_PARTIES, 0, tables=rounds * N_HOLDERS)

    def body(dealer: Any) -> None:
        if case != "prediction":
            program(dealer, None)
            return
        for _ in range(rounds * N_HOLDERS):
            program(dealer, None)

    return body, deal(body, N_PARTIES)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("dealer", "honest"), [(k, (k + 1) % N_PARTIES) for k in range(N_HOLDERS)] + [(0, 0)]
)
def test_what_a_dealer_hears_fits_other_masks(case: str, dealer: int, honest: int) -> None:
    """So do all corrections, of which the coalition may get any."""
    program, before = dealt(case)
    explain(program, N_PARTIES, before, Coalition(dealer, honest))


@pytest.mark.parametrize("case", CASES)
def test_every_dealer_hears_what_there_is_to_hear(case: str) -> None:
    """From the next one and from the one before it, so that the above is said of every role."""
    _, before = dealt(case)
    every = [
        {
            ((message.sender - dealer) % N_HOLDERS, message.step)
            for message in before.heard[dealer]
            if not message.step.startswith("setup")  # in which roles are fixed
        }
        for dealer in range(N_HOLDERS)
    ]
    assert every[0] == every[1] == every[2]
    assert {sender for sender, step in every[0] if step != MEETING} == {1, 2}
    assert all(before.corrections[dealer] for dealer in range(N_HOLDERS))


@pytest.mark.parametrize("case", CASES)
def test_what_dealers_hear_is_uniform(case: str) -> None:
    """To each of them; and to all together, where each hears too little to tell.

    That alone would not do: something may be uniform, and known to whoever hears it.
    """
    _, before = dealt(case, rounds=3)
    every = [letter for letters in before.letters.values() for letter in letters]
    for letters in (*before.letters.values(), every):
        found = groups(letters)
        assert sum(len(g.elements) for g in found) == sum(a.size for _, _, a in letters) > 0
        assert [alarm for group in found for alarm in unfair(group)] == []
    assert untested(groups(every)) == []
