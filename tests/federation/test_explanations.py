"""Explained predictions: only the recipient can request and receive them."""

from __future__ import annotations

import csv
import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.boosting import explanation
from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.explanation import explain_scores
from privet.cli.app import app
from privet.config.job import Job
from privet.errors import ParameterError, PeerError, PeerMisbehavedError
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment.alignment import require_same_ids
from privet.federation.prediction.prediction import Predictions
from privet.federation.serving.request_queue import RequestQueue
from privet.objectives.classification import compute_sigmoid
from privet.runtime.cost import CostCounter
from privet.storage.model_part import load_part
from tests.federation.harness import (
    N_SAMPLES,
    NAMES,
    Run,
    align,
    change,
    common_rows,
    model_of,
    prepare,
    preprocess_offline,
    rows,
    run,
    train_in_plaintext,
)
from tests.federation.test_multiclass import NAMES as CLASSES
from tests.federation.test_multiclass import name_classes
from tests.federation.test_serving import Service
from tests.federation.test_training import KilledError, last_common
from tests.web.client import endpoint, post

ROUNDING = 2**-10


def prepare_explaining(folder: Path, by: str = "feature", **job: Any) -> LocalFederation:
    local = prepare(folder, **job)
    change(local.job_path, ("[params]", f'explain = "{by}"\n[params]'))
    return local


def columns_of(predictions: Predictions) -> dict[str, list[str]]:
    """Return the columns of the recipient's file."""
    lines = list(csv.reader(io.StringIO(predictions.to_csv().decode())))
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(lines[0])}


def numbers(columns: dict[str, list[str]], names: list[str]) -> Any:
    return np.array([[float(cell) for cell in columns[name]] for name in names])


@pytest.mark.parametrize("recipient", ["bank", "shop"])
@pytest.mark.parametrize("by", ["feature", "participant"])
def test_training_and_prediction(tmp_path: Path, recipient: str, by: str) -> None:
    local = prepare_explaining(tmp_path, by, task="regression", recipient=recipient)
    trained = run(local, "train").checked()
    for name in NAMES:
        assert {r.what for r in trained[name][0].reveals}.isdisjoint({"contributions and base"})
    model = model_of(local)
    assert model.left_fraction is not None
    plain = run(local, "predict").checked()[recipient][1]
    found = run(local, "predict", explain=(recipient,)).checked()
    predictions = found[recipient][1]
    assert found[next(n for n in NAMES if n != recipient)][1] is None
    assert np.array_equal(plain.values, predictions.values)

    exact = explain_scores(model, rows(2, 7).columns)
    expected, names = exact.contributions[0], ["a", "b", "c", "d", "e"]
    if by == "participant":
        owners = [feature.owner for feature in model.features]
        expected = np.array([expected[[o == n for o in owners]].sum(axis=0) for n in NAMES])
        names = list(NAMES)
    columns = columns_of(predictions)
    labels = [f"contribution of {name}" for name in names]
    assert list(columns) == ["id", "prediction", *labels, "base"]
    shown, base = numbers(columns, labels), numbers(columns, ["base"])
    unit = load_part(local.get_part_path("shop")).part.label_unit
    assert unit is not None
    # Each value is rounded to half of this bound, and gets a part of the rounding remainder.
    assert np.abs(shown - expected).max() <= 2 * unit.scale * 2**-12
    assert np.abs(base - exact.base).max() <= unit.scale * 2**-12
    assert np.abs(base[0] + shown.sum(axis=0) - predictions.values).max() < 1e-12
    for name in NAMES:
        reveals = {r.what: r for r in found[name][0].reveals}
        assert reveals["contributions and base"].to == [recipient]
        assert reveals["contributions and base"].count == 7 * len(names) + 1
        assert reveals["predictions"].count == 7


