"""Training by the protocol that was asked for, on columns that each owner has bucketed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from privet.arrays import FloatArray
from privet.boosting import reference
from privet.boosting.binning import BucketedColumns
from privet.boosting.estimate import Estimate, estimate
from privet.boosting.federation import SUITES, Federation, PartyData, cuts_of
from privet.boosting.federation import train as train_on_shares
from privet.boosting.inference import ExplainBy, Query, predict, predict_explained, tell_unit
from privet.boosting.model import Feature, Model
from privet.boosting.part import ModelPart, join
from privet.boosting.reasons import Explanation, pass_shares
from privet.errors import DataError, ParameterError
from privet.runtime.launcher import Outcome, simulate
from privet.runtime.runtime import Runtime
from privet.terms.cuts import Cuts, check_some, told_cuts
from privet.terms.params import Params
from privet.terms.plan import Plan
from privet.terms.weights import usable_weights

PLAIN = "plain"
"""Training in the clear, which is no suite's."""
DEFAULT_PROTOCOL = "masked"


def protocols() -> tuple[str, ...]:
    """Return the names of all ways to train."""
    return (*SUITES, PLAIN)


@dataclass(frozen=True)
class Trial:
    """A training, and a prediction of other samples with its model: the program of a simulation."""

    federation: Federation
    plan: Plan
    n_new: int = 0
    explain: ExplainBy | None = None
    """By what the predictions are explained, if they are."""

    def __call__(
        self, runtime: Runtime, data: tuple[PartyData, FloatArray | None] | None
    ) -> TrialResult:
        """Run as one participant, or as the dealer."""
        own, new = (None, None) if data is None else data
        part = train_on_shares(runtime, self.federation, self.plan, own)
        if not self.n_new:
            return TrialResult(part)
        federation, plan = self.federation, self.plan
        query = Query(
            protocol=federation.protocol,
            objective=plan.objective,
            shape=(plan.params.tables, plan.params.depth, self.n_new),
            active=federation.active,
            recipient=federation.active,
            prediction_bits=federation.prediction_bits,
            explain=self.explain,
            n_features=plan.n_features,
        )
        unit = tell_unit(runtime, query, part)
        if self.explain is None:
            return TrialResult(part, predict(runtime, query, federation.parties, part, new, unit))
        found = predict_explained(runtime, query, federation.parties, part, new, unit)
        if found is None:
            return TrialResult(part)
        return TrialResult(part, found.predictions, found.explanation)


@dataclass(frozen=True)
class TrialResult:
    """What one participant has at the end of a trial."""

    part: ModelPart | None
    predictions: FloatArray | None = None
    """At the active participant."""
    explanation: Explanation | None = None
    """Of the scores behind them, there."""


def train(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = PLAIN,
    on_table: reference.OnTable | None = None,
    cuts: Cuts | None = None,
    weight: FloatArray | None = None,
) -> Model:
    """Check that the parties' columns and the label fit together, then train a model on them.

    `weight` says how much each sample counts, relative to the others.

    `cuts` says what all learn of the numbers of cuts, if it is not the protocol's own choice; in
    the clear, the same candidates take part.

    The last party holds the label. With a secure protocol the parties are threads of this process,
    and the parts that they end with are joined: whoever owns the process sees everything anyway.
    """
    if protocol == PLAIN:
        check_parties(parties, label, params, protocol)
        counts = cut_counts(parties, params, cuts_of(DEFAULT_PROTOCOL, cuts))
        own = _relative(weight, label, params)
        model = reference.train(parties, label, params, own, on_table, counts)
    else:
        found = train_federated(
            parties, label, params, protocol, cuts=cuts, weight=weight, on_table=on_table
        )
        model = join(found.parts)
    return with_pass_shares(model, parties)


def with_pass_shares(model: Model, parties: Sequence[BucketedColumns]) -> Model:
    """Return a model that knows which share of the parties' rows pass each of its tests."""
    buckets = dict(enumerate(rows for party in parties for rows in party.buckets))
    return replace(model, pass_share=pass_shares(model.feature, model.bucket, buckets))


@dataclass(frozen=True)
class Federated:
    """What comes out of a simulated federation, and what it cost."""

    parts: list[ModelPart]
    predictions: FloatArray | None
    """Of the new columns, as the active participant received them."""
    outcome: Outcome
    explanation: Explanation | None = None
    """Of the scores behind the predictions, if they were to be explained."""


def train_federated(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str,
    *,
    cuts: Cuts | None = None,
    weight: FloatArray | None = None,
    network: str = "memory",
    dealer_link: str = "own",
    ahead: bool = False,
    new_columns: Sequence[FloatArray] | None = None,
    explain: ExplainBy | None = None,
    on_table: reference.OnTable | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> Federated:
    """Train with a secure protocol on this machine, and predict new columns, one array a party.

    With `explain`, derive contributions and explain the predictions by feature or by participant.
    `network`, `dealer_link` and `ahead` are those of `runtime.launcher.simulate`.
    """
    check_parties(parties, label, params, protocol)
    weight = _relative(weight, label, params)
    names = tuple(party.owner for party in parties)
    federation = Federation(
        protocol=protocol,
        params=params,
        parties=names,
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=len(parties) - 1,
        prediction_bits=params.objective.prediction_bits,
        weighted=weight is not None,
        explains=explain is not None,
        cut_counts=cut_counts(parties, params, cuts_of(protocol, cuts)),
    )
    plan = federation.plan(len(label))
    if on_estimate is not None:
        on_estimate(estimate(federation, plan))
    n_new = 0 if new_columns is None else new_columns[0].shape[1]
    trial = Trial(federation, plan, n_new, explain)
    passive = [PartyData(party, None) for party in parties[:-1]]
    data = [*passive, PartyData(parties[-1], label, weight)]
    new = [None] * len(parties) if new_columns is None else new_columns
    inputs = list(zip(data, new, strict=True))
    on_progress: Callable[[int], None] | None = None
    if on_table is not None:
        tell = on_table

        def on_progress(done: int) -> None:
            tell(done, None)

    outcome = simulate(
        trial,
        len(parties),
        inputs,
        network=network,
        dealer_link=dealer_link,
        ahead=ahead,
        on_progress=on_progress,
        names=names,
    )
    return Federated(
        parts=[result.part for result in outcome.results],
        predictions=outcome.results[-1].predictions,
        outcome=outcome,
        explanation=outcome.results[-1].explanation,
    )


def _relative(weight: FloatArray | None, label: FloatArray, params: Params) -> FloatArray | None:
    """Return weights as trainings take them; raise DataError if they cannot be used."""
    if weight is None:
        return None
    if weight.shape != label.shape:
        raise DataError(f"{weight.shape} weights for {len(label)} samples: each needs one")
    return usable_weights(weight, label, params.objective)


def cut_counts(
    parties: Sequence[BucketedColumns], params: Params, cuts: Cuts
) -> tuple[int, ...] | None:
    """Return what the owners of all features tell of their numbers of cuts."""
    filled = [count for party in parties for count in party.filled_cuts]
    told = told_cuts(filled, cuts, params.candidates)
    check_some(told)
    return told


def check_parties(
    parties: Sequence[BucketedColumns], label: FloatArray, params: Params, protocol: str
) -> None:
    """Raise an InputError unless the parties' columns, the label and the parameters fit."""
    if protocol not in protocols():
        raise ParameterError(f"protocol: {protocol!r} is not one of {', '.join(protocols())}")
    params.objective.check_label(label)
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
