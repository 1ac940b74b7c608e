"""All messages to participants and all opened values are uniform, and shapes do not depend on data.

The explanation test finds messages that depend on data; this test finds masks that are narrower
than their ring.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet.arithmetic.rings import Ring, RingArray
from privet.boosting.training import TrainingData
from tests.privacy.cases import ALL_TERMS, mirror, other_label, training, uniform_session
from tests.privacy.openings import tables, written
from tests.privacy.stage import Randomness, Seen, Session, perform
from tests.privacy.uniform import groups, unfair, untested

TASKS: list[str] = ["regression", "classification"]
# Steps whose messages are not uniform: intended reveals; and masked permutations, which are uniform
# permutations (tests/gates/test_leakage.py) and not uniform bytes.
_PLAIN = ("reveal", "check", "argmin", "permute", "predict", "table", "")


def messages(seen: Seen) -> list[tuple[str, Ring, RingArray]]:
    """Return all vectors from the other participants and the dealer, except reveals."""
    return [vector for vector in seen.vectors if vector[0].split("/")[-1] not in _PLAIN]


def assert_uniform(session: Session) -> None:
    """Check that no group of any participant's view raises an alarm, and that none is left out.

    The dealer sends each correction to only one participant, so every group is large enough at
    some participant, but not at all of them.
    """
    for list_values in (lambda seen: seen.opened, messages):
        too_small = []
        for seen in session.seen:
            values = list_values(seen)
            tested = groups(values)
            assert sum(len(g.elements) for g in tested) == sum(a.size for _, _, a in values)
            assert [alarm for group in tested for alarm in unfair(group)] == []
            too_small.append(set(untested(tested)))
        assert set.intersection(*too_small) == set()


@pytest.mark.parametrize(
    ("protocol", "case"),
    [*(("masked", case) for case in range(4)), *(("paper", case) for case in range(3))],
)
def test_views_are_uniform(protocol: str, case: int) -> None:
    """Training of both tasks, predictions and, with `masked`, explained predictions."""
    assert_uniform(uniform_session(protocol, case))


@pytest.mark.parametrize("case", [4, 5, 6, 7])
def test_views_with_validation_rows_and_constraints_are_uniform(case: int) -> None:
    """Regression and classification."""
    assert_uniform(uniform_session("masked", case))


@pytest.mark.parametrize("task", TASKS)
def test_views_of_two_participants_are_uniform(task: str) -> None:
    program, data = training("masked", task, 2, 0, tables=16, **ALL_TERMS)
    assert_uniform(perform(program, data, Randomness("uniform")))


def test_table_of_openings_is_current() -> None:
    """If this fails after an intended change, run: python -m tests.privacy.openings."""
    assert written() == tables()


def shuffled(data: TrainingData) -> TrainingData:
    buckets = np.random.default_rng(0).permuted(data.columns.buckets, axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", TASKS)
def test_shapes_and_order_do_not_depend_on_data(protocol: str, task: str) -> None:
    """With `masked` they do not depend on the owners of splits, either.

    With `paper` they do, since owners share their outcomes.
    """
    program, data = training(protocol, task, 3, 0, tables=1)
    other = list(data)
    other[1], other[2] = (mirror(data[1][0]), None), (other_label(data[2][0]), None)
    if protocol == "masked":
        # Exchange noise and signal: splits are on other features, of other owners.
        first_data = data[0][0]
        swapped = np.roll(first_data.columns.buckets, 1, axis=1)[::-1].copy()
        other[0] = (
            replace(first_data, columns=replace(first_data.columns, buckets=swapped)),
            None,
        )
    first, second = (perform(program, each, Randomness("shapes")) for each in (data, other))
    for one, two in zip(first.seen, second.seen, strict=True):
        for way in ("received", "from_dealer"):
            shapes = [
                [(r.peer, r.step, r.tag, r.array.dtype, r.array.shape) for r in getattr(seen, way)]
                for seen in (one, two)
            ]
            assert shapes[0] == shapes[1]
        assert one.runtime.meter == two.runtime.meter
    if protocol == "masked":
        assert (first.seen[0].result.part.feature != second.seen[0].result.part.feature).any()
