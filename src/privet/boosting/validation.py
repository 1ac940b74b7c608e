"""What validation rows are used for at the end of a training, for the label's holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.federation import Federation, PartyData, Trained
from privet.boosting.inference import Query, mean_contributions, predict, tell_unit
from privet.boosting.sharded_inference import Crowd, hand_out_tests
from privet.runtime.orders import Head
from privet.runtime.runtime import Runtime
from privet.terms.plan import Plan

_WHAT = "predictions of validation rows"


class Validated(NamedTuple):
    """What the label's holder learns of validation rows at the end; nobody else learns any."""

    predictions: FloatArray | None = None
    importances: dict[str, list[float]] | None = None
    """How large contributions to their scores are on average, whatever their sign: of each feature
    or participant, by name, to each output."""


def validate(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    workers: Sequence[Head] = (),
) -> Validated:
    """Do with validation rows, after the last table, what all agreed on.

    Where rows are in shards, workers do it, who have them in buckets.

    Reveals: what `predict_validation` and `reveal_importances` do.
    """
    crowd = Crowd(plan.shards, workers) if plan.shards > 1 else None
    if crowd is not None and (plan.reveal_validation or plan.importances_by is not None):
        shape = (trained.tables, plan.params.depth, plan.n_validation)
        hand_out_tests(runtime, crowd, shape, trained.part)
    predictions = predict_validation(runtime, federation, plan, trained, data, crowd)
    importances = reveal_importances(runtime, federation, plan, trained, data, crowd)
    return Validated(predictions, importances)


def predict_validation(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    crowd: Crowd | None = None,
) -> FloatArray | None:
    """Return the predictions of validation rows to the label's holder, if all agreed on that.

    Reveals: these, rounded like any prediction, to the label's holder alone.
    """
    if not plan.reveal_validation:
        return None
    query, part = Query.to_holder(federation, trained.tables, plan.n_validation), trained.part
    query = replace(query, what=_WHAT)
    unit, columns = tell_unit(runtime, query, part), _columns(plan, data)
    return predict(runtime, query, federation.parties, part, columns, unit, crowd)


def reveal_importances(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    crowd: Crowd | None = None,
) -> dict[str, list[float]] | None:
    """Return mean absolute contributions to the label's holder, if all agreed on that.

    Reveals: these, with as many fraction bits as predictions have or one more, to the label's
    holder alone.
    """
    if plan.importances_by is None:
        return None
    by, part = plan.importances_by, trained.part
    query = Query.to_holder(federation, trained.tables, plan.n_validation, by)
    unit, columns = tell_unit(runtime, query, part), _columns(plan, data)
    found = mean_contributions(runtime, query, federation.parties, part, columns, unit, crowd)
    if found is None or part is None:
        return None
    names = query.group_names(federation.parties, part)
    return dict(zip(names, found.tolist(), strict=True))


def _columns(plan: Plan, data: PartyData | None) -> FloatArray | None:
    """Return our columns of validation rows, unless workers have them."""
    if data is None or plan.shards > 1:
        return None
    return stand_ins(data.columns, plan.n_validation)


def stand_ins(columns: BucketedColumns, last: int) -> FloatArray:
    """Return values that lie in the buckets that the last rows are in: (n_features, rows).

    The lowest value of each bucket, and a missing one in the first: they pass the same tests.
    """
    buckets = columns.buckets[:, columns.n_samples - last :].astype(np.intp)
    lowest = np.take_along_axis(columns.thresholds, np.maximum(buckets - 1, 0), axis=1)
    return np.where(buckets > 0, lowest, np.nan)
