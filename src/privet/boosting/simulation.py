"""Training with any protocol in one simulation, with prediction and explanation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from privet.arrays import FloatArray
from privet.boosting import reference
from privet.boosting.binning import BucketedColumns
from privet.boosting.cost_estimate import Estimate, estimate
from privet.boosting.explanation import Explanation, pass_shares
from privet.boosting.model import Feature, Model
from privet.boosting.model_part import ModelPart, join
from privet.boosting.prediction import Explained, Query, answer, tell_unit, validate
from privet.boosting.training import (
    SUITES,
    Federation,
    PartyData,
    TrainingState,
    cuts_of,
)
from privet.boosting.training import (
    train as train_on_shares,
)
from privet.errors import DataError, ParameterError
from privet.runtime.local.launcher import Outcome, simulate
from privet.runtime.run import check_dealers
from privet.runtime.runtime import Runtime
from privet.spec.params import DEFAULT_PROTOCOL, Params
from privet.spec.plan import Cuts, ExplainBy, Plan, check_some, settled, told_cuts
from privet.spec.sampling import check_patience, check_split, count_validation, usable_weights


class TrialInput(NamedTuple):
    """What one participant brings along."""

    own: PartyData
    new: FloatArray | None = None
    """Its columns of the samples to predict."""
    state: TrainingState | None = None
    """What it goes on from."""


@dataclass(frozen=True)
class Trial:
    """A training, and a prediction of other samples with its model: the program of a simulation."""

    federation: Federation
    plan: Plan
    n_new: int = 0
    explain: ExplainBy | None = None
    """By what the predictions are explained, if they are."""
    done: int = 0
    """How many tables there are, if participants go on from an earlier training."""

    def __call__(
        self, runtime: Runtime, data: TrialInput | tuple[PartyData, FloatArray | None] | None
    ) -> TrialResult:
        """Run as one participant, or as the dealer."""
        own, new, state = (None, None, None) if data is None else TrialInput(*data)

        def on_state(latest: TrainingState) -> None:
            nonlocal state
            state = latest

        trained = train_on_shares(
            runtime,
            self.federation,
            self.plan,
            own,
            done=self.done,
            state=state,
            on_state=on_state,
        )
        part, losses = trained.part, list(trained.losses)
        validation, _ = validate(runtime, self.federation, self.plan, trained, own)
        if not self.n_new:
            return TrialResult(part, losses=losses, validation=validation, state=state)
        query = Query.to_holder(self.federation, trained.tables, self.n_new, self.explain)
        unit = tell_unit(runtime, query, part)
        found = answer(runtime, query, self.federation.parties, part, new, unit)
        if isinstance(found, Explained):
            told = (found.predictions, found.explanation)
            return TrialResult(part, *told, losses, validation, state)
        return TrialResult(part, found, None, losses, validation, state)


@dataclass(frozen=True)
class TrialResult:
    """What one participant has at the end of a trial."""

    part: ModelPart | None
    predictions: FloatArray | None = None
    """At the active participant."""
    explanation: Explanation | None = None
    """Of the scores behind them, there."""
    losses: list[float] = field(default_factory=list)
    """On validation rows, after each table that was trained: at the active participant."""
    validation: FloatArray | None = None
    """The predictions of validation rows, if they are revealed: at the active participant."""
    state: TrainingState | None = None
    """After the last table that was trained: what more tables go on from."""


PLAIN = "plain"
"""Training in the clear, which is no suite's."""


def protocols() -> tuple[str, ...]:
    """Return the names of all ways to train."""
    return (*SUITES, PLAIN)


def train(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = PLAIN,
    on_table: reference.OnTable | None = None,
    cuts: Cuts | None = None,
    weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
) -> Model:
    """Train a model; see `train_watched`."""
    return train_watched(
        parties, label, params, protocol, on_table, cuts, weight=weight, monotone=monotone
    ).model


def train_watched(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = PLAIN,
    on_table: reference.OnTable | None = None,
    cuts: Cuts | None = None,
    n_validation: int | None = None,
    weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
    after: Model | None = None,
) -> reference.Grown:
    """Check that the parties' columns and the label fit together, then train a model on them.

    The last `n_validation` rows are set aside; if it is None, as many as the parameters say. With
    the model come the losses on them, after each table. `weight` says how much each of the others
    counts, relative to the rest, and `monotone` which way scores may move as each feature of all
    parties grows. `after` is a model to go on from, in the clear; on shares a model is not enough,
    and `train_federated` goes on from the parties' states.

    `cuts` says what all learn of the numbers of cuts, if it is not the protocol's own choice; in
    the clear, the same candidates take part.

    The last party holds the label. With a secure protocol the parties are threads of this process,
    and the parts that they end with are joined: whoever owns the process sees everything anyway.
    """
    if protocol != PLAIN:
        if after is not None:
            raise ParameterError(f"after: {protocol} goes on from the parties' states, not a model")
        found = train_federated(
            parties,
            label,
            params,
            protocol,
            cuts=cuts,
            weight=weight,
            monotone=monotone,
            on_table=on_table,
            n_validation=n_validation,
        )
        return grown_on(parties, found)
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    counts = cut_counts(parties, params, cuts_of(DEFAULT_PROTOCOL, cuts))
    own = _relative(weight, label, n_validation, params)
    n_features = sum(len(party.names) for party in parties)
    signs = settled(monotone, n_features, params.objective)
    grown = reference.grow(
        parties, label, params, own, on_table, counts, n_validation, signs, after
    )
    return grown._replace(model=_with_pass_shares(grown.model, parties, n_validation))


