"""Training on one machine with any protocol, with predictions and explanations."""

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
    """One participant's input of a simulation."""

    data: TrainingData
    new_columns: FloatArray | None = None
    """The participant's columns of the samples to predict."""
    state: TrainingState | None = None
    """The state to resume from."""


@dataclass(frozen=True)
class SimulatedTraining:
    """The program of a simulation: a training run, and a prediction of new samples."""

    training_spec: TrainingSpec
    plan: Plan
    n_new: int = 0
    explain: ExplainBy | None = None
    """The grouping of contributions, if predictions are explained."""
    done: int = 0
    """The number of tables of an earlier training run to resume from."""

    def __call__(
        self,
        runtime: Runtime,
        data: SimulationInput | tuple[TrainingData, FloatArray | None] | None,
    ) -> SimulationResult:
        """Run as one participant, or as the dealer."""
        local, new, state = (None, None, None) if data is None else SimulationInput(*data)

        def on_state(latest: TrainingState) -> None:
            nonlocal state
            state = latest

        trained = train_on_shares(
            runtime,
            self.training_spec,
            self.plan,
            local,
            n_trained_tables=self.done,
            state=state,
            on_state=on_state,
        )
        part, losses = trained.part, list(trained.losses)
        validation, _ = reveal_validation_results(
            runtime, self.training_spec, self.plan, trained, local
        )
        if not self.n_new:
            return SimulationResult(
                part, losses=losses, validation_predictions=validation, state=state
            )
        query = PredictionQuery.for_label_holder(
            self.training_spec, trained.n_tables, self.n_new, self.explain
        )
        unit = reveal_label_unit(runtime, query, part)
        predicted = answer_query(runtime, query, self.training_spec.parties, part, new, unit)
        if isinstance(predicted, ExplainedPredictions):
            explained = (predicted.predictions, predicted.explanation)
            return SimulationResult(part, *explained, losses, validation, state)
        return SimulationResult(part, predicted, None, losses, validation, state)


@dataclass(frozen=True)
class SimulationResult:
    """One participant's result of a simulation."""

    part: ModelPart | None
    predictions: FloatArray | None = None
    """Predictions of the new columns, at the active participant."""
    explanation: Explanation | None = None
    """Contributions to the scores of these predictions, at the active participant."""
    losses: list[float] = field(default_factory=list)
    """Losses on validation rows after each trained table, at the active participant."""
    validation_predictions: FloatArray | None = None
    """Predictions of validation rows, if revealed, at the active participant."""
    state: TrainingState | None = None
    """The state after the last trained table, to resume from."""


PLAINTEXT = "plain"
"""Training in plaintext, which is not one of the secure protocols."""


