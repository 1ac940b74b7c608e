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
from privet.boosting.reference import Grown
from privet.boosting.simulation import PLAIN, grown_on, train_federated, train_watched
from privet.boosting.training import TrainingState
from privet.errors import ParameterError
from privet.estimators.report import FitReport, ProgressBar
from privet.federation.monitoring.report import reveals
from privet.spec.params import Params
from privet.spec.plan import Cuts

_Estimator = TypeVar("_Estimator")
_Arguments = ParamSpec("_Arguments")
_FITTED = "_fitted"
"""The attribute in which an estimator keeps what a later `fit` goes on from."""


@dataclass(frozen=True, repr=False)
class Given:
    """All that the outcome of a `fit` depends on."""

    tables: int
    terms: Mapping[str, Any]
    """The other parameters, by name, as they were understood."""
    shape: tuple[int, int]
    """How many rows and columns there are."""
    digest: bytes
    """Of the rows, their label and their weights, as trainings take them."""


@dataclass(frozen=True, repr=False)
class Fitted:
    """What a `fit` was given, and what it ended with."""

    given: Given
    model: Model
    states: Sequence[TrainingState]
    """Of each party; none in the clear."""
    losses: Sequence[float]
    """After each table, where they are known."""


def given_to_fit(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    weight: FloatArray | None,
    params: Params,
    **terms: Any,
) -> Given:
    """Return all that the outcome of a `fit` depends on, `terms` among it."""
    digest = hashlib.sha256()
    weights = np.empty(0) if weight is None else weight
    for array in (label, weights, *(a for p in parties for a in (p.buckets, p.thresholds))):
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return Given(
        tables=params.tables,
        terms={**terms, **params.model_dump(exclude={"tables"})},
        shape=(len(label), sum(len(party.names) for party in parties)),
        digest=digest.digest(),
    )


def refuse_watching(params: Params, *, watched: bool) -> None:
    """Raise ParameterError if a loss is watched, which says how many tables there are."""
    if watched or params.validation or params.patience is not None:
        raise ParameterError(
            "warm_start: does not go with validation rows or early stopping: leave out eval_set, "
            "validation, patience and early_stopping_rounds, or set warm_start=False"
        )


def fit_before(estimator: Any, given: Given) -> Fitted | None:
    """Return the `fit` to go on from; None, if there was none.

    Raise ParameterError unless it was given the same, but for fewer tables, or as many.
    """
    if not hasattr(estimator, "model_"):
        return None
    before: Fitted | None = getattr(estimator, _FITTED, None)
    if before is None:
        raise ParameterError(
            "warm_start: a model from a file does not have what it takes to go on: "
            "fit with warm_start=False"
        )
    _refuse_changes(before.given, given)
    if given.tables < before.given.tables:
        raise ParameterError(
            f"tables: {given.tables}, and the model that is there has {before.given.tables}: "
            "ask for as many or more, or fit with warm_start=False"
        )
    return before


def _refuse_changes(before: Given, now: Given) -> None:
    """Raise ParameterError if anything but the number of tables has changed."""
    anew = "fit with warm_start=False to train anew"
    if now.shape != before.shape:
        (rows, columns), (rows_before, columns_before) = now.shape, before.shape
        raise ParameterError(
            f"warm_start: {rows} rows and {columns} columns, and the model that is there was "
            f"trained on {rows_before} rows and {columns_before} columns: {anew}"
        )
    for name, value in now.terms.items():
        if value != before.terms[name]:
            raise ParameterError(
                f"warm_start: {name} is {value!r}, and was {before.terms[name]!r} for the model "
                f"that is there; only tables may change: {anew}"
            )
    if now.digest != before.digest:
        raise ParameterError(
            "warm_start: these are not the rows, labels and weights that the model that is there "
            f"was trained on: {anew}"
        )


def keep_fit(estimator: Any, fitted: Fitted) -> None:
    """Keep what a later `fit` goes on from."""
    setattr(estimator, _FITTED, fitted)


def unchanged_by_failure(
    fit: Callable[Concatenate[_Estimator, _Arguments], None],
) -> Callable[Concatenate[_Estimator, _Arguments], None]:
    """Decorate a `fit` so that, with `warm_start`, one that fails leaves the model usable."""

    @wraps(fit)
    def careful(
        estimator: _Estimator, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> None:
        before = dict(vars(estimator))
        try:
            fit(estimator, *args, **kwargs)
        except BaseException:
            if before["warm_start"]:
                vars(estimator).clear()
                vars(estimator).update(before)
            raise

    return careful


def fit_parties(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str,
    cuts: Cuts | None,
    weight: FloatArray | None,
    n_validation: int,
    monotone: Sequence[int],
    before: Fitted | None = None,
    *,
    dealers: int,
    verbose: bool,
) -> tuple[Grown, Sequence[TrainingState], FitReport]:
    """Train a model on the columns of all parties, or go on from an earlier `fit`.

    Return it, the states that the parties end with (none in the clear), and what it took.
    """
    started = time.perf_counter()
    losses: list[float] = [] if before is None else list(before.losses)
    states: Sequence[TrainingState] = ()
    bar = ProgressBar(params.tables) if verbose else None

    def on_table(done: int, loss: float | None) -> None:
        if loss is not None:
            losses.append(loss)
        if bar is not None:
            bar(done, loss)

    report = FitReport(protocol=protocol, params=params)
    try:
        if protocol == PLAIN:
            grown = train_watched(
                parties,
                label,
                params,
                protocol,
                on_table,
                cuts,
                n_validation,
                weight,
                monotone,
                after=None if before is None else before.model,
            )
        else:
            found = train_federated(
                parties,
                label,
                params,
                protocol,
                cuts=cuts,
                weight=weight,
                n_validation=n_validation,
                monotone=monotone,
                on_table=on_table,
                dealers=dealers,
                after=() if before is None else before.states,
            )
            states = found.states
            grown = grown_on(parties, found)
            online = [meter.total("online") for meter in found.outcome.meters]
            report = report.model_copy(
                update={
                    "rounds": online[0].rounds,
                    "bytes_sent": sum(traffic.sent for traffic in online),
                    "bytes_from_dealer": sum(
                        meter.total("offline").received for meter in found.outcome.meters
                    ),
                    "reveals": reveals(found.outcome.ledgers[0]),
                }
            )
    finally:
        if bar is not None:
            bar.close()
    seconds = time.perf_counter() - started
    if n_validation:
        losses = grown.losses
    return grown, states, report.model_copy(update={"seconds": seconds, "losses": losses})
