"""An experiment on this machine: one table, split over parties, trained, tested and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.boosting.cost_estimate import DEALER_PLACEMENTS, CostEstimate, estimate_time
from privet.boosting.model import Model
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import ValidationResult, make_representative_values
from privet.boosting.preparation import (
    PreparedData,
    apply_class_weights,
    check_constrained_columns,
    prepare_data,
)
from privet.boosting.reference import TableCallback
from privet.boosting.simulation import PLAINTEXT, train_federated, train_locally_with_losses
from privet.boosting.training import PROTOCOL_TYPES, resolve_cut_disclosure
from privet.config.table import TableSpec
from privet.data.datasets import DATASETS, DataSet, load_dataset
from privet.data.encoding import Encoder, encode_frame, infer_task, prepare_label
from privet.data.frame import Frame, format_names
from privet.data.partition import (
    DEFAULT_N_PARTIES,
    DEFAULT_TEST_SIZE,
    ColumnOwnership,
    PartyFrame,
    assign_columns,
    check_same_rows,
    split_by_ownership,
    split_rows,
    spread_columns_evenly,
)
from privet.data.reader import read_column_names, read_table
from privet.data.sources.base import is_url, locate_errors
from privet.errors import DataError, ParameterError
from privet.experiments.report import (
    EstimatedSeconds,
    ExperimentBytes,
    ExperimentRounds,
    ExperimentSeconds,
    Report,
)
from privet.federation.monitoring.report import (
    Reveal,
    ValidationReport,
    make_validation_report,
    summarise_disclosures,
)
from privet.objectives.base import Objective
from privet.runtime.accounting import Meter
from privet.runtime.local.launcher import Outcome
from privet.runtime.local.network import Network
from privet.runtime.run import measure_peak_rss_mb
from privet.schema import Config
from privet.spec.params import DEFAULT_PROTOCOL, Params, Task
from privet.spec.plan import CutDisclosure, NamedConstraints
from privet.spec.sampling import count_validation_rows
from privet.version import __version__

# The steps of `boosting.training.train`.
_SETUP, _TABLE, _LEVEL = "setup", "table", "table/level"


def measure_seconds(outcome: Outcome, wall: float) -> ExperimentSeconds:
    """Return the times of a training run, from the slowest participant."""
    return ExperimentSeconds(
        train=wall - outcome.ahead_seconds,
        ahead=outcome.ahead_seconds,
        setup=max(meter.seconds[_SETUP] for meter in outcome.meters),
        online=max(meter.seconds[_TABLE] for meter in outcome.meters),
        offline=outcome.dealer_seconds,
    )


def estimate_seconds(
    estimate: CostEstimate, network: Network, n_parties: int
) -> EstimatedSeconds | None:
    """Return the estimated times of a training run; None without an emulated, shared link."""
    if network.delay_ms is None or not network.shared:
        return None
    rate = network.mbit * 1e6 / 8
    processes_per_core = (n_parties + 1) / (os.cpu_count() or 1)
    return EstimatedSeconds(
        **{
            dealer: estimate_time(
                estimate, network.delay_ms / 1000, rate, processes_per_core, dealer
            ).total
            for dealer in DEALER_PLACEMENTS
        }
    )


def measure_traffic(outcome: Outcome) -> ExperimentBytes:
    """Return the traffic of a training run."""
    meters, steps = outcome.meters, (_SETUP, _TABLE)
    online = [meter.sum_traffic("online", _TABLE).sent for meter in meters]
    return ExperimentBytes(
        online_total=sum(online),
        online_max_party=max(online),
        offline_total=sum(
            meter.sum_traffic("offline", step).received for meter in meters for step in steps
        ),
        setup_total=sum(meter.sum_traffic("online", _SETUP).sent for meter in meters),
        between_dealers=sum(
            meter.sum_traffic("online", step).sent
            for meter in outcome.dealer_meters
            for step in steps
        ),
    )


def measure_rounds(meter: Meter, levels: int) -> ExperimentRounds:
    """Return the rounds of a training run, which are the same for all participants."""
    steps = [meter.sum_traffic("online", step).rounds for step in (_SETUP, _TABLE)]
    return ExperimentRounds(
        total=sum(steps), per_level=meter.sum_traffic("online", _LEVEL).rounds / levels
    )


class Scenario(Config):
    """A dataset, the participants' columns, and the hyper-parameters."""

    data: str = ""
    """The name of a data set, or a file; nothing, if `table` has a query."""
    n_parties: Annotated[int, Field(ge=2)] | None = None
    """Over how many parties the columns are spread evenly; None: 4, unless there are `columns`."""
    columns: dict[str, list[str]] | None = None
    """The columns of each participant, by name or pattern: see `data.partition.assign_columns`."""
    active: str | None = None
    """Who has the label; None: the last participant."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Hyper-parameters by name; the task comes with the data."""
    monotone: NamedConstraints = Field(default_factory=dict)
    """Columns as which grow scores never fall (1) or never rise (-1)."""
    label: str | None = None
    """The label's column, of a file; None: the one called so."""
    id: str | list[str] | None = None
    """The id's column, of a file; None: the one called so, if there is one."""
    table: dict[str, Any] = Field(default_factory=dict)
    """What else there is to say of a file: the keys of `config.table.TableSpec`."""
    task: Task | None = None
    """What is learned from a file; None: what its label looks like."""
    test_size: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_TEST_SIZE
    """The share of the rows that are set aside to be predicted."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Chooses the test rows."""
    stratify: bool | None = None
    """Whether training and test rows have the same share of each class. None: they have, where a
    file is to be classified; the paper's data sets are split as they were for published figures."""

    @model_validator(mode="after")
    def _check_single_partition(self) -> Self:
        if self.n_parties is not None and self.columns is not None:
            raise ValueError("n_parties: columns says who takes part; leave one of them out")
        return self

    def load_dataset(self) -> DataSet:
        """Load a named data set, or read a table and determine its task and classes."""
        if self.data in DATASETS:
            options = [key for key in ("label", "id", "task") if getattr(self, key) is not None]
            for option in (*options, *self.table):
                raise DataError(
                    f"the data set {self.data} has its own {option}; leave --{option} out"
                )
            return load_dataset(self.data)
        table_spec = self._make_table_spec()
        frame = read_table(table_spec)
        with locate_errors(table_spec.display_name):
            task = self.task or infer_task(frame)
            prepared, classes = prepare_label(frame, task, table_spec.positive)
            if table_spec.class_weight is not None:
                prepared = apply_class_weights(prepared, classes, table_spec.class_weight)
        return DataSet(Path(table_spec.display_name).name, task, prepared, tuple(classes))

    def _make_table_spec(self) -> TableSpec:
        if bool(self.data) == ("query" in self.table):
            raise ParameterError("data, query: give one of them: a data set, a table, or a query")
        options = {"label": self.label or "label", "id": self.id, **self.table}
        table_spec = TableSpec(path=self.data or None, **options)
        if self.data and not is_url(self.data) and not Path(self.data).exists():
            known = ", ".join(DATASETS)
            raise DataError(f"{self.data!r} is neither a file nor a data set; these are {known}")
        names = read_column_names(table_spec)
        if options["label"] not in names and self.label is None:
            raise DataError(
                f"{table_spec.display_name}: there is no column 'label'; name the label's column "
                "with --label"
            )
        if self.id is None and "id" in names and not table_spec.is_dropped("id"):
            return table_spec.model_copy(update={"id": "id"})
        return table_spec

    def assign_columns(self, frame: Frame) -> ColumnOwnership:
        """Return the columns of each participant; the last one has the label."""
        if self.columns is not None:
            return assign_columns(frame.names, self.columns, self.active)
        return spread_columns_evenly(frame.names, self.n_parties or DEFAULT_N_PARTIES, self.active)

    def is_stratified(self, objective: Objective) -> bool:
        """Return whether test rows are chosen class by class."""
        if self.stratify and not objective.is_classification:
            raise ParameterError(f"stratify: a {objective.name} has no classes; leave it out")
        by_default = objective.is_classification and self.data not in DATASETS
        return by_default if self.stratify is None else self.stratify


