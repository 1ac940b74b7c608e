"""Training with any protocol in one simulation, with prediction and explanation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from privet.arrays import FloatArray
from privet.boosting import reference
from privet.boosting.binning import BucketedColumns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.explanation import Explanation, compute_left_fractions
from privet.boosting.model import Feature, Model
from privet.boosting.model_part import ModelPart, join_parts
from privet.boosting.prediction import (
    ExplainedPredictions,
    PredictionQuery,
    answer_query,
    reveal_label_unit,
    reveal_validation_results,
)
from privet.boosting.training import (
    PROTOCOL_TYPES,
    TrainingData,
    TrainingSpec,
    TrainingState,
    resolve_cut_disclosure,
)
from privet.boosting.training import (
    train as train_on_shares,
)
from privet.errors import DataError, ParameterError
from privet.runtime.local.launcher import Outcome, simulate
from privet.runtime.run import check_dealer_count
from privet.runtime.runtime import Runtime
from privet.spec.params import DEFAULT_PROTOCOL, Params
from privet.spec.plan import (
    CutDisclosure,
    ExplainBy,
    Plan,
    disclose_cut_counts,
    normalise_constraints,
    require_some_cut,
)
from privet.spec.sampling import (
    check_and_normalise_weights,
    check_patience,
    check_validation_label,
    count_validation_rows,
)


class SimulationInput(NamedTuple):
    """What one participant brings along."""

    data: TrainingData
    new_columns: FloatArray | None = None
    """Its columns of the samples to predict."""
    state: TrainingState | None = None
    """What it goes on from."""


@dataclass(frozen=True)
class SimulatedTraining:
    """A training, and a prediction of other samples with its model: the program of a simulation."""

    training_spec: TrainingSpec
    plan: Plan
    n_new: int = 0
    explain: ExplainBy | None = None
    """By what the predictions are explained, if they are."""
    done: int = 0
    """How many tables there are, if participants go on from an earlier training."""

    def __call__(
        self,
        runtime: Runtime,
        data: SimulationInput | tuple[TrainingData, FloatArray | None] | None,
    ) -> SimulationResult:
        """Run as one participant, or as the dealer."""
        own, new, state = (None, None, None) if data is None else SimulationInput(*data)

        def on_state(latest: TrainingState) -> None:
            nonlocal state
            state = latest

        trained = train_on_shares(
            runtime,
            self.training_spec,
            self.plan,
            own,
            n_trained_tables=self.done,
            state=state,
            on_state=on_state,
        )
        part, losses = trained.part, list(trained.losses)
        validation, _ = reveal_validation_results(
            runtime, self.training_spec, self.plan, trained, own
        )
        if not self.n_new:
            return SimulationResult(
                part, losses=losses, validation_predictions=validation, state=state
            )
        query = PredictionQuery.for_label_holder(
            self.training_spec, trained.n_tables, self.n_new, self.explain
        )
        unit = reveal_label_unit(runtime, query, part)
        found = answer_query(runtime, query, self.training_spec.parties, part, new, unit)
        if isinstance(found, ExplainedPredictions):
            told = (found.predictions, found.explanation)
            return SimulationResult(part, *told, losses, validation, state)
        return SimulationResult(part, found, None, losses, validation, state)


@dataclass(frozen=True)
class SimulationResult:
    """What one participant has at the end of a trial."""

    part: ModelPart | None
    predictions: FloatArray | None = None
    """At the active participant."""
    explanation: Explanation | None = None
    """Of the scores behind them, there."""
    losses: list[float] = field(default_factory=list)
    """On validation rows, after each table that was trained: at the active participant."""
    validation_predictions: FloatArray | None = None
    """The predictions of validation rows, if they are revealed: at the active participant."""
    state: TrainingState | None = None
    """After the last table that was trained: what more tables go on from."""


PLAINTEXT = "plain"
"""Training in the clear, which is no suite's."""


def list_protocols() -> tuple[str, ...]:
    """Return the names of all ways to train."""
    return (*PROTOCOL_TYPES, PLAINTEXT)


def train_locally(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = PLAINTEXT,
    on_table: reference.TableCallback | None = None,
    cut_disclosure: CutDisclosure | None = None,
    sample_weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
) -> Model:
    """Train a model; see `train_locally_with_losses`."""
    return train_locally_with_losses(
        parties,
        label,
        params,
        protocol,
        on_table,
        cut_disclosure,
        sample_weight=sample_weight,
        monotone=monotone,
    ).model


