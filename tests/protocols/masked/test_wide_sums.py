"""Sums of more than 36 bits, for many rows: scales, and small training runs that use them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.errors import ParameterError
from privet.gates.masked import value
from privet.protocols.masked.bounds import plan_residual_checks
from privet.protocols.masked.precision import rows as units_module
from privet.protocols.masked.precision.rows import compute_max_noise
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.protocol import MaskedProtocol
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan
from tests.boosting.test_federation import bucketed, columns, label_of
from tests.protocols.masked.many_rows import as_with_many_rows, as_with_very_many_rows
from tests.protocols.masked.test_components import (
    test_rows_have_headroom as rows_have_headroom,
)
from tests.protocols.masked.test_components import (
    test_scales_never_overflow as scales_never_overflow,
)
from tests.protocols.masked.test_lattice import federation, metered

rows_have_headroom.__test__ = scales_never_overflow.__test__ = False  # type: ignore[attr-defined]

# Scales.

MANY = [3 * 10**6, 10**7, 10**8, 1 << 29, 1 << 31]


@pytest.mark.parametrize("errors", [6, 24])
@pytest.mark.parametrize("depth", [1, 5, 10])
@pytest.mark.parametrize("l2", [0.3, 1.0, 3.7, 100.0])
@pytest.mark.parametrize("n_samples", MANY)
@pytest.mark.parametrize(("task", "classes"), [("regression", 2), ("classification", 2)])
def test_scales_for_many_rows(
    task: str, classes: int, n_samples: int, l2: float, depth: int, errors: int
) -> None:
    """Plans of up to 2^31 rows are accepted, and every bound holds."""
    params = Params(task=task, l2=l2, depth=depth)
    plan = Plan(params, Ownership((0, 1), 1), n_samples, n_lattice_errors=errors)
    scales = Scales.from_plan(plan)
    found = plan, scales
    scales_never_overflow.hypothesis.inner_test(found)  # type: ignore[attr-defined]
    rows_have_headroom.hypothesis.inner_test(found)  # type: ignore[attr-defined]
    units = scales.units
    # The noise of sums is at most l2 / 25 or l2 / 8, or as little as score bits allow.
    (g_bits, _), (h_bits, _) = units.row_formats
    assert Fraction(compute_max_noise(plan), 1 << h_bits) <= Fraction(l2) / 25
    if units.is_wide:
        assert Fraction(compute_max_noise(plan), 1 << g_bits) <= Fraction(l2) / 8 or g_bits == 26
    # The bits that G loses before it is squared are a small fraction of all samples.
    assert Fraction(2) ** (scales.gradient_dropped_bits - units.g_bits) * (1 << 27) <= max(
        n_samples, 1 << 18
    )


@pytest.mark.parametrize("classes", [3, 8])
@pytest.mark.parametrize("n_samples", [10**7, 10**8])
def test_scales_for_several_classes(n_samples: int, classes: int) -> None:
    params = Params(task="classification", classes=classes)
    plan = Plan(params, Ownership((0, 1), 1), n_samples, n_lattice_errors=6)
    found = plan, Scales.from_plan(plan)
    scales_never_overflow.hypothesis.inner_test(found)  # type: ignore[attr-defined]
    rows_have_headroom.hypothesis.inner_test(found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("n_samples", MANY)
def test_squares_are_checked_step_by_step(n_samples: int) -> None:
    """With any residuals, a coarser check fails before a sum of squares can wrap around."""
    params = Params(task="regression", tables=10)
    plan = Plan(params, Ownership((0, 1), 1), n_samples, n_lattice_errors=6, monotone=(1, 0))
    units = Scales.from_plan(plan).units
    checks = plan_residual_checks(plan, units)
    error = Fraction(1 + int(np.ceil(np.sqrt(n_samples))))
    # The root of the sum of squares, in units of sums, before any check.
    root = error * (3 << (units.g_ring.bits - 2))
    for drop, limit in checks:
        assert (root / (1 << drop) + error) ** 2 < 1 << 64
        assert 0 < limit < 1 << 62
        root = (Fraction(int(np.ceil(np.sqrt(float(limit)) * (1 + 1e-12)))) + error) * (1 << drop)
    assert checks[-1][0] == units.g_bits - 9


def test_unsupported_plans_are_rejected() -> None:
    """Errors name the missing bits; those of uniform masks suggest lattice masks."""
    forced = federation("classification", 4, 8, masks="lattice", depth=10, l2=0.3)
    with pytest.raises(ParameterError, match=r"masks: .* would need 65 bits, and have 64: use a l"):
        forced.make_plan(1 << 33)
    tiny = federation("regression", 4, 2, masks="lattice", l2=1e-6)
    with pytest.raises(ParameterError, match=r"lattice masks 20 bits below a count.* needs 29"):
        tiny.make_plan(10**7)
    uniform = federation("classification", 4, 2, masks="uniform")
    with pytest.raises(ParameterError, match="leave 11: use lattice masks, or fewer samples"):
        uniform.make_plan(5 * 10**6)
    regression = federation("regression", 4, 2, masks="uniform")
    with pytest.raises(ParameterError, match="bring them closer together, or use lattice masks"):
        regression.make_plan(5 * 10**6)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_auto_chooses_lattice_masks_if_uniform_masks_do_not_fit(task: str) -> None:
    chosen = federation(task, 4, 2)
    plan = chosen.make_plan(10**7)
    assert plan.n_lattice_errors == 6
    assert Scales.from_plan(plan).units.is_wide
    found = estimate_cost(chosen, plan)
    assert found.masks == "lattice"
    published = MaskedProtocol.choose_publication_format(plan)
    assert published.n_columns == 4096
    assert 44 < published.ring.bits <= 50


def test_weights_of_many_rows() -> None:
    """The weights of a classification leave gradients fewer bits, and finally too few."""
    weighted = replace(federation("classification", 4, 2), is_weighted=True)
    for n_samples in (1_048_000, 2 * 10**6, 10**7):
        estimate_cost(weighted, weighted.make_plan(n_samples))
    with pytest.raises(ParameterError, match=r"weights: .* leave masked 15 fraction bits"):
        weighted.make_plan(10**8)


# Training runs.


@pytest.fixture
def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    as_with_many_rows(monkeypatch)


@pytest.fixture
def very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    as_with_very_many_rows(monkeypatch)


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("regression", {}),
    ("classification", {}),
    ("classification", {"classes": 3}),
    ("regression", {"depth": 4, "l2": 0.05}),
    ("classification", {"depth": 4, "l2": 0.05}),
    ("regression", {"min_child_weight": 4.0, "min_gain": 0.1}),
    ("classification", {"min_child_weight": 4.0, "min_gain": 0.1}),
    ("classification", {"colsample": 0.5, "seed": 3}),
    ("regression", {"validation": 0.25}),
]


def check(
    task: str,
    chosen: dict[str, Any],
    dealers: int,
    weight: np.ndarray | None = None,
) -> CostEstimate:
    """Check splits and leaf values against plaintext, and costs against the estimate."""
    x = columns(5)
    label = label_of(x, task)
    if "classes" in chosen:
        label = np.digitize(x[0] + x[1], [-0.5, 0.5]).astype(float)
    values = {"tables": 3, "depth": 3, "buckets": 8, "learning_rate": 0.5, **chosen}
    params = Params(task=task, masks="lattice", **values)
    parties = bucketed(x, [2, 3], 8)
    reference = train_locally(parties, label, params, sample_weight=weight)
    due: list[CostEstimate] = []
    federated = train_federated(
        parties,
        label,
        params,
        "masked",
        n_dealers=dealers,
        sample_weight=weight,
        on_estimate=due.append,
    )
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    unit = label.std() if task == "regression" else 1.0
    assert np.abs(model.leaf_values - reference.leaf_values).max() < unit * 2.0**-12
    assert metered(federated) == (due[0].rounds, due[0].online_bytes, due[0].offline_bytes)
    return due[0]


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize("dealers", [1, 3])
@pytest.mark.parametrize(("task", "chosen"), SETTINGS, ids=str)
def test_splits_match_reference(task: str, chosen: dict[str, Any], dealers: int) -> None:
    check(task, chosen, dealers)


@pytest.mark.usefixtures("very_many_rows")
@pytest.mark.parametrize("dealers", [1, 3])
@pytest.mark.parametrize("chosen", [{}, {"classes": 3}, {"min_child_weight": 2.0}], ids=str)
def test_as_with_very_many_rows(chosen: dict[str, Any], dealers: int) -> None:
    check("classification", chosen, dealers)


@pytest.mark.usefixtures("many_rows")
def test_with_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients have as few bits as with many rows."""
    monkeypatch.setattr(units_module, "_FINER", 19)
    weight = np.random.default_rng(2).uniform(0.2, 3.0, columns(5).shape[1])
    check("classification", {}, 1, np.asarray(weight))


@pytest.mark.parametrize("dealers", [1, 3])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_blocks_of_rows(task: str, dealers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Correlations for blocks of rows have the same cost as for all rows at once."""
    single_block = check(task, {}, dealers)
    monkeypatch.setattr(value, "BLOCK_ROWS", 64)
    assert check(task, {}, dealers) == replace(single_block, memory_bytes=ANY)
