"""What validation rows are used for at the end of a training, for the label's holder."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.federation import Federation, PartyData, Trained
from privet.boosting.inference import Query, mean_contributions, predict, tell_unit
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
    runtime: Runtime, federation: Federation, plan: Plan, trained: Trained, data: PartyData | None
) -> Validated:
    """Do with validation rows, after the last table, what all agreed on.

    Reveals: what `predict_validation` and `reveal_importances` do.
    """
    predictions = predict_validation(runtime, federation, plan, trained, data)
    importances = reveal_importances(runtime, federation, plan, trained, data)
    return Validated(predictions, importances)


def predict_validation(
    runtime: Runtime, federation: Federation, plan: Plan, trained: Trained, data: PartyData | None
) -> FloatArray | None:
    """Return the predictions of validation rows to the label's holder, if all agreed on that.

    Reveals: these, rounded like any prediction, to the label's holder alone.
    """
    if not plan.reveal_validation:
        return None
    query, part = Query.to_holder(federation, trained.tables, plan.n_validation), trained.part
    query = replace(query, what=_WHAT)
    unit = tell_unit(runtime, query, part)
    return predict(runtime, query, federation.parties, part, _columns(plan, data), unit)


def reveal_importances(
    runtime: Runtime, federation: Federation, plan: Plan, trained: Trained, data: PartyData | None
) -> dict[str, list[float]] | None:
    """Return mean absolute contributions to the label's holder, if all agreed on that.

    Reveals: these, with as many fraction bits as predictions have or one more, to the label's
    holder alone.
    """
    if plan.importances_by is None:
        return None
    by, part = plan.importances_by, trained.part
    query = Query.to_holder(federation, trained.tables, plan.n_validation, by)
    unit = tell_unit(runtime, query, part)
    columns = _columns(plan, data)
    found = mean_contributions(runtime, query, federation.parties, part, columns, unit)
    if found is None or part is None:
        return None
    names = query.group_names(federation.parties, part)
    return dict(zip(names, found.tolist(), strict=True))


def _columns(plan: Plan, data: PartyData | None) -> FloatArray | None:
    return None if data is None else stand_ins(data.columns, plan.n_validation)


def stand_ins(columns: BucketedColumns, last: int) -> FloatArray:
    """Return values that lie in the buckets that the last rows are in: (n_features, rows).

    The lowest value of each bucket, and a missing one in the first: they pass the same tests.
    """
    buckets = columns.buckets[:, columns.n_samples - last :].astype(np.intp)
    lowest = np.take_along_axis(columns.thresholds, np.maximum(buckets - 1, 0), axis=1)
    return np.where(buckets > 0, lowest, np.nan)