def test_multiclass_explanations(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path)
    change(local.job_path, ("[params]", "classes = 3\n[params]"))
    name_classes(local.folder / "shop" / "train.csv")
    run(local, "train").checked()
    predictions = run(local, "predict", explain=("shop",)).checked()["shop"][1]
    columns = columns_of(predictions)
    exact = explain_scores(model_of(local), rows(2, 7).columns)
    for k, kind in enumerate(CLASSES):
        labels = [f"contribution of {name} to {kind}" for name in "abcde"]
        assert np.abs(numbers(columns, labels) - exact.contributions[k]).max() <= 2 * ROUNDING
        assert np.abs(numbers(columns, [f"base of {kind}"]) - exact.base[k]).max() <= ROUNDING


def test_aligned_rows_are_explained_in_the_recipients_order(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path)
    align(local)
    run(local, "train").checked()
    frames = common_rows(local)
    # Fractions of the common rows only.
    left_fractions = train_in_plaintext(local, frames).left_fraction
    model = model_of(local)
    assert model.left_fraction is not None
    assert left_fractions is not None
    assert np.array_equal(model.left_fraction, left_fractions)
    predictions = run(local, "predict", explain=("shop",)).checked()["shop"][1]
    frames = common_rows(local, "new.csv")
    exact = explain_scores(model, np.concatenate([frame.columns for frame in frames.values()]))
    columns = columns_of(predictions)
    order = [frames["shop"].ids.tolist().index(key) for key in columns["id"]]  # type: ignore[union-attr]
    shown = numbers(columns, [f"contribution of {name}" for name in "abcde"])
    assert np.abs(shown - exact.contributions[0][:, order]).max() <= 2 * ROUNDING


def test_explanations_require_the_job_setting(tmp_path: Path) -> None:
    """Without the setting, the recipient fails before it connects."""
    local = prepare(tmp_path)
    run(local, "train").checked()
    found = run(local, "predict", explain=("shop",), wait=5)
    assert isinstance(found.errors["shop"], ParameterError)
    assert "the job 'rehearsal' has no explanations; agree on" in str(found.errors["shop"])
    assert isinstance(found.errors["bank"], PeerError)
    assert not [e for e in found.events.get("shop", []) if e.kind == "listening"]


def test_only_the_recipient_can_request_explanations(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path)
    run(local, "train").checked()
    found = run(local, "predict", explain=("bank",), wait=5)
    assert isinstance(found.errors["bank"], ParameterError)
    assert "explain: is for shop to ask" in str(found.errors["bank"])


def check_refused(found: Run) -> None:
    """Check that a peer which detects the request itself reports the reason."""
    errors = [found.errors[name] for name in ("bank", "dealer")]
    assert all(isinstance(error, PeerError) for error in errors)
    why = [str(error) for error in errors if isinstance(error, PeerMisbehavedError)]
    assert why
    assert all("wants explanations, which the job does not have" in text for text in why)


def test_peers_reject_explanations_that_the_job_does_not_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    run(local, "train").checked()
    monkeypatch.setattr(
        "privet.federation.prediction.prediction.check_may_explain", lambda *_: None
    )
    found = run(local, "predict", explain=("shop",))
    check_refused(found)