def train_locally_with_losses(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str = PLAINTEXT,
    on_table: reference.TableCallback | None = None,
    cut_disclosure: CutDisclosure | None = None,
    n_validation: int | None = None,
    sample_weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
    resume_from: Model | None = None,
) -> reference.ModelWithLosses:
    """Check that the parties' columns and the label fit together, then train a model on them.

    The last `n_validation` rows are set aside; if it is None, as many as the parameters say. With
    the model come the losses on them, after each table. `sample_weight` says how much each of the
    others counts, relative to the rest, and `monotone` which way scores may move as each feature of
    all parties grows. `resume_from` is a model to go on from, in the clear; on shares a model is
    not enough, and `train_federated` goes on from the parties' states.

    `cut_disclosure` says what all learn of the numbers of cuts, if it is not the protocol's own
    choice; in the clear, the same candidates take part.

    The last party holds the label. With a secure protocol the parties are threads of this process,
    and the parts that they end with are joined: whoever owns the process sees everything anyway.
    """
    if protocol != PLAINTEXT:
        if resume_from is not None:
            raise ParameterError(f"after: {protocol} goes on from the parties' states, not a model")
        found = train_federated(
            parties,
            label,
            params,
            protocol,
            cut_disclosure=cut_disclosure,
            sample_weight=sample_weight,
            monotone=monotone,
            on_table=on_table,
            n_validation=n_validation,
        )
        return join_model_with_losses(parties, found)
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    counts = collect_cut_counts(
        parties, params, resolve_cut_disclosure(DEFAULT_PROTOCOL, cut_disclosure)
    )
    own = _normalise_weights(sample_weight, label, n_validation, params)
    n_features = sum(len(party.names) for party in parties)
    signs = normalise_constraints(monotone, n_features, params.objective)
    grown = reference.train_plaintext_with_losses(
        parties, label, params, own, on_table, counts, n_validation, signs, resume_from
    )
    return grown._replace(model=_set_left_fractions(grown.model, parties, n_validation))


def join_model_with_losses(
    parties: Sequence[BucketedColumns], found: FederatedResult
) -> reference.ModelWithLosses:
    """Return what `train_locally_with_losses` does, from a federation trained on these columns."""
    model = _set_left_fractions(join_parts(found.parts), parties, found.n_validation)
    return reference.ModelWithLosses(model, found.losses)


def _set_left_fractions(
    model: Model, parties: Sequence[BucketedColumns], n_validation: int
) -> Model:
    """Return a model that knows which share of the trained rows pass each of its tests."""
    n_trained = parties[0].n_samples - n_validation
    rows = (rows[:n_trained] for party in parties for rows in party.buckets)
    return replace(
        model,
        left_fraction=compute_left_fractions(model.feature, model.bucket, dict(enumerate(rows))),
    )


