"""One experiment on this machine: read a table, split it over parties, train, test, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.estimate import Estimate
from privet.boosting.federation import SUITES, cuts_of
from privet.boosting.model import Model
from privet.boosting.part import join
from privet.boosting.reference import OnTable
from privet.boosting.trainer import DEFAULT_PROTOCOL, PLAIN, train, train_federated
from privet.data.datasets import DATASETS, DataSet, load_dataset
from privet.data.frame import Frame
from privet.data.partition import PartyFrame, check_aligned, hand_out, split_rows
from privet.data.reader import column_names, read_frame
from privet.errors import DataError
from privet.federation.party_report import Reveal, reveals
from privet.laboratory import costs
from privet.laboratory.report import Bytes, Report, Rounds, Seconds
from privet.laboratory.scenario import Scenario
from privet.runtime.network import Network
from privet.runtime.roles import peak_rss_mb
from privet.terms.cuts import Cuts
from privet.terms.objective import Objective, objective_for
from privet.terms.params import Params
from privet.version import __version__


class Experiment(Scenario):
    """What to run. Its defaults and those of `Params` are the command line's, too."""

    protocol: str = DEFAULT_PROTOCOL
    network: str = "loopback"
    """How the parties of a secure protocol are connected: see `privet.simulate`. As processes, they
    take the time that a federation does. Threads (`memory`) are for scripts without a guard on
    `__main__`, and for suites and objectives that are not part of this package."""
    cuts: Cuts | None = None
    """What the parties tell each other of their numbers of cuts; None: the protocol's default."""
    dealer_link: str = "own"
    """Where a dealer that is there sends, if the network is an emulated one: see there, too."""
    ahead: bool = False
    """Whether correlations are dealt into files before the participants start."""


