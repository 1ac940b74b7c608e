"""Training by the protocol that was asked for, on columns that each owner has bucketed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from privet.arrays import FloatArray
from privet.boosting import reference
from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Model
from privet.boosting.objective import check_label
from privet.boosting.params import Params
from privet.errors import DataError, ParameterError

Protocol: TypeAlias = Literal["plain"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)


def train(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = "plain",
    on_table: reference.OnTable | None = None,
) -> Model:
    """Check that the parties' columns and the label fit together, then train a model on them."""
    if protocol not in PROTOCOLS:
        raise ParameterError(f"protocol: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    check_label(label, params.task)
    for party in parties:
        if party.n_samples != len(label):
            raise DataError(
                f"{party.owner} has {party.n_samples} samples and the label has {len(label)}: "
                "all participants need the same samples in the same order"
            )
        if party.thresholds.shape[1] != params.candidates:
            raise ParameterError(
                f"buckets: {party.thresholds.shape[1] + 1} at {party.owner}, "
                f"{params.buckets} agreed"
            )
    if not any(party.names for party in parties):
        raise DataError("no participant has a feature: there is nothing to test")
    return reference.train(parties, label, params, on_table)
