"""Predictions of validation rows, at the end of a training: for the label's holder."""

from __future__ import annotations

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.federation import Federation, PartyData, Trained
from privet.boosting.inference import Query, predict, tell_unit
from privet.runtime.runtime import Runtime
from privet.terms.plan import Plan

_WHAT = "predictions of validation rows"


def predict_validation(
    runtime: Runtime, federation: Federation, plan: Plan, trained: Trained, data: PartyData | None
) -> FloatArray | None:
    """Return the predictions of validation rows to the label's holder, if all agreed on that.

    Reveals: these, rounded like any prediction, to the label's holder alone.
    """
    if not plan.reveal_validation:
        return None
    query = Query(
        protocol=federation.protocol,
        objective=plan.objective,
        shape=(trained.tables, plan.params.depth, plan.n_validation),
        active=federation.active,
        recipient=federation.active,
        prediction_bits=federation.prediction_bits,
        what=_WHAT,
    )
    part, columns = trained.part, None
    if data is not None:
        columns = stand_ins(data.columns)[:, plan.n_samples :]
    unit = tell_unit(runtime, query, part)
    return predict(runtime, query, federation.parties, part, columns, unit)


def stand_ins(columns: BucketedColumns) -> FloatArray:
    """Return values that lie in the buckets that rows are in: (n_features, n_rows).

    The lowest value of each bucket, and a missing one in the first: they pass the same tests.
    """
    below = np.maximum(columns.buckets.astype(np.intp) - 1, 0)
    lowest = np.take_along_axis(columns.thresholds, below, axis=1)
    return np.where(columns.buckets > 0, lowest, np.nan)
