"""Training with lattice masks reveals nothing, if these are indistinguishable from uniform ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.prg import Sampler
from privet.arithmetic.ring_lwe import RingLwe, binomial, degree_for, ternary
from privet.arithmetic.rings import RingArray, get_integer_ring, signed
from privet.arithmetic.shares import Share
from privet.gates.masked.value import lattice_mask
from privet.runtime.runtime import Runtime
from tests.gates.test_masked import on_shares
from tests.privacy.cases import (
    ALL_TERMS,
    THREE,
    mirror,
    other_label,
    other_weights,
    training,
    twins,
    twins_trained,
)
from tests.privacy.explain import check_inverse, explain
from tests.privacy.lattice import uniform_lattice
from tests.privacy.stage import Randomness, perform
from tests.privacy.test_explanation import TASKS, changed
from tests.privacy.uniform import groups, unfair, untested
from tests.protocols.masked.many_rows import as_with_very_many_rows
from tests.runtime.harness import play

LATTICE = {"masks": "lattice"}
NARROW = get_integer_ring(30)


@pytest.fixture
def as_uniform() -> Iterator[None]:
    with uniform_lattice():
        yield


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1), (4, 3)])
@pytest.mark.parametrize("task", [*TASKS, THREE])
def test_training_with_other_features(task: str, n: int, honest: int) -> None:
    """Change rows and the buckets of splits: every mask is fresh and hides one value."""
    program, data = training("masked", task, n, honest, depth=3, tables=2, chosen=LATTICE)
    assert program.plan.n_lattice_errors == 3 * n
    session = perform(program, data, Randomness("lattice"))
    found = explain(session, honest, changed(twins, mirror)(data[honest]))
    steps = {shown.step for shown in session.seen[honest].runtime.shown}
    assert "table/level/split/children/hide" in steps
    is_local = session.seen[honest].result.part.feature // 2 == honest
    assert is_local.any(), "the honest participant's splits must be among the chosen ones"
    before, after = (s.seen[honest].result.part.bucket[is_local] for s in (session, found))
    assert (before + after == 2).all()  # the other side of the same cut


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize("honest", [0, 1])
@pytest.mark.parametrize("task", [*TASKS, THREE])
def test_training_with_very_many_rows(
    task: str, honest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They also open leaf values again, or gradients and Hessians, and two sums of squares."""
    as_with_very_many_rows(monkeypatch)
    program, data = training("masked", task, 2, honest, chosen=LATTICE)
    session = perform(program, data, Randomness("many"))
    steps = [shown.step for shown in session.seen[honest].runtime.shown]
    additional_step = "table/update/mask" if task == "regression" else "table/gradients/hide"
    assert steps.count(additional_step) == 2
    other = changed(*([other_label] if honest == 1 else []), twins)(data[honest])
    explain(session, honest, other)


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize("task", [*TASKS, THREE])
def test_training_with_other_labels(task: str) -> None:
    """Negate the label, and with it every leaf value and every gradient."""
    program, data = training("masked", task, 3, 2, chosen=LATTICE)
    session = perform(program, data, Randomness("labels"))
    found = explain(session, 2, changed(other_label, twins)(data[-1]))
    check_inverse(session, found, 2)


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize("honest", [0, 1])
def test_training_with_weights(honest: int) -> None:
    """Change columns and, of the label holder, also weights."""
    program, data = training(
        "masked", "classification", 2, honest, tables=1, weighted=True, chosen=LATTICE
    )
    session = perform(program, data, Randomness("weights"))
    changes = [twins, mirror] + ([other_weights] if honest == 1 else [])
    explain(session, honest, changed(*changes)(data[honest]))


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize("task", TASKS)
def test_training_with_all_reveals(task: str) -> None:
    program, data = training("masked", task, 3, 0, tables=1, chosen=LATTICE, **ALL_TERMS)
    session = perform(program, data, Randomness("terms"))
    explain(session, 0, changed(twins_trained)(data[0]))


@pytest.mark.usefixtures("as_uniform")
@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 1)])
def test_two_trainings_on_kept_indicators(n: int, honest: int, tmp_path: Path) -> None:
    """The second sends none: what both show together is explained by the same other data."""
    program, data = training("masked", "regression", n, honest, chosen=LATTICE)
    other = changed(twins, mirror)(data[honest])
    session = perform(program.keeping(data, tmp_path), data, Randomness("first"))
    found = explain(session, honest, other)
    second = program.at_another_rate().keeping(data, tmp_path)
    assert second.plan.cached_owners == tuple(range(n))
    explain(perform(second, data, Randomness("second")), honest, other, earlier=found)


@pytest.mark.parametrize("task", [*TASKS, THREE])
def test_no_secret_and_no_error_is_used_twice(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each vector of a node, class, level and table has fresh ones, at all participants."""
    drawn: dict[str, list[RingArray]] = {"ternary": [], "binomial": []}

    def record(sampler: Sampler) -> Sampler:
        @functools.wraps(sampler)
        def recording_sampler(*arguments: Any) -> RingArray:
            sample = sampler(*arguments)
            drawn[sampler.__name__].extend(signed(sample).reshape(-1, sample.shape[-1]).copy())
            return sample

        return recording_sampler

    for sampler in (ternary, binomial):
        monkeypatch.setattr(f"privet.gates.masked.value.{sampler.__name__}", record(sampler))
    program, data = training("masked", task, 2, 0, tables=2, depth=3, chosen=LATTICE)
    play(program, 2, data)
    outputs = 3 if task == THREE else 1
    root = 1 if task == "regression" else 2
    vectors = 2 * 2 * outputs * (root + 2 * (1 + 2))  # participants, tables; g and h of children
    for samples in drawn.values():
        assert len(samples) == 2 * vectors  # the dealer draws the same
        assert len({tuple(vector.tolist()) for vector in samples}) == vectors


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("bits", [44, 64])
def test_lattice_masked_openings_are_uniform(n: int, bits: int) -> None:
    """With real draws, masked zeros are indistinguishable from uniform numbers."""
    wide = get_integer_ring(bits)
    lattice = RingLwe("31" * 32, 2 * degree_for(bits), bits)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        masked = lattice_mask(runtime, a, b, lattice=lattice, on_masks=lambda _: None)
        return [x.to_share(runtime) for x in masked]

    zeros: Any = [(ring.zeros((3, lattice.rows)), ring) for ring in (wide, NARROW)]
    found, _, views = on_shares(body, zeros, n)
    assert not np.concatenate([x.reshape(-1) for x in found]).any()
    for view in views:
        rings = {ring.dtype: ring for ring in (wide, NARROW)}
        seen = groups(("hide", rings[array.dtype], array) for array in view.opened)
        assert {group.ring for group in seen} == {wide, NARROW}
        assert [alarm for group in seen for alarm in unfair(group)] == []
        assert untested(seen) == []
