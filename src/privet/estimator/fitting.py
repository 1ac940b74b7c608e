"""Training by the protocol that was asked for, shown while it goes on, and what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.federation import TrainingState
from privet.boosting.reference import Grown
from privet.boosting.trainer import PLAIN, grown_on, train_federated, train_watched
from privet.estimator.progress import ProgressBar
from privet.estimator.report import FitReport
from privet.estimator.warm import Fitted
from privet.federation.party_report import reveals
from privet.terms.cuts import Cuts
from privet.terms.params import Params


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