@dataclass(frozen=True)
class FederatedResult:
    """What comes out of a simulated federation, and what it cost."""

    parts: list[ModelPart]
    predictions: FloatArray | None
    """Of the new columns, as the active participant received them."""
    program_result: Outcome
    losses: list[float]
    """On validation rows, after each table that was trained."""
    validation_predictions: FloatArray | None
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
    cut_disclosure: CutDisclosure | None = None,
    sample_weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
    network: str = "memory",
    dealer_link: str = "own",
    offline: bool = False,
    n_dealers: int = 1,
    new_columns: Sequence[FloatArray] | None = None,
    explain: ExplainBy | None = None,
    on_table: reference.TableCallback | None = None,
    on_estimate: Callable[[CostEstimate], None] | None = None,
    n_validation: int | None = None,
    reveal_validation: bool = False,
    resume_from: Sequence[TrainingState] = (),
) -> FederatedResult:
    """Train with a secure protocol on this machine, and predict new columns, one array a party.

    With `explain`, derive contributions and explain the predictions by feature or by participant.
    `network`, `dealer_link`, `offline` and `n_dealers` are those of
    `runtime.local.launcher.simulate`; `n_validation` and `sample_weight` those of
    `train_locally_with_losses`. `resume_from` are the parties' states at the end of a training of
    the same rows with fewer tables, to go on from.
    """
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    if (
        check_dealer_count(n_dealers) > 1
        and not PROTOCOL_TYPES[protocol].supports_replicated_dealers
    ):
        raise ParameterError(f"dealers: the protocol {protocol} takes one; use masked")
    sample_weight = _normalise_weights(sample_weight, label, n_validation, params)
    names = tuple(party.owner for party in parties)
    federation = TrainingSpec(
        protocol=protocol,
        params=params,
        parties=names,
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=len(parties) - 1,
        prediction_bits=params.objective.prediction_bits,
        is_weighted=sample_weight is not None,
        has_explanations=explain is not None,
        reveal_validation=reveal_validation,
        announced_cut_counts=collect_cut_counts(
            parties, params, resolve_cut_disclosure(protocol, cut_disclosure)
        ),
        monotone=tuple(monotone),
    )
    plan = federation.make_plan(len(label), n_validation=n_validation)
    done = resume_from[0].part.n_tables if resume_from else 0
    if on_estimate is not None:
        on_estimate(estimate_cost(federation, plan, done, n_dealers))
    n_new = 0 if new_columns is None else new_columns[0].shape[1]
    trial = SimulatedTraining(federation, plan, n_new, explain, done)
    passive = [TrainingData(party, None) for party in parties[:-1]]
    data = [*passive, TrainingData(parties[-1], label, sample_weight)]
    new = [None] * len(parties) if new_columns is None else new_columns
    states: Sequence[TrainingState | None] = resume_from or [None] * len(parties)
    inputs = [SimulationInput(*each) for each in zip(data, new, states, strict=True)]
    on_progress: Callable[[int], None] | None = None
    if on_table is not None:
        tell = on_table

        def on_progress(n_trained_tables: int) -> None:
            tell(n_trained_tables, None)

    outcome = simulate(
        trial,
        len(parties),
        inputs,
        network=network,
        dealer_link=dealer_link,
        ahead=offline,
        on_progress=on_progress,
        names=names,
        dealers=n_dealers,
    )
    return FederatedResult(
        parts=[result.part for result in outcome.results],
        predictions=outcome.results[-1].predictions,
        program_result=outcome,
        losses=outcome.results[-1].losses,
        validation_predictions=outcome.results[-1].validation_predictions,
        n_validation=n_validation,
        states=[result.state for result in outcome.results],
        explanation=outcome.results[-1].explanation,
    )


def _normalise_weights(
    sample_weight: FloatArray | None, label: FloatArray, n_validation: int, params: Params
) -> FloatArray | None:
    """Return weights as trainings take them; raise DataError if they cannot be used.

    Of the rows that are trained on; those of others, if they have some, do not matter.
    """
    if sample_weight is None:
        return None
    n_trained = len(label) - n_validation
    if sample_weight.ndim != 1 or len(sample_weight) not in (n_trained, len(label)):
        raise DataError(f"{sample_weight.shape} weights for {len(label)} samples: each needs one")
    return check_and_normalise_weights(
        sample_weight[:n_trained], label[:n_trained], params.objective
    )


def collect_cut_counts(
    parties: Sequence[BucketedColumns], params: Params, cut_disclosure: CutDisclosure
) -> tuple[int, ...] | None:
    """Return what the owners of all features tell of their numbers of cuts."""
    filled = [count for party in parties for count in party.cut_counts]
    told = disclose_cut_counts(filled, cut_disclosure, params.max_cut_count)
    require_some_cut(told)
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
    if protocol not in list_protocols():
        raise ParameterError(f"protocol: {protocol!r} is not one of {', '.join(list_protocols())}")
    params.objective.check_label(label)
    if n_validation is None:
        n_validation = count_validation_rows(len(label), params)
    check_patience(params, n_validation)
    check_validation_label(params, label, n_validation)
    for party in parties:
        if party.n_samples != len(label):
            raise DataError(
                f"{party.owner} has {party.n_samples} samples and the label has {len(label)}: "
                "all participants need the same samples in the same order"
            )
        if party.thresholds.shape[1] != params.max_cut_count:
            raise ParameterError(
                f"buckets: {party.thresholds.shape[1] + 1} at {party.owner}, "
                f"{params.buckets} agreed"
            )
    if not any(party.names for party in parties):
        raise DataError("no participant has a feature: there is nothing to test")
    return n_validation