def list_protocols() -> tuple[str, ...]:
    """Return the names of all protocols, including plaintext."""
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

    The last `n_validation` rows are validation rows; None: as many as in the parameters. The result
    contains the loss on them after each table. `sample_weight` are the relative weights of the
    training rows, and `monotone` is the constraint of each feature of all parties. `resume_from` is
    a model to resume from, in plaintext; secure protocols resume from the parties' states, with
    `train_federated`.

    `cut_disclosure` sets the disclosure of cut counts, if it is not the protocol's default;
    plaintext training has the same candidates.

    The last party holds the label. With a secure protocol the parties are threads of this process,
    and their model parts are joined: the owner of the process sees all data anyway.
    """
    if protocol != PLAINTEXT:
        if resume_from is not None:
            raise ParameterError(f"after: {protocol} goes on from the parties' states, not a model")
        federated = train_federated(
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
        return join_model_with_losses(parties, federated)
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    counts = collect_cut_counts(
        parties, params, resolve_cut_disclosure(DEFAULT_PROTOCOL, cut_disclosure)
    )
    weights = _normalise_weights(sample_weight, label, n_validation, params)
    n_features = sum(len(party.names) for party in parties)
    signs = normalise_constraints(monotone, n_features, params.objective)
    trained = reference.train_plaintext_with_losses(
        parties, label, params, weights, on_table, counts, n_validation, signs, resume_from
    )
    return trained._replace(model=_set_left_fractions(trained.model, parties, n_validation))


def join_model_with_losses(
    parties: Sequence[BucketedColumns], federated: FederatedResult
) -> reference.ModelWithLosses:
    """Return the joined model and the losses of a simulated federation with these columns."""
    model = _set_left_fractions(join_parts(federated.parts), parties, federated.n_validation)
    return reference.ModelWithLosses(model, federated.losses)


def _set_left_fractions(
    model: Model, parties: Sequence[BucketedColumns], n_validation: int
) -> Model:
    """Return the model with the fraction of training rows going left at each split."""
    n_trained = parties[0].n_samples - n_validation
    rows = (rows[:n_trained] for party in parties for rows in party.buckets)
    return replace(
        model,
        left_fraction=compute_left_fractions(model.feature, model.bucket, dict(enumerate(rows))),
    )


@dataclass(frozen=True)
class FederatedResult:
    """The result of a simulated federation, and its cost."""

    parts: list[ModelPart]
    predictions: FloatArray | None
    """Predictions of the new columns, as received by the active participant."""
    program_result: Outcome
    losses: list[float]
    """Losses on validation rows after each trained table."""
    validation_predictions: FloatArray | None
    """Predictions of validation rows, if revealed."""
    n_validation: int
    """The number of validation rows."""
    states: list[TrainingState]
    """The state of each party after the last trained table, to resume from."""
    explanation: Explanation | None = None
    """Contributions to the scores of the predictions, if requested."""


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
    `runtime.local.launcher.simulate`; `n_validation` and `sample_weight` are those of
    `train_locally_with_losses`. `resume_from` are the parties' states at the end of a training run
    on the same rows with fewer tables.
    """
    n_validation = check_parties(parties, label, params, protocol, n_validation)
    if (
        check_dealer_count(n_dealers) > 1
        and not PROTOCOL_TYPES[protocol].supports_replicated_dealers
    ):
        raise ParameterError(f"dealers: the protocol {protocol} takes one; use masked")
    sample_weight = _normalise_weights(sample_weight, label, n_validation, params)
    names = tuple(party.owner for party in parties)
    training_spec = TrainingSpec(
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
    plan = training_spec.make_plan(len(label), n_validation=n_validation)
    done = resume_from[0].part.n_tables if resume_from else 0
    if on_estimate is not None:
        on_estimate(estimate_cost(training_spec, plan, done, n_dealers))
    n_new = 0 if new_columns is None else new_columns[0].shape[1]
    program = SimulatedTraining(training_spec, plan, n_new, explain, done)
    passive = [TrainingData(party, None) for party in parties[:-1]]
    data = [*passive, TrainingData(parties[-1], label, sample_weight)]
    new = [None] * len(parties) if new_columns is None else new_columns
    states: Sequence[TrainingState | None] = resume_from or [None] * len(parties)
    inputs = [SimulationInput(*values) for values in zip(data, new, states, strict=True)]
    on_progress: Callable[[int], None] | None = None
    if on_table is not None:
        callback = on_table

        def on_progress(n_trained_tables: int) -> None:
            callback(n_trained_tables, None)

    outcome = simulate(
        program,
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
    """Return the weights of training rows, divided by their mean; raise DataError if invalid.

    Weights of validation rows are ignored.
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
    """Return the cut counts that the owners of all features disclose; None if hidden."""
    cut_counts = [count for party in parties for count in party.cut_counts]
    disclosed = disclose_cut_counts(cut_counts, cut_disclosure, params.max_cut_count)
    require_some_cut(disclosed)
    return disclosed


def check_parties(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    protocol: str,
    n_validation: int | None = None,
) -> int:
    """Raise an InputError unless the parties' columns, the label and the parameters fit.

    Return the number of validation rows.
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