def test_training_interrupted_after_the_last_table_computes_only_left_fractions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables are trained, but the fractions of rows are missing: only these are computed."""
    local = prepare_explaining(tmp_path)
    both_arrived = threading.Barrier(2, timeout=20)
    original = explanation.compute_left_fractions

    def fail(*arguments: Any) -> Any:
        both_arrived.wait()
        raise KilledError

    monkeypatch.setattr(explanation, "compute_left_fractions", fail)
    first = run(local, "train")
    assert all(isinstance(first.errors[name], KilledError) for name in NAMES)
    assert last_common(local) == 3
    monkeypatch.setattr(explanation, "compute_left_fractions", original)
    second = run(local, "train")
    reports = [second.checked()[name][0] for name in NAMES]
    job = Job.read(local.job_path)
    federation = job.make_training_spec(model_of(local).features, (7,) * 5)
    cost = estimate_cost(federation, federation.make_plan(N_SAMPLES), n_trained_tables=3)
    assert {report.resumed_from for report in reports} == {3}
    comparison = CostCounter(len(NAMES))
    require_same_ids(comparison, NAMES, None, None)
    assert {report.rounds for report in reports} == {comparison.total.rounds + cost.rounds}
    assert cost.rounds == 3
    run(local, "predict", explain=("shop",)).checked()


def test_offline_training_supports_explanations(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path)
    preprocess_offline(local)
    run(local, "train", absent=("dealer",)).checked()
    assert model_of(local).left_fraction is not None


def test_inspect_shows_the_explanation_mode(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path, "participant")
    run(local, "train").checked()
    shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path("bank")), "--json"])
    assert json.loads(shown.output)["explain"] == "participant"
    shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path("bank"))])
    assert "explains predictions, by participant" in shown.output


def test_a_job_of_the_papers_protocol_cannot_explain(tmp_path: Path) -> None:
    local = prepare_explaining(tmp_path, protocol="paper")
    with pytest.raises(ParameterError, match="explain: the protocol paper derives no"):
        Job.read(local.job_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    local = prepare_explaining(tmp_path_factory.mktemp("served"))
    run(local, "train").checked()
    return local


@pytest.mark.parametrize("aligned", [False, True])
def test_service_explains_on_request(tmp_path: Path, aligned: bool) -> None:
    local = prepare_explaining(tmp_path)
    if aligned:
        align(local)
    run(local, "train").checked()
    service = Service(local, explains=True)
    encoders = load_part(local.get_part_path("shop")).encoders
    with endpoint(service.queue, encoders=encoders) as port:
        plain = post(port, {"ids": ["1-17", "1-10"]})[1]
        status, answer = post(port, {"ids": ["1-17", "1-10"], "explain": True})
        row = {"id": "1-17", "d": rows(1).columns[3, 17], "e": rows(1).columns[4, 17]}
        _, row_answer = post(port, {"rows": [row], "explain": True})
        status_of_unknown, _ = post(port, {"ids": ["1-17", "moon"], "explain": True})
    service.queue.close("the test is over")
    reveals = service.ended().checked()["bank"]
    assert (status, status_of_unknown) == (200, 404)
    assert answer["probabilities"] == plain["probabilities"]
    assert "contributions" not in plain
    assert row_answer["contributions"] == {k: v[:1] for k, v in answer["contributions"].items()}
    exact = explain_scores(service.model, rows(1).columns[:, [17, 10]])
    assert list(answer["contributions"]) == list("abcde")
    shown = np.array(list(answer["contributions"].values()))
    assert np.abs(shown - exact.contributions[0]).max() <= 2 * ROUNDING
    score = np.array(answer["base"]) + shown.sum(axis=0)
    assert compute_sigmoid(score) == pytest.approx(
        [pair[1] for pair in answer["probabilities"]], abs=1e-12
    )
    (disclosure,) = [reveal for reveal in reveals if reveal.what == "contributions and base"]
    # Two rows by id, one inline row, and the one known row of the last request; the base with
    # each batch.
    assert (disclosure.to, disclosure.count) == (["shop"], 5 * (2 + 1 + 1) + 3)


def test_batched_requests_get_explanations_only_if_requested(
    served: LocalFederation,
) -> None:
    service = Service(served, explains=True)
    requests: dict[str, Any] = {}

    def send(number: int) -> None:
        found = service.queue.submit_and_wait([f"1-{number}"], explain=number % 2 == 0)
        requests[f"1-{number}"] = found

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    service.queue.close("the test is over")
    service.ended().checked()
    exact = explain_scores(service.model, rows(1).columns[:, :8]).contributions[0]
    for number in range(0, 8, 2):
        explained = requests[f"1-{number}"].explanation
        found = explained.explanation.contributions[0, :, 0]
        assert np.abs(found - exact[:, number]).max() <= 2 * ROUNDING


def test_a_service_of_a_job_without_explanations_refuses_them() -> None:
    with endpoint(RequestQueue()) as port:
        for body in ({"ids": ["a"], "explain": True}, {"ids": ["a"], "explain": "yes"}):
            status, answer = post(port, body)
            assert status == 400
            assert "explain" in answer["error"]


def test_peers_of_a_service_reject_explanations_that_the_job_does_not_allow(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train").checked()
    service = Service(local, explains=True)
    service.queue.submit_and_wait(["1-1"], explain=True)
    found = service.ended()
    check_refused(found)
