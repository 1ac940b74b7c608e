from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet import DataError, Experiment, ParameterError, run
from privet.data.datasets import load_dataset
from privet.data.partition import split_frame, split_rows
from privet.experiments.experiment import compute_metrics, train_and_predict
from privet.objectives.classification import compute_sigmoid
from privet.objectives.regression import OBJECTIVES
from privet.protocols.paper.protocol import PaperProtocol
from privet.protocols.protocol import ProtocolInput
from privet.runtime.cost import CostCounter
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan
from tests.boosting.test_federation import within

plain = partial(Experiment, protocol="plain")
in_threads = partial(Experiment, network="memory")
CLASSIFICATION = OBJECTIVES["classification"]


def test_plaintext_experiment(tmp_path: Path) -> None:
    experiment = plain(
        data="breast-cancer", n_parties=4, params={"tables": 10, "depth": 3, "learning_rate": 1.0}
    )
    model, report = run(experiment)
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["protocol"] == "plain"
    assert written["n_parties"] == 4
    assert written["n_samples"] == 455
    assert written["n_features"] == 30
    assert written["params"]["tables"] == 10
    assert written["params"]["task"] == "classification"
    assert written["metrics"]["auc"] >= 0.99
    assert written["metrics"]["accuracy"] >= 0.95
    assert 0 < written["seconds"]["train"] <= written["seconds"]["total"]
    splits = np.array(written["tests"])
    assert splits.shape == (10, 3, 2)
    assert (splits[..., 0] == model.feature).all()
    assert (splits[..., 1] == model.bucket).all()
    # 30 columns over 4 parties: 8, 8, 7, 7, and the label with the last.
    assert [written["feature_owners"].count(f"party{i}") for i in (1, 2, 3, 4)] == [8, 8, 7, 7]


def test_same_seed_gives_the_same_report() -> None:
    def run_with_seed(seed: int) -> dict[str, object]:
        return run(plain(data="breast-cancer", n_parties=2, seed=seed))[1].model_dump(
            exclude={"seconds", "peak_rss_mb"}
        )

    assert run_with_seed(1) == run_with_seed(1)
    assert run_with_seed(1)["metrics"] != run_with_seed(2)["metrics"]


