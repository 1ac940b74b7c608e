from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privet import Experiment, ParameterError, load_dataset, read_frame, run
from privet.data.partition import split_rows
from privet.objectives.regression import OBJECTIVES

COLUMNS = {"bank": ["visits", "age"], "shop": ["spent*"], "nobody": ["zip"]}
FEW = {"tables": 3, "depth": 2, "buckets": 8}


@pytest.fixture
def people(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(5, 300))
    label = columns[0] + columns[3] > 1.5
    rows = [",".join(map(str, [*row, int(y)])) for row, y in zip(columns.T, label, strict=True)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age,spent_mon,spent_tue,visits,zip,label", *rows]) + "\n")
    return str(path)


def test_participants_have_their_names_and_columns(people: str) -> None:
    for network in ("memory", "loopback"):
        experiment = Experiment(
            data=people, columns=COLUMNS, active="bank", network=network, params=FEW
        )
        model, report = run(experiment)
        assert [(f.name, f.owner) for f in model.features] == [
            ("spent_mon", "shop"),
            ("spent_tue", "shop"),
            ("age", "bank"),
            ("visits", "bank"),
        ]
        assert (report.n_parties, report.n_features) == (2, 4)
        recipients = {reveal.what: reveal.to for reveal in report.reveals}
        assert recipients["predictions"] == ["bank"]
        assert recipients["split feature"] == ["shop", "bank"]
        # The model's columns are not in the order of the table.
        assert report.same_tests == 1.0
        # Predictions are rounded to 2^-10 in the log-odds before they are revealed.
        assert report.metrics == pytest.approx(report.plain_metrics, abs=1e-4)


def test_predictions_do_not_depend_on_the_label_holder(people: str) -> None:
    """Columns in another order give the same model, if there are no ties."""
    bank, shop = (
        run(Experiment(data=people, columns=COLUMNS, active=active, protocol="plain", params=FEW))
        for active in ("bank", "shop")
    )
    assert bank[0].feature_names != shop[0].feature_names
    assert bank[1].metrics == shop[1].metrics


@pytest.mark.parametrize("stratify", [None, True, False])
def test_a_file_is_split_class_by_class(people: str, stratify: bool | None) -> None:
    experiment = Experiment(data=people, stratify=stratify, protocol="plain", params=FEW)
    model, report = run(experiment)
    assert report.stratified is (stratify is not False)
    frame = read_frame(people, label="label")
    _, test = split_rows(frame, 0.2, 0, stratify=report.stratified)
    assert test.label is not None
    assert report.metrics == OBJECTIVES["classification"].compute_metrics(
        test.label, model.predict(test.select(model.feature_names).columns)
    )


def test_named_data_sets_are_not_stratified_by_default() -> None:
    plain = Experiment(data="breast-cancer", protocol="plain", params=FEW)
    model, report = run(plain)
    assert not report.stratified
    _, test = split_rows(load_dataset("breast-cancer").frame, 0.2, 0)
    assert test.label is not None
    assert report.metrics == OBJECTIVES["classification"].compute_metrics(
        test.label, model.predict(test.columns)
    )
    assert run(plain.model_copy(update={"stratify": True}))[1].stratified


def test_a_regression_has_no_classes(people: str) -> None:
    experiment = Experiment(data=people, task="regression", protocol="plain", params=FEW)
    assert not run(experiment)[1].stratified
    with pytest.raises(ParameterError, match="stratify: a regression has no classes"):
        run(experiment.model_copy(update={"stratify": True}))


def test_n_parties_and_columns_exclude_each_other() -> None:
    with pytest.raises(ParameterError, match="n_parties: columns says who takes part"):
        Experiment(data="breast-cancer", n_parties=2, columns=COLUMNS)