def grown_on(parties: Sequence[BucketedColumns], found: Federated) -> reference.Grown:
    """Return what `train_watched` does, from a federation trained on these columns."""
    model = _with_pass_shares(join(found.parts), parties, found.n_validation)
    return reference.Grown(model, found.losses)


def _with_pass_shares(model: Model, parties: Sequence[BucketedColumns], n_validation: int) -> Model:
    """Return a model that knows which share of the trained rows pass each of its tests."""
    n_trained = parties[0].n_samples - n_validation
    rows = (rows[:n_trained] for party in parties for rows in party.buckets)
    return replace(
        model, pass_share=pass_shares(model.feature, model.bucket, dict(enumerate(rows)))
    )


@dataclass(frozen=True)
class Federated:
    """What comes out of a simulated federation, and what it cost."""

    parts: list[ModelPart]
    predictions: FloatArray | None
    """Of the new columns, as the active participant received them."""
    outcome: Outcome
    losses: list[float]
    """On validation rows, after each table that was trained."""
    validation: FloatArray | None
    """The predictions of validation rows, if they are revealed."""
    n_validation: int
    """How many rows were set aside."""
    states: list[TrainingState]
    """Of each party, after the last table that was trained: what more tables go on from."""
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
    monotone: Sequence[int] = (),
    network: str = "memory",
    dealer_link: str = "own",
    ahead: bool = False,
    dealers: int = 1,
    new_columns: Sequence[FloatArray] | None = None,
    explain: ExplainBy | None = None,
    on_table: reference.OnTable | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
    n_validation: int | None = None,
    reveal_validation: bool = False,
    after: Sequence[TrainingState] = (),
) -> Federated:
    """Train with a secure protocol on this machine, and predict new columns, one array a party.

    With `explain`, derive contributions and explain the predictions by feature or by participant.
    `network`, `dealer_link`, `ahead` and `dealers` are those of `runtime.local.launcher.simulate`;
    `n_validation` and `weight` those of `train_watched`. `after` are the parties' states at the end
    of a training of the same rows with fewer tables, to go on from.
    """
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    if check_dealers(dealers) > 1 and not SUITES[protocol].several_dealers:
        raise ParameterError(f"dealers: the protocol {protocol} takes one; use masked")
    weight = _relative(weight, label, n_validation, params)
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
        reveal_validation=reveal_validation,
        cut_counts=cut_counts(parties, params, cuts_of(protocol, cuts)),
        monotone=tuple(monotone),
    )
    plan = federation.plan(len(label), n_validation=n_validation)
    done = after[0].part.n_tables if after else 0
    if on_estimate is not None:
        on_estimate(estimate(federation, plan, done, dealers))
    n_new = 0 if new_columns is None else new_columns[0].shape[1]
    trial = Trial(federation, plan, n_new, explain, done)
    passive = [PartyData(party, None) for party in parties[:-1]]
    data = [*passive, PartyData(parties[-1], label, weight)]
    new = [None] * len(parties) if new_columns is None else new_columns
    states: Sequence[TrainingState | None] = after or [None] * len(parties)
    inputs = [TrialInput(*each) for each in zip(data, new, states, strict=True)]
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
        dealers=dealers,
    )
    return Federated(
        parts=[result.part for result in outcome.results],
        predictions=outcome.results[-1].predictions,
        outcome=outcome,
        losses=outcome.results[-1].losses,
        validation=outcome.results[-1].validation,
        n_validation=n_validation,
        states=[result.state for result in outcome.results],
        explanation=outcome.results[-1].explanation,
    )


def _relative(
    weight: FloatArray | None, label: FloatArray, n_validation: int, params: Params
) -> FloatArray | None:
    """Return weights as trainings take them; raise DataError if they cannot be used.

    Of the rows that are trained on; those of others, if they have some, do not matter.
    """
    if weight is None:
        return None
    n_trained = len(label) - n_validation
    if weight.ndim != 1 or len(weight) not in (n_trained, len(label)):
        raise DataError(f"{weight.shape} weights for {len(label)} samples: each needs one")
    return usable_weights(weight[:n_trained], label[:n_trained], params.objective)


def cut_counts(
    parties: Sequence[BucketedColumns], params: Params, cuts: Cuts
) -> tuple[int, ...] | None:
    """Return what the owners of all features tell of their numbers of cuts."""
    filled = [count for party in parties for count in party.filled_cuts]
    told = told_cuts(filled, cuts, params.candidates)
    check_some(told)
    return told


def check_parties(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str,
    n_validation: int | None = None,
) -> int:
    """Raise an InputError unless the parties' columns, the label and the parameters fit.

    Return how many rows are set aside.
    """
    if protocol not in protocols():
        raise ParameterError(f"protocol: {protocol!r} is not one of {', '.join(protocols())}")
    params.objective.check_label(label)
    if n_validation is None:
        n_validation = count_validation(len(label), params)
    check_patience(params, n_validation)
    check_split(params, label, n_validation)
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
    return n_validation