class Experiment(Scenario):
    """The settings of an experiment; the command line has the same defaults."""

    protocol: str = DEFAULT_PROTOCOL
    """`"masked"`, `"paper"`, or `"plain"`: in the clear."""
    network: str = "loopback"
    """How parties are connected: see `privet.simulate`. Processes take a federation's time; threads
    (`memory`) are for scripts without a guard on `__main__`, and for suites of one's own."""
    cuts: CutDisclosure | None = None
    """What the parties tell each other of their numbers of cuts; None: the protocol's default."""
    reveal_validation: bool = False
    """Whether the label's holder receives the predictions of validation rows, if there are any."""
    dealer_link: str = "own"
    """Where a dealer that is there sends, if the network is an emulated one: see there, too."""
    ahead: bool = False
    """Whether correlations are dealt into files before the participants start."""
    dealers: int = 1
    """One, or three, of whom none knows a mask."""


def run(
    experiment: Experiment,
    on_table: TableCallback | None = None,
    on_estimate: Callable[[CostEstimate], None] | None = None,
) -> tuple[Model, Report]:
    """Run an experiment and return its model and report."""
    started = time.perf_counter()
    network = Network.parse(experiment.network, experiment.dealer_link)
    data, params = load_scenario(experiment)
    stratified = experiment.is_stratified(params.objective)
    ownership = experiment.assign_columns(data.frame)
    train_rows, test_rows = split_train_test(data, experiment, experiment.seed, stratified)
    parties = split_by_ownership(train_rows, ownership)
    test_parties = split_by_ownership(test_rows, ownership)
    protocol = experiment.protocol
    cuts = resolve_cut_disclosure(
        protocol if protocol in PROTOCOL_TYPES else DEFAULT_PROTOCOL, experiment.cuts
    )
    trained = train_and_predict(
        parties,
        test_parties,
        params,
        protocol,
        experiment.network,
        experiment.dealer_link,
        experiment.ahead,
        on_table,
        on_estimate,
        n_dealers=experiment.dealers,
        reveal_cut_counts=cuts,
        reveal_validation=experiment.reveal_validation,
        monotone=experiment.monotone,
    )
    model, plain = replace(trained.model, classes=data.classes), trained
    if protocol != PLAINTEXT:
        plain = train_and_predict(
            parties,
            test_parties,
            params,
            PLAINTEXT,
            experiment.network,
            reveal_cut_counts=cuts,
            reveal_validation=experiment.reveal_validation,
            monotone=experiment.monotone,
        )
    report = Report(
        version=__version__,
        data=data.name,
        protocol=protocol,
        cuts=cuts,
        n_parties=len(parties),
        n_samples=train_rows.n_samples - count_validation_rows(train_rows.n_samples, params),
        n_test_samples=test_rows.n_samples,
        n_features=len(model.features),
        seed=experiment.seed,
        stratified=stratified,
        classes=list(data.classes),
        warnings=list(data.frame.warnings),
        params=params,
        metrics=compute_metrics(params.objective, trained.predictions, test_rows),
        plain_metrics=compute_metrics(params.objective, plain.predictions, test_rows),
        validation=trained.validation,
        plain_validation=plain.validation,
        same_tests=model.compare_splits(
            plain.model, np.concatenate(encode_parties(parties, trained.encoders))
        ),
        network=experiment.network,
        dealer=_get_dealer_mode(experiment, network),
        seconds=trained.seconds.model_copy(update={"total": time.perf_counter() - started}),
        estimated_seconds=None
        if trained.estimate is None
        else estimate_seconds(trained.estimate, network, len(parties)),
        bytes=trained.bytes,
        rounds=trained.rounds,
        reveals=trained.disclosures,
        peak_rss_mb=trained.peak_rss_mb,
        feature_names=[feature.name for feature in model.features],
        feature_owners=[feature.owner for feature in model.features],
        tests=np.stack((model.feature, model.bucket), axis=2).tolist(),
    )
    return model, report


