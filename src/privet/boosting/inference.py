"""Prediction as a program: what every participant and the dealer run.

Reference: the paper's Section V.C, for any suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32, Z64
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.federation import SUITES
from privet.boosting.part import GUARD_BITS, LabelUnit, ModelPart
from privet.gates.outcomes import owned_share
from privet.gates.rounding import round_off
from privet.runtime.runtime import Runtime
from privet.suites.suite import AppliedTests
from privet.terms.objective import Objective


@dataclass(frozen=True)
class Query:
    """A batch to predict, as all participants and the dealer know it."""

    protocol: str
    objective: Objective
    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    active: int
    recipient: int
    """Who receives the predictions."""
    prediction_bits: int
    """Fraction bits that they are revealed with."""

    @property
    def encoding(self) -> FixedPoint:
        """How scores are encoded, in which they are rounded."""
        return FixedPoint(self.prediction_bits + GUARD_BITS, Z32)


def tell_unit(runtime: Runtime, query: Query, part: ModelPart | None) -> LabelUnit | None:
    """Return the label's unit to the recipient of predictions, once, before the first of them.

    Where the objective has none of its own, there is nothing to tell.

    Reveals: the unit to the recipient, if it is not the active participant, who has it.
    """
    if not query.objective.own_unit:
        return LabelUnit((0.0,) * query.objective.outputs)
    unit = None if part is None else part.unit
    if query.recipient == query.active:
        return unit
    with runtime.step("predict"):
        numbers = None if unit is None else np.array([*unit.start, unit.scale]).view(np.uint64)
        shared = runtime.share(numbers, query.active, (2,), Z64)
        revealed = runtime.reveal(shared, [query.recipient], "centre and scale of the label")
    if revealed is None:
        return None
    centre, scale = revealed.view(np.float64).tolist()
    return LabelUnit((centre,), scale)


def predict(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
) -> FloatArray | None:
    """Predict new samples; return values or probabilities to the recipient, None to all others.

    1. Every participant applies its own tests; the suite adds up the leaf values on shares, from
       where the active participant has scores start.
    2. The scores are rounded to what all agreed on, and revealed to the recipient, who knows the
       label's unit (`tell_unit`).

    Reveals: the rounded scores to the recipient.
    """
    tables, depth, n_samples = query.shape
    objective = query.objective
    with runtime.step("predict"):
        leaves = Share.unknown((tables, objective.outputs, 1 << depth), Z32)
        tests = AppliedTests(query.shape, None, None)
        if part is not None and columns is not None:
            leaves = Share(part.leaf_shares, Z32)
            tests = AppliedTests(query.shape, part.test_owners(parties), part.fails(columns))
        scores = SUITES[query.protocol].infer(runtime, tests, leaves)
        if not objective.own_unit:
            scores += _start(runtime, query, part)
        rounded = round_off(runtime, scores.reshape(-1), bits=GUARD_BITS)
        revealed = runtime.reveal(rounded, [query.recipient], "predictions")
        if revealed is None:
            return None
        assert unit is not None
        score = query.encoding.decode(revealed).reshape(objective.outputs, n_samples)
        return objective.prediction(unit.restore(score))


def _start(runtime: Runtime, query: Query, part: ModelPart | None) -> Share:
    """Return a share of where scores start, (K, N), all of which the active participant has."""
    shape, own = (query.objective.outputs, query.shape[2]), None
    if part is not None and part.unit is not None:
        own = np.broadcast_to(query.encoding.encode(part.unit.start)[:, None], shape)
    return owned_share(runtime, own, shape, Z32)
