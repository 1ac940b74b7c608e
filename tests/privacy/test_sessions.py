"""Nothing random is used twice: not in two sessions, by two participants, or by two streams."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from privet.arithmetic.rings import Z8, Ring, RingArray
from privet.config import Task
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from tests.privacy.cases import prediction, training
from tests.privacy.stage import Session, perform
from tests.privacy.uniform import groups, unfair

Opened = tuple[str, Ring, RingArray]


def differences(one: Iterable[Opened], other: Iterable[Opened]) -> list[Opened]:
    """Return by how much the openings of two sessions differ, in order."""
    found = []
    for (step, ring, a), (also_step, also_ring, b) in zip(one, other, strict=True):
        assert (step, ring, a.shape) == (also_step, also_ring, b.shape)
        found.append((step, ring, ring.reduce(ring.subtract(a, b))))
    return found


def sent_shares(session: Session) -> list[Opened]:
    """Return what participants sent each other as shares of their own, as bytes."""
    return [
        (r.step, Z8, r.array.view("u1").reshape(-1))
        for seen in session.seen
        for r in seen.received
        if r.step in ("setup", "predict", "predict/infer") or r.step.endswith("split")
    ]


def assert_unrelated(one: Session, other: Session) -> None:
    """What two sessions on the same data open and share differs by uniform numbers."""
    for pairs in (
        differences(one.seen[0].opened, other.seen[0].opened),
        differences(sent_shares(one), sent_shares(other)),
    ):
        assert [alarm for group in groups(pairs) for alarm in unfair(group)] == []


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_two_trainings_on_the_same_data(protocol: str, task: Task) -> None:
    program, data = training(protocol, task, 3, 0, tables=6 if protocol == "masked" else 1)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_two_predictions_of_the_same_rows(protocol: str) -> None:
    program, data = prediction(protocol, 3, 0, 1, sizes=(70,) * 8)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


def test_openings_of_one_session_have_masks_of_their_own() -> None:
    """Those of the same step, ring and shape differ by uniform numbers, too."""
    program, data = training("masked", "classification", 3, 0, tables=8)
    opened = perform(program, data, None).seen[0].opened
    kinds: dict[tuple[str, Ring, tuple[int, ...]], list[Opened]] = {}
    for step, ring, value in opened:
        kinds.setdefault((step, ring, value.shape), []).append((step, ring, value))
    pairs = [
        pair
        for members in kinds.values()
        for first, second in pairwise(members)
        for pair in differences([first], [second])
    ]
    assert len(pairs) > 100
    assert [alarm for group in groups(pairs) for alarm in unfair(group)] == []


def test_a_dealer_that_repeats_itself_repeats_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored from a backup, a dealer draws the same parts of seeds; the nonces are fresh."""
    parts = iter([bytes([k]) * 32 for k in range(4)] * 2)
    monkeypatch.setattr("privet.runtime.seeds.fresh_seed", lambda: next(parts))
    program, data = training("masked", "regression", 3, 0, tables=4)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))
    assert next(parts, None) is None  # the dealer did repeat itself


def test_no_two_streams_are_the_same() -> None:
    """Nor those of two participants, nor of two sessions."""
    streams: list[bytes] = []

    def program(runtime: Runtime, _: object) -> None:
        if isinstance(runtime, Party):
            for prg in (runtime._shared, runtime._private, runtime._own):
                streams.append(prg.bytes(64).tobytes())

    for _ in range(2):
        perform(program, [None] * 3, None)
    assert len(set(streams)) == 18