def _get_dealer_mode(experiment: Experiment, network: Network) -> str:
    if experiment.ahead:
        return "ahead"
    return "none" if network.delay_ms is None else experiment.dealer_link


def load_scenario(scenario: Scenario) -> tuple[DataSet, Params]:
    """Return the data set, with a prepared label, and the hyper-parameters."""
    data = scenario.load_dataset()
    classes = {"classes": len(data.classes)} if data.classes else {}
    return data, Params.parse({"task": data.task, **classes, **scenario.params})


def split_train_test(
    data: DataSet, scenario: Scenario, seed: int, stratified: bool
) -> tuple[Frame, Frame]:
    """Return training rows, which contain every class, and test rows."""
    with locate_errors(data.name):
        return split_rows(
            data.frame, scenario.test_size, seed, stratify=stratified, classes=data.classes
        )


@dataclass(frozen=True)
class TrainedModel:
    """A model, its predictions of the test rows, and the cost of training."""

    model: Model
    predictions: FloatArray
    seconds: ExperimentSeconds
    estimate: CostEstimate | None = None
    """The estimated cost, with a secure protocol."""
    validation: ValidationReport | None = None
    """The report on validation rows, if there are any."""
    bytes: ExperimentBytes = field(default_factory=ExperimentBytes)
    rounds: ExperimentRounds = field(default_factory=ExperimentRounds)
    disclosures: list[Reveal] = field(default_factory=list)
    peak_rss_mb: float = field(default_factory=measure_peak_rss_mb)
    encoders: Sequence[Sequence[Encoder]] = ()
    """The encoders of each party."""