def run(
    experiment: Experiment,
    on_table: OnTable | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> tuple[Model, Report]:
    """Run an experiment and return its model and report."""
    started = time.perf_counter()
    network = Network.parse(experiment.network, experiment.dealer_link)
    data, params = load(experiment)
    stratified = experiment.stratified(params.objective)
    held = experiment.holdings(data.frame)
    train_rows, test_rows = split_rows(
        data.frame, experiment.test_size, experiment.seed, stratify=stratified
    )
    parties, new = hand_out(train_rows, held), hand_out(test_rows, held)
    protocol = experiment.protocol
    cuts = cuts_of(protocol if protocol in SUITES else DEFAULT_PROTOCOL, experiment.cuts)
    trained = train_on(
        parties,
        new,
        params,
        protocol,
        experiment.network,
        experiment.dealer_link,
        experiment.ahead,
        on_table,
        on_estimate,
        cuts=cuts,
    )
    model, plain = trained.model, trained
    if protocol != PLAIN:
        plain = train_on(parties, new, params, PLAIN, experiment.network, cuts=cuts)
    report = Report(
        version=__version__,
        data=data.name,
        protocol=protocol,
        cuts=cuts,
        n_parties=len(parties),
        n_samples=train_rows.n_samples,
        n_test_samples=test_rows.n_samples,
        n_features=len(model.features),
        seed=experiment.seed,
        stratified=stratified,
        params=params,
        metrics=evaluate(params.objective, trained.predictions, test_rows),
        plain_metrics=evaluate(params.objective, plain.predictions, test_rows),
        same_tests=model.same_tests(plain.model, _columns(parties)),
        network=experiment.network,
        dealer=_dealer(experiment, network),
        seconds=trained.seconds.model_copy(update={"total": time.perf_counter() - started}),
        estimated_seconds=None
        if trained.cost is None
        else costs.estimated(trained.cost, network, len(parties)),
        bytes=trained.bytes,
        rounds=trained.rounds,
        reveals=trained.reveals,
        peak_rss_mb=trained.peak_rss_mb,
        feature_names=[feature.name for feature in model.features],
        feature_owners=[feature.owner for feature in model.features],
        tests=np.stack((model.feature, model.bucket), axis=2).tolist(),
    )
    return model, report


def _dealer(experiment: Experiment, network: Network) -> str:
    if experiment.ahead:
        return "ahead"
    return "none" if network.delay_ms is None else experiment.dealer_link


def _columns(parties: Sequence[PartyFrame]) -> FloatArray:
    """Return all columns, in the order in which a model has its features."""
    return np.concatenate([party.frame.columns for party in parties])


def load(scenario: Scenario) -> tuple[DataSet, Params]:
    """Return the data, with a label that can be learned, and the hyper-parameters."""
    data = load_data(scenario.data, scenario.label, scenario.id, scenario.task)
    params = Params.parse({"task": data.task, **scenario.params})
    if data.frame.label is not None:
        # Before rows are shuffled and set aside, while their numbers are those of the file.
        try:
            params.objective.check_label(data.frame.label)
        except DataError as error:
            raise DataError(f"{data.name}: {error}") from None
    return data, params


def load_data(data: str, label: str | None, id_: str | None, task: str | None) -> DataSet:
    """Load a named data set, or read a file and settle what its label is and asks for."""
    if data in DATASETS:
        for option, value in (("label", label), ("id", id_), ("task", task)):
            if value is not None:
                raise DataError(f"the data set {data} has its own {option}; leave --{option} out")
        return load_dataset(data)
    if not Path(data).exists():
        raise DataError(
            f"{data!r} is neither a file nor a data set; the data sets are {', '.join(DATASETS)}"
        )
    names = column_names(data)
    if label is None and "label" not in names:
        raise DataError(f"{data}: there is no column 'label'; name the label's column with --label")
    if id_ is None and "id" in names:
        id_ = "id"
    frame = read_frame(data, id_column=id_, label_column=label or "label")
    if task is None:
        assert frame.label is not None
        task = objective_for(frame.label).name
    return DataSet(Path(data).name, task, frame)


@dataclass(frozen=True)
class Trained:
    """A model, its predictions of the new rows, and what training took."""

    model: Model
    predictions: FloatArray
    seconds: Seconds
    cost: Estimate | None = None
    """What was known before, of a secure protocol."""
    bytes: Bytes = field(default_factory=Bytes)
    rounds: Rounds = field(default_factory=Rounds)
    reveals: list[Reveal] = field(default_factory=list)
    peak_rss_mb: float = field(default_factory=peak_rss_mb)


def train_on(
    parties: Sequence[PartyFrame],
    new: Sequence[PartyFrame],
    params: Params,
    protocol: str,
    network: str = "memory",
    dealer_link: str = "own",
    ahead: bool = False,
    on_table: OnTable | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
    *,
    cuts: Cuts | None = None,
) -> Trained:
    """Let every party bucket its own columns, train on them, and predict new rows.

    The last party holds the label, and receives the predictions.
    """
    started = time.perf_counter()
    check_aligned(parties)
    label = parties[-1].frame.label
    if label is None:
        raise DataError(f"{parties[-1].name} is the active participant and has no label")
    bucketed = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in parties
    ]
    if protocol == PLAIN:
        model = train(bucketed, label, params, protocol, on_table, cuts)
        seconds = time.perf_counter() - started
        return Trained(model, model.predict(_columns(new)), Seconds(train=seconds))
    found: list[Estimate] = []

    def note(estimate: Estimate) -> None:
        found.append(estimate)
        if on_estimate is not None:
            on_estimate(estimate)

    federated = train_federated(
        bucketed,
        label,
        params,
        protocol,
        cuts=cuts,
        network=network,
        dealer_link=dealer_link,
        ahead=ahead,
        new_columns=[party.frame.columns for party in new],
        on_table=on_table,
        on_estimate=note,
    )
    assert federated.predictions is not None
    levels = params.tables * params.depth
    return Trained(
        join(federated.parts),
        federated.predictions,
        costs.seconds(federated.outcome, time.perf_counter() - started),
        found[0],
        costs.traffic(federated.outcome.meters),
        costs.rounds(federated.outcome.meters[0], levels),
        reveals(federated.outcome.ledgers[0]),
        federated.outcome.peak_rss_mb,
    )


def evaluate(objective: Objective, predicted: FloatArray, rows: Frame) -> dict[str, float | None]:
    """Return the metrics of predictions for rows with a label."""
    assert rows.label is not None
    return objective.metrics(rows.label, predicted)
