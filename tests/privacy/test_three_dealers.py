"""One of three dealers, colluding with all participants but one, learns nothing about masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from privet.arithmetic.shares import N_HOLDERS
from tests.privacy.cases import prediction, training
from tests.privacy.dealer_explanation import explain
from tests.privacy.hidden_draws import Coalition
from tests.privacy.three_dealers import SEED_EXCHANGE, Dealing, deal
from tests.privacy.uniform import groups, unfair, untested

N_PARTIES = 3
CASES = ["regression", "classification", "prediction"]


@cache
def dealt(case: str, rounds: int = 1) -> tuple[Callable[[Any], None], Dealing]:
    """Return a program and the messages of its dealers; each has each role once in a round."""
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
def test_other_masks_explain_the_view_of_a_dealer(case: str, dealer: int, honest: int) -> None:
    """Other masks also explain all corrections, any of which the coalition can receive."""
    program, before = dealt(case)
    explain(program, N_PARTIES, before, Coalition(dealer, honest))


@pytest.mark.parametrize("case", CASES)
def test_every_dealer_receives_messages_of_all_steps(case: str) -> None:
    """Each receives them from both other dealers, so the test above covers every role."""
    _, before = dealt(case)
    steps = [
        {
            ((message.sender - dealer) % N_HOLDERS, message.step)
            for message in before.received[dealer]
            if not message.step.startswith("setup")  # in which roles are fixed
        }
        for dealer in range(N_HOLDERS)
    ]
    assert steps[0] == steps[1] == steps[2]
    assert {sender for sender, step in steps[0] if step != SEED_EXCHANGE} == {1, 2}
    assert all(before.corrections[dealer] for dealer in range(N_HOLDERS))


@pytest.mark.parametrize("case", CASES)
def test_messages_to_dealers_are_uniform(case: str) -> None:
    """Test the messages to each dealer, and to all together if one receives too few to test.

    This test alone does not suffice: a uniform message can be one that its recipient knows.
    """
    _, before = dealt(case, rounds=3)
    all_vectors = [vector for vectors in before.vectors.values() for vector in vectors]
    for vectors in (*before.vectors.values(), all_vectors):
        tested = groups(vectors)
        assert sum(len(g.elements) for g in tested) == sum(a.size for _, _, a in vectors) > 0
        assert [alarm for group in tested for alarm in unfair(group)] == []
    assert untested(groups(all_vectors)) == []