def train_and_predict(
    parties: Sequence[PartyFrame],
    test_parties: Sequence[PartyFrame],
    params: Params,
    protocol: str,
    network: str = "memory",
    dealer_link: str = "own",
    preprocess: bool = False,
    on_table: TableCallback | None = None,
    on_estimate: Callable[[CostEstimate], None] | None = None,
    *,
    reveal_cut_counts: CutDisclosure | None = None,
    reveal_validation: bool = False,
    monotone: Mapping[str, int] | None = None,
    n_dealers: int = 1,
) -> TrainedModel:
    """Bucket the columns of every party, train on them, and predict test rows.

    `monotone` contains constraints by column name, for the columns of all parties. The last party
    holds the label, and receives the predictions.
    """
    started = time.perf_counter()
    check_same_rows(parties)
    prepared = [prepare_data(party.name, party.frame.to_lazy(), params) for party in parties]
    label = prepared[-1].label
    if label is None:
        raise DataError(f"{parties[-1].name} is the active participant and has no label")
    weight = prepared[-1].sample_weight
    bucketed = [data.columns for data in prepared]
    encoders_by_party = [data.encoders for data in prepared]
    new_columns = encode_parties(test_parties, encoders_by_party)
    signs = _make_constraints(prepared, monotone or {})
    encoders = tuple(encoder for data in prepared for encoder in data.encoders)
    n_validation = count_validation_rows(len(label), params)
    validation_label = label[len(label) - n_validation :]

    def make_report(
        losses: Sequence[float], predicted: FloatArray | None
    ) -> ValidationReport | None:
        if not losses:
            return None
        return make_validation_report(
            params.objective, losses, validation_label, ValidationResult(predicted)
        )

    if protocol == PLAINTEXT:
        model, losses = train_locally_with_losses(
            bucketed,
            label,
            params,
            protocol,
            on_table,
            reveal_cut_counts,
            sample_weight=weight,
            monotone=signs,
        )
        predictions = model.predict(np.concatenate(new_columns))
        predicted = None
        if reveal_validation and n_validation:
            columns = [make_representative_values(party, n_validation) for party in bucketed]
            predicted = model.predict(np.concatenate(columns))
        return TrainedModel(
            replace(model, encoders=encoders),
            predictions,
            ExperimentSeconds(train=time.perf_counter() - started),
            validation=make_report(losses, predicted),
            encoders=encoders_by_party,
        )
    estimates: list[CostEstimate] = []

    def record_estimate(estimate: CostEstimate) -> None:
        estimates.append(estimate)
        if on_estimate is not None:
            on_estimate(estimate)

    federated = train_federated(
        bucketed,
        label,
        params,
        protocol,
        cut_disclosure=reveal_cut_counts,
        sample_weight=weight,
        monotone=signs,
        network=network,
        dealer_link=dealer_link,
        offline=preprocess,
        n_dealers=n_dealers,
        new_columns=new_columns,
        on_table=on_table,
        on_estimate=record_estimate,
        reveal_validation=reveal_validation,
    )
    assert federated.predictions is not None
    levels = (len(federated.losses) or params.tables) * params.depth
    return TrainedModel(
        replace(join_parts(federated.parts), encoders=encoders),
        federated.predictions,
        measure_seconds(federated.program_result, time.perf_counter() - started),
        estimates[0],
        make_report(federated.losses, federated.validation_predictions),
        measure_traffic(federated.program_result),
        measure_rounds(federated.program_result.meters[0], levels),
        summarise_disclosures(federated.program_result.ledgers[0]),
        federated.program_result.peak_rss_mb,
        encoders_by_party,
    )


def _make_constraints(prepared: Sequence[PreparedData], monotone: Mapping[str, int]) -> list[int]:
    """Return the constraint of every feature; raise ParameterError if one is impossible."""
    check_constrained_columns([e for data in prepared for e in data.encoders], monotone)
    names = [name for data in prepared for name in data.columns.names]
    for name in monotone:
        if name not in names:
            known = format_names(names)
            raise ParameterError(f"monotone: there is no feature {name!r}; there are {known}")
    return [monotone.get(name, 0) for name in names]


def encode_parties(
    parties: Sequence[PartyFrame], encoders: Sequence[Sequence[Encoder]]
) -> list[FloatArray]:
    """Return the features of each party's rows, by its encoders."""
    return [
        encode_frame(party.frame, party_encoders).columns
        for party, party_encoders in zip(parties, encoders, strict=True)
    ]


def compute_metrics(
    objective: Objective, predicted: FloatArray, test_rows: Frame
) -> dict[str, float | None]:
    """Return the metrics of predictions for rows with a label."""
    assert test_rows.label is not None
    return objective.compute_metrics(test_rows.label, predicted)
