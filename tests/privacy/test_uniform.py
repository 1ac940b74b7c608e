"""Everything that participants are sent or that is opened to them is uniform, and of one shape.

The explanation test finds what depends on data; this finds masks that are narrower than their ring.
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
# Steps whose messages are not uniform: what is revealed, by intent; and masked permutations, which
# are uniform permutations (tests/gates/test_leakage.py) and not uniform bytes.
_PLAIN = ("reveal", "check", "argmin", "permute", "predict", "table", "")


def messages(seen: Seen) -> list[tuple[str, Ring, RingArray]]:
    """Return all vectors that came from the others and from the dealer, but for reveals."""
    return [letter for letter in seen.letters if letter[0].split("/")[-1] not in _PLAIN]


def assert_uniform(session: Session) -> None:
    """No group of any participant's view raises an alarm, and none is left out.

    The dealer sends a correction to one participant, whose turn it is: often enough to some.
    """
    for kind in (lambda seen: seen.opened, messages):
        small = []
        for seen in session.seen:
            values = kind(seen)
            found = groups(values)
            assert sum(len(g.elements) for g in found) == sum(a.size for _, _, a in values)
            assert [alarm for group in found for alarm in unfair(group)] == []
            small.append(set(untested(found)))
        assert set.intersection(*small) == set()


@pytest.mark.parametrize(
    ("protocol", "case"),
    [*(("masked", case) for case in range(4)), *(("paper", case) for case in range(3))],
)
def test_everything_is_uniform(protocol: str, case: int) -> None:
    """Trainings of both kinds, predictions and, by `masked`, explained ones."""
    assert_uniform(uniform_session(protocol, case))


@pytest.mark.parametrize("case", [4, 5, 6, 7])
def test_validation_rows_and_constraints(case: int) -> None:
    """Of regressions and classifications."""
    assert_uniform(uniform_session("masked", case))


@pytest.mark.parametrize("task", TASKS)
def test_a_training_of_two(task: str) -> None:
    program, data = training("masked", task, 2, 0, tables=16, **ALL_TERMS)
    assert_uniform(perform(program, data, Randomness("uniform")))


def test_the_table_of_openings_is_what_is_opened() -> None:
    """If this fails after a change that is meant: python -m tests.privacy.openings."""
    assert written() == tables()


def shuffled(data: TrainingData) -> TrainingData:
    buckets = np.random.default_rng(0).permuted(data.columns.buckets, axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", TASKS)
def test_shapes_and_order_do_not_depend_on_data(protocol: str, task: str) -> None:
    """Not even on whose the tests are, but in `paper`, where owners share their outcomes."""
    program, data = training(protocol, task, 3, 0, tables=1)
    other = list(data)
    other[1], other[2] = (mirror(data[1][0]), None), (other_label(data[2][0]), None)
    if protocol == "masked":
        # Noise for signal: other features are tested, of other owners.
        own = data[0][0]
        swapped = np.roll(own.columns.buckets, 1, axis=1)[::-1].copy()
        other[0] = (
            type(own)(type(own.columns)(**{**vars(own.columns), "buckets": swapped}), None),
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
