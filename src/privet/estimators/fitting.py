"""`fit` with any protocol, and warm starts from an earlier `fit`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Model
from privet.boosting.reference import ModelWithLosses
from privet.boosting.simulation import (
    PLAINTEXT,
    join_model_with_losses,
    train_federated,
    train_locally_with_losses,
)
from privet.boosting.training import TrainingState
from privet.errors import ParameterError
from privet.estimators.report import FitReport, ProgressBar
from privet.federation.monitoring.report import summarise_disclosures
from privet.spec.params import Params
from privet.spec.plan import CutDisclosure

_Estimator = TypeVar("_Estimator")
_Arguments = ParamSpec("_Arguments")
_FIT_STATE_ATTRIBUTE = "_fitted"
"""The attribute of an estimator for the state from which a later `fit` resumes."""


@dataclass(frozen=True, repr=False)
class FitInputs:
    """All inputs that determine the result of a `fit`."""

    tables: int
    settings: Mapping[str, Any]
    """The other parameters, by name, after parsing."""
    shape: tuple[int, int]
    """The number of rows and columns."""
    data_digest: bytes
    """The digest of the bucketed rows, their label and their weights."""


@dataclass(frozen=True, repr=False)
class FitState:
    """The inputs and the results of a `fit`."""

    inputs: FitInputs
    model: Model
    states: Sequence[TrainingState]
    """The state of each party; empty for plaintext training."""
    losses: Sequence[float]
    """The training loss after each table, if known."""


def make_fit_inputs(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    weight: FloatArray | None,
    params: Params,
    **settings: Any,
) -> FitInputs:
    """Return all inputs that determine the result of a `fit`, including `settings`."""
    digest = hashlib.sha256()
    weights = np.empty(0) if weight is None else weight
    for array in (label, weights, *(a for p in parties for a in (p.buckets, p.thresholds))):
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return FitInputs(
        tables=params.tables,
        settings={**settings, **params.model_dump(exclude={"tables"})},
        shape=(len(label), sum(len(party.names) for party in parties)),
        data_digest=digest.digest(),
    )


def check_no_validation(params: Params, *, has_eval_set: bool) -> None:
    """Raise ParameterError if there are validation rows, which determine the number of tables."""
    if has_eval_set or params.validation or params.patience is not None:
        raise ParameterError(
            "warm_start: does not go with validation rows or early stopping: leave out eval_set, "
            "validation, patience and early_stopping_rounds, or set warm_start=False"
        )


def find_previous_fit(estimator: Any, inputs: FitInputs) -> FitState | None:
    """Return the `fit` to resume from; None if there is none.

    Raise ParameterError if any of its inputs differs, or if it has more tables.
    """
    if not hasattr(estimator, "model_"):
        return None
    previous: FitState | None = getattr(estimator, _FIT_STATE_ATTRIBUTE, None)
    if previous is None:
        raise ParameterError(
            "warm_start: a model from a file does not have what it takes to go on: "
            "fit with warm_start=False"
        )
    _check_unchanged(previous.inputs, inputs)
    if inputs.tables < previous.inputs.tables:
        raise ParameterError(
            f"tables: {inputs.tables}, and the model that is there has {previous.inputs.tables}: "
            "ask for as many or more, or fit with warm_start=False"
        )
    return previous


def _check_unchanged(previous: FitInputs, current: FitInputs) -> None:
    """Raise ParameterError if any input except the number of tables has changed."""
    advice = "fit with warm_start=False to train anew"
    if current.shape != previous.shape:
        (rows, columns), (rows_before, columns_before) = current.shape, previous.shape
        raise ParameterError(
            f"warm_start: {rows} rows and {columns} columns, and the model that is there was "
            f"trained on {rows_before} rows and {columns_before} columns: {advice}"
        )
    for name, value in current.settings.items():
        if value != previous.settings[name]:
            raise ParameterError(
                f"warm_start: {name} is {value!r}, and was {previous.settings[name]!r} for the "
                f"model that is there; only tables may change: {advice}"
            )
    if current.data_digest != previous.data_digest:
        raise ParameterError(
            "warm_start: these are not the rows, labels and weights that the model that is there "
            f"was trained on: {advice}"
        )


def store_fit_state(estimator: Any, state: FitState) -> None:
    """Store the state from which a later `fit` resumes."""
    setattr(estimator, _FIT_STATE_ATTRIBUTE, state)


def restore_on_failure(
    fit: Callable[Concatenate[_Estimator, _Arguments], None],
) -> Callable[Concatenate[_Estimator, _Arguments], None]:
    """Decorate a `fit` so that, with `warm_start`, its failure leaves the model unchanged."""

    @wraps(fit)
    def fit_or_restore(
        estimator: _Estimator, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> None:
        attributes = dict(vars(estimator))
        try:
            fit(estimator, *args, **kwargs)
        except BaseException:
            if attributes["warm_start"]:
                vars(estimator).clear()
                vars(estimator).update(attributes)
            raise

    return fit_or_restore


def fit_parties(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str,
    reveal_cut_counts: CutDisclosure | None,
    weight: FloatArray | None,
    n_validation: int,
    constraints: Sequence[int],
    previous: FitState | None = None,
    *,
    n_dealers: int,
    verbose: bool,
) -> tuple[ModelWithLosses, Sequence[TrainingState], FitReport]:
    """Train a model on the columns of all parties, or resume from an earlier `fit`.

    Return the model with its losses, the parties' final states (empty for plaintext training), and
    the report.
    """
    started = time.perf_counter()
    losses: list[float] = [] if previous is None else list(previous.losses)
    states: Sequence[TrainingState] = ()
    bar = ProgressBar(params.tables) if verbose else None

    def on_table(done: int, loss: float | None) -> None:
        if loss is not None:
            losses.append(loss)
        if bar is not None:
            bar(done, loss)

    report = FitReport(protocol=protocol, params=params)
    try:
        if protocol == PLAINTEXT:
            trained = train_locally_with_losses(
                parties,
                label,
                params,
                protocol,
                on_table,
                reveal_cut_counts,
                n_validation,
                weight,
                constraints,
                resume_from=None if previous is None else previous.model,
            )
        else:
            federated = train_federated(
                parties,
                label,
                params,
                protocol,
                cut_disclosure=reveal_cut_counts,
                sample_weight=weight,
                n_validation=n_validation,
                monotone=constraints,
                on_table=on_table,
                n_dealers=n_dealers,
                resume_from=() if previous is None else previous.states,
            )
            states = federated.states
            trained = join_model_with_losses(parties, federated)
            online = [meter.sum_traffic("online") for meter in federated.program_result.meters]
            report = report.model_copy(
                update={
                    "rounds": online[0].rounds,
                    "bytes_sent": sum(traffic.sent for traffic in online),
                    "bytes_from_dealer": sum(
                        meter.sum_traffic("offline").received
                        for meter in federated.program_result.meters
                    ),
                    "reveals": summarise_disclosures(federated.program_result.ledgers[0]),
                }
            )
    finally:
        if bar is not None:
            bar.close()
    seconds = time.perf_counter() - started
    if n_validation:
        losses = trained.losses
    return trained, states, report.model_copy(update={"seconds": seconds, "losses": losses})