def test_data_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(3, 200))
    columns[1, ::7] = np.nan
    label = (columns[0] > 0).astype(int)
    rows = zip(*columns, label, strict=True)
    cells = "\n".join(",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in rows)
    path = tmp_path / "people.csv"
    path.write_text("a,b,c,label\n" + cells + "\n")
    model, report = run(plain(data=str(path), n_parties=2))
    assert report.data == "people.csv"
    assert model.task == "classification"
    # One cut of column a separates the classes; only rows in its bucket (1/32) can be wrong.
    assert report.metrics["accuracy"] is not None
    assert report.metrics["accuracy"] >= 1 - 1 / 32
    as_regression, _ = run(plain(data=str(path), n_parties=2, task="regression"))
    assert as_regression.task == "regression"
    by_name, _ = run(plain(data=str(path), n_parties=2, label="c", id="a"))
    assert [feature.name for feature in by_name.features] == ["b", "label"]


@pytest.mark.parametrize("cuts", [None, "exact", "hidden"])
def test_cut_disclosure(tmp_path: Path, cuts: Any) -> None:
    """Disclosed cut counts are in the report, and plaintext training has the same candidates."""
    path, rng = tmp_path / "t.csv", np.random.default_rng(3)
    columns = [rng.normal(size=80), rng.integers(0, 2, 80), np.ones(80), rng.integers(0, 4, 80)]
    label = columns[0] + columns[1] + columns[3]
    rows = zip(*columns, label, strict=True)
    path.write_text("a,b,c,d,label\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    params = {"tables": 2, "depth": 2, "buckets": 8}
    experiment = in_threads(data=str(path), n_parties=2, params=params, cuts=cuts)
    report = run(experiment)[1]
    assert report.cuts == (cuts or "rounded")
    disclosed = [(r.to, r.count) for r in report.reveals if r.what == "numbers of cuts"]
    assert disclosed == ([] if cuts == "hidden" else [(["party1", "party2"], 4)])
    assert report.same_tests == 1.0


def test_missing_data_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'no-such' is neither a file nor a data set; .*syn-a"):
        plain(data="no-such").load_dataset()
    with pytest.raises(DataError, match="breast-cancer has its own label; leave --label out"):
        plain(data="breast-cancer", label="y").load_dataset()
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'label'; name the label's column with --label"):
        plain(data=str(path)).load_dataset()


def test_parameters_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"buckets: .* got 1"):
        run(plain(data="breast-cancer", n_parties=2, params={"buckets": 1}))
    with pytest.raises(ParameterError, match=r"n_parties: .* got 1"):
        run(plain(data="breast-cancer", n_parties=1))


def test_the_active_party_needs_a_label() -> None:
    frame = load_dataset("breast-cancer").frame
    parties = split_frame(frame, 3)
    with pytest.raises(DataError, match="party2 is the active participant and has no label"):
        train_and_predict(parties[:2], parties[:2], Params(task="classification"), "plain")


def test_auc_of_one_class_is_undefined() -> None:
    frame = load_dataset("breast-cancer").frame
    assert frame.label is not None
    ones = frame.take(np.flatnonzero(frame.label == 1))
    assert compute_metrics(CLASSIFICATION, np.ones(ones.n_samples), ones)["auc"] is None


def test_metrics_are_of_the_test_rows() -> None:
    data = load_dataset("breast-cancer")
    _, test = split_rows(data.frame, 0.2, 0)
    model, report = run(plain(data="breast-cancer", n_parties=3))
    assert test.label is not None
    is_correct = (model.predict(test.columns) >= 0.5) == test.label
    assert report.metrics["accuracy"] == pytest.approx(is_correct.mean(), abs=1e-12)
    assert report.n_test_samples == 114


def _write(path: Path, labels: list[object]) -> Path:
    rows = "\n".join(f"s{i},{i % 5},{i},{label}" for i, label in enumerate(labels))
    path.write_text(f"id,a,b,label\n{rows}\n")
    return path


@pytest.mark.parametrize("bad", ["", "2", "0.5"])
@pytest.mark.parametrize("row", range(0, 40, 3))
def test_invalid_label_is_rejected_in_any_row(tmp_path: Path, bad: str, row: int) -> None:
    """In a training or a test row, the error names the row of the file, before training."""
    labels: list[object] = [i % 2 for i in range(40)]
    labels[row] = bad
    path = _write(tmp_path / "t.csv", labels)
    experiment = plain(data=str(path), n_parties=2, task="classification")
    with pytest.raises(DataError, match=rf"t\.csv: the label .*row {row + 1}\b"):
        run(experiment)


def test_id_column_is_not_a_feature(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", [i % 2 for i in range(40)])
    model, _ = run(plain(data=str(path), n_parties=2))
    assert model.feature_names == ("a", "b")


def test_several_classes(tmp_path: Path) -> None:
    """Class names are kept from the file to the report; metrics match plaintext training."""
    names = ["oak", "ash", "elm", "fir"]
    path = _write(tmp_path / "t.csv", [names[(i % 5 + i // 40) % 4] for i in range(160)])
    experiment = in_threads(data=str(path), n_parties=2, params={"tables": 3, "depth": 3})
    model, report = run(experiment)
    assert report.classes == ["ash", "elm", "fir", "oak"]
    assert report.params.classes == 4
    assert report.stratified
    assert model.leaf_values.shape == (3, 4, 8)
    assert set(report.metrics) == {"accuracy", "log_loss", "auc"}
    assert report.metrics == pytest.approx(report.plain_metrics, abs=1e-3)
    assert report.same_tests == 1.0


def test_misaligned_parties_are_rejected() -> None:
    from privet.data.partition import PartyFrame

    frame = load_dataset("breast-cancer").frame
    bank, shop = split_frame(frame, 2)
    shop = PartyFrame("shop", shop.frame.take(np.arange(569)[::-1].copy()))
    with pytest.raises(DataError, match="another id at shop"):
        train_and_predict([bank, shop], [bank, shop], Params(task="classification"), "plain")


def test_accuracy_is_at_even_odds() -> None:
    frame = load_dataset("breast-cancer").frame
    for probability, share in ((0.5, 357 / 569), (0.5 - 1e-9, 212 / 569)):
        predicted = np.full(frame.n_samples, probability)
        assert compute_metrics(CLASSIFICATION, predicted, frame)["accuracy"] == share


def test_invalid_settings_are_rejected() -> None:
    for values in ({"n_parties": "2"}, {"seed": -1}, {"test_size": 1.0}, {"colour": 1}):
        with pytest.raises(ParameterError, match=next(iter(values))):
            plain(**{"data": "breast-cancer", "n_parties": 2, **values})  # type: ignore[arg-type]


def test_a_secure_experiment_reports_its_cost(tmp_path: Path) -> None:
    params = {"tables": 2, "depth": 2, "buckets": 8, "learning_rate": 1.0}
    secure = in_threads(data="breast-cancer", n_parties=3, protocol="paper", params=params)
    progress: list[tuple[int, float | None]] = []
    model, report = run(secure, lambda done, loss: progress.append((done, loss)))
    plain = run(secure.model_copy(update={"protocol": "plain"}))[1]
    assert progress == [(1, None), (2, None)]  # no participant knows the loss
    assert report.plain_metrics == plain.metrics == plain.plain_metrics
    assert plain.same_tests == 1.0
    splits, plain_splits = np.array(report.tests), np.array(plain.tests)
    assert report.same_tests >= np.mean((splits == plain_splits).all(axis=2))
    assert report.metrics["auc"] is not None
    assert report.plain_metrics["auc"] is not None
    assert abs(report.metrics["auc"] - report.plain_metrics["auc"]) < 0.02
    _, test = split_rows(load_dataset("breast-cancer").frame, 0.2, 0)
    rounded = np.floor(model.predict_scores(test.columns)[0] * 2.0**10 + 0.5) / 2.0**10
    predicted = compute_metrics(CLASSIFICATION, compute_sigmoid(rounded), test)
    assert predicted == pytest.approx(
        report.metrics
    )  # the revealed predictions match the joined model

    owners = Ownership(tuple([0] * 10 + [1] * 10 + [2] * 10), 2)
    plan = Plan(Params.parse({"task": "classification", **params}), owners, 455)
    counter = CostCounter(3)
    suite = PaperProtocol(counter, plan, ProtocolInput())
    suite.setup()
    counter.cost_by_step.clear()
    suite.train_table(0)
    table = counter.total
    assert report.bytes.online_total == 2 * table.online_bytes
    assert report.bytes.offline_total == 2 * table.offline_bytes
    assert report.bytes.setup_total == 2 * 8 * 455  # the label, to two others
    assert report.bytes.online_total / 3 <= report.bytes.online_max_party
    assert report.rounds.total == 2 * table.rounds + 1
    assert report.rounds.per_level == within(counter.cost_by_step, "level").rounds / 2
    # Fixed values, which were computed without a counter.
    assert (report.rounds.total, report.rounds.per_level) == (1133, 190.0)
    assert (report.bytes.online_total, report.bytes.offline_total) == (23_126_376, 3_862_138)
    assert 0 < report.seconds.setup < report.seconds.online < report.seconds.train
    assert report.seconds.offline > 0
    assert report.seconds.train < report.seconds.total
    assert report.peak_rss_mb > 50
    all_parties = ["party1", "party2", "party3"]
    assert [(r.what, r.to, r.count) for r in report.reveals] == [
        ("best bucket of every feature", all_parties, 2 * 2 * 30),
        ("split feature", all_parties, 2 * 2),
        ("numbers within bounds", all_parties, 2),
        ("predictions", ["party3"], 114),
    ]


def test_processes_and_threads_have_the_same_cost() -> None:
    params = {"tables": 1, "depth": 1, "buckets": 4}
    experiment = in_threads(data="breast-cancer", n_parties=2, protocol="paper", params=params)
    progress: list[int] = []
    _, threads = run(experiment)
    _, processes = run(
        experiment.model_copy(update={"network": "loopback"}), lambda done, _: progress.append(done)
    )
    assert progress == [1]
    assert processes.bytes == threads.bytes
    assert processes.rounds == threads.rounds
    assert processes.reveals == threads.reveals
    assert processes.seconds.offline > 0


@pytest.mark.parametrize(("options", "dealer"), [({"ahead": True}, "ahead"), ({}, "own")])
def test_dealer_placements(options: dict[str, Any], dealer: str) -> None:
    params = {"tables": 2, "depth": 2, "learning_rate": 1.0}
    experiment = Experiment(data="breast-cancer", n_parties=2, params=params)
    _, report = run(experiment.model_copy(update={"network": "1,1000", **options}))
    assert report.same_tests == 1
    assert report.dealer == dealer
    assert (report.seconds.ahead > 0) == (dealer == "ahead")
    times = report.estimated_seconds
    assert times is not None
    assert 0 < times.ahead <= min(times.own, times.shared)
    _, loopback = run(experiment.model_copy(update={"network": "loopback", **options}))
    assert loopback.dealer == ("ahead" if dealer == "ahead" else "none")
    assert loopback.estimated_seconds is None


def test_unknown_network_is_rejected() -> None:
    with pytest.raises(ParameterError, match="network: 'moon' is none of memory, loopback"):
        run(Experiment(data="breast-cancer", n_parties=2, network="moon"))


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_validation_rows(protocol: str) -> None:
    """They are a part of the training rows; the report contains their losses and metrics."""
    params = {"tables": 3, "depth": 2, "validation": 0.25, "patience": 2, "seed": 3}
    experiment = Experiment(
        data="breast-cancer",
        protocol=protocol,
        network="memory",
        params=params,
        reveal_validation=True,
    )
    model, report = run(experiment)
    assert (report.n_samples, report.n_test_samples) == (455 - 114, 114)
    found, plain = report.validation, report.plain_validation
    assert found is not None
    assert plain is not None
    assert found.rows == 114
    assert found.losses == pytest.approx(plain.losses, abs=1e-4)
    assert model.n_tables == found.best_table
    assert found.metrics["log_loss"] == pytest.approx(found.losses[found.best_table - 1], abs=1e-3)
    assert found.metrics == pytest.approx(plain.metrics, abs=1e-2)
    without_validation = run(
        experiment.model_copy(update={"params": {**params, "validation": 0.0, "patience": None}})
    )
    assert without_validation[1].validation is None


def test_validation_predictions_are_not_revealed_by_default() -> None:
    experiment = Experiment(
        data="breast-cancer", network="memory", params={"tables": 1, "depth": 1, "validation": 0.2}
    )
    _, report = run(experiment)
    assert report.validation is not None
    assert report.validation.metrics == {}
    assert report.validation.curves == {}
    assert "predictions of validation rows" not in {reveal.what for reveal in report.reveals}
