"""One experiment on this machine: read a table, split it over parties, train, test, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.estimate import Estimate
from privet.boosting.federation import SUITES, cuts_of
from privet.boosting.model import Model
from privet.boosting.part import join
from privet.boosting.preparation import Prepared, prepare, refuse_constrained_categories
from privet.boosting.reference import OnTable
from privet.boosting.trainer import DEFAULT_PROTOCOL, PLAIN, train_federated, train_watched
from privet.boosting.validation import Validated, stand_ins
from privet.data.datasets import DataSet
from privet.data.encoder import Encoder
from privet.data.encoding import encode
from privet.data.frame import Frame, listing
from privet.data.partition import PartyFrame, check_aligned, hand_out, split_rows
from privet.data.sources.source import naming
from privet.errors import DataError, ParameterError
from privet.federation.party_report import Reveal, ValidationReport, reveals, validation_report
from privet.laboratory import costs
from privet.laboratory.report import Bytes, Report, Rounds, Seconds
from privet.laboratory.scenario import Scenario
from privet.runtime.network import Network
from privet.runtime.roles import peak_rss_mb
from privet.terms.cuts import Cuts
from privet.terms.objective import Objective
from privet.terms.params import Params
from privet.terms.validation import count_validation
from privet.version import __version__


class Experiment(Scenario):
    """What to run. Its defaults and those of `Params` are the command line's, too."""

    protocol: str = DEFAULT_PROTOCOL
    """`"masked"`, `"paper"`, or `"plain"`: in the clear."""
    network: str = "loopback"
    """How parties are connected: see `privet.simulate`. Processes take a federation's time; threads
    (`memory`) are for scripts without a guard on `__main__`, and for suites of one's own."""
    cuts: Cuts | None = None
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
    on_table: OnTable | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> tuple[Model, Report]:
    """Run an experiment and return its model and report."""
    started = time.perf_counter()
    network = Network.parse(experiment.network, experiment.dealer_link)
    data, params = load(experiment)
    stratified = experiment.stratified(params.objective)
    held = experiment.holdings(data.frame)
    train_rows, test_rows = set_aside(data, experiment, experiment.seed, stratified)
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
        dealers=experiment.dealers,
        cuts=cuts,
        reveal_validation=experiment.reveal_validation,
        monotone=experiment.monotone,
    )
    model, plain = replace(trained.model, classes=data.classes), trained
    if protocol != PLAIN:
        plain = train_on(
            parties,
            new,
            params,
            PLAIN,
            experiment.network,
            cuts=cuts,
            reveal_validation=experiment.reveal_validation,
            monotone=experiment.monotone,
        )
    report = Report(
        version=__version__,
        data=data.name,
        protocol=protocol,
        cuts=cuts,
        n_parties=len(parties),
        n_samples=train_rows.n_samples - count_validation(train_rows.n_samples, params),
        n_test_samples=test_rows.n_samples,
        n_features=len(model.features),
        seed=experiment.seed,
        stratified=stratified,
        classes=list(data.classes),
        warnings=list(data.frame.warnings),
        params=params,
        metrics=evaluate(params.objective, trained.predictions, test_rows),
        plain_metrics=evaluate(params.objective, plain.predictions, test_rows),
        validation=trained.validation,
        plain_validation=plain.validation,
        same_tests=model.same_tests(
            plain.model, np.concatenate(features(parties, trained.encoders))
        ),
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


def load(scenario: Scenario) -> tuple[DataSet, Params]:
    """Return the data, with a label that can be learned, and the hyper-parameters."""
    data = scenario.load()
    classes = {"classes": len(data.classes)} if data.classes else {}
    return data, Params.parse({"task": data.task, **classes, **scenario.params})


def set_aside(
    data: DataSet, scenario: Scenario, seed: int, stratified: bool
) -> tuple[Frame, Frame]:
    """Return training rows, of every class, and test rows."""
    with naming(data.name):
        return split_rows(
            data.frame, scenario.test_size, seed, stratify=stratified, classes=data.classes
        )


@dataclass(frozen=True)
class Trained:
    """A model, its predictions of the new rows, and what training took."""

    model: Model
    predictions: FloatArray
    seconds: Seconds
    cost: Estimate | None = None
    """What was known before, of a secure protocol."""
    validation: ValidationReport | None = None
    """What was learned of validation rows, if there are any."""
    bytes: Bytes = field(default_factory=Bytes)
    rounds: Rounds = field(default_factory=Rounds)
    reveals: list[Reveal] = field(default_factory=list)
    peak_rss_mb: float = field(default_factory=peak_rss_mb)
    encoders: Sequence[Sequence[Encoder]] = ()
    """What makes features of each party's columns."""


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
    reveal_validation: bool = False,
    monotone: Mapping[str, int] | None = None,
    dealers: int = 1,
) -> Trained:
    """Let every party bucket its own columns, train on them, and predict new rows.

    `monotone` constrains columns by name, whosever they are. The last party holds the label, and
    receives the predictions.
    """
    started = time.perf_counter()
    check_aligned(parties)
    prepared = [prepare(party.name, party.frame.by_column(), params) for party in parties]
    label = prepared[-1].label
    if label is None:
        raise DataError(f"{parties[-1].name} is the active participant and has no label")
    weight = prepared[-1].weight
    bucketed = [own.columns for own in prepared]
    by_party = [own.encoders for own in prepared]
    new_columns = features(new, by_party)
    signs = _constraints(prepared, monotone or {})
    encoders = tuple(encoder for own in by_party for encoder in own)
    n_validation = count_validation(len(label), params)
    rows = label[len(label) - n_validation :]

    def watched(losses: Sequence[float], predicted: FloatArray | None) -> ValidationReport | None:
        if not losses:
            return None
        return validation_report(params.objective, losses, rows, Validated(predicted))

    if protocol == PLAIN:
        model, losses = train_watched(
            bucketed, label, params, protocol, on_table, cuts, weight=weight, monotone=signs
        )
        predictions = model.predict(np.concatenate(new_columns))
        predicted = None
        if reveal_validation and n_validation:
            last = [stand_ins(own, n_validation) for own in bucketed]
            predicted = model.predict(np.concatenate(last))
        return Trained(
            replace(model, encoders=encoders),
            predictions,
            Seconds(train=time.perf_counter() - started),
            validation=watched(losses, predicted),
            encoders=by_party,
        )
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
        weight=weight,
        monotone=signs,
        network=network,
        dealer_link=dealer_link,
        ahead=ahead,
        dealers=dealers,
        new_columns=new_columns,
        on_table=on_table,
        on_estimate=note,
        reveal_validation=reveal_validation,
    )
    assert federated.predictions is not None
    levels = (len(federated.losses) or params.tables) * params.depth
    return Trained(
        replace(join(federated.parts), encoders=encoders),
        federated.predictions,
        costs.seconds(federated.outcome, time.perf_counter() - started),
        found[0],
        watched(federated.losses, federated.validation),
        costs.traffic(federated.outcome),
        costs.rounds(federated.outcome.meters[0], levels),
        reveals(federated.outcome.ledgers[0]),
        federated.outcome.peak_rss_mb,
        by_party,
    )


def _constraints(prepared: Sequence[Prepared], monotone: Mapping[str, int]) -> list[int]:
    """Return the constraint of every feature; raise ParameterError if one cannot be."""
    refuse_constrained_categories([e for own in prepared for e in own.encoders], monotone)
    names = [name for own in prepared for name in own.columns.names]
    for name in monotone:
        if name not in names:
            there = listing(names)
            raise ParameterError(f"monotone: there is no feature {name!r}; there are {there}")
    return [monotone.get(name, 0) for name in names]


def features(
    parties: Sequence[PartyFrame], encoders: Sequence[Sequence[Encoder]]
) -> list[FloatArray]:
    """Return what each party's encoders make of its rows."""
    return [encode(p.frame, own).columns for p, own in zip(parties, encoders, strict=True)]


def evaluate(objective: Objective, predicted: FloatArray, rows: Frame) -> dict[str, float | None]:
    """Return the metrics of predictions for rows with a label."""
    assert rows.label is not None
    return objective.metrics(rows.label, predicted)
