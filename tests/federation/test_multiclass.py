"""Three classes: only the label holder and the recipient learn the class names."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.cli.app import app
from privet.config.job import Job
from privet.data.reader import read_frame
from privet.errors import DataError, ParameterError, PeerMisbehavedError
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part
from privet.transport.channel import pack_texts
from tests.federation.harness import change, model_of, prepare, rows, run
from tests.federation.test_serving import Service
from tests.web.client import endpoint, post

NAMES = ("ash", "elm", "oak")


def name_classes(path: Path, names: tuple[str, ...] = NAMES) -> None:
    """Replace a table's labels by class names that depend on the last feature."""
    header, *lines = path.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    sorted_rows = np.argsort([float(row[-2]) for row in cells])
    for rank, row in enumerate(sorted_rows):
        cells[row][-1] = names[rank * len(names) // len(sorted_rows)]
    path.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n")


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    found = prepare(tmp_path, tables=3)
    change(found.job_path, ("[params]", "classes = 3\n[params]"))
    name_classes(found.folder / "shop" / "train.csv")
    return found


@pytest.mark.parametrize("recipient", ["bank", "shop"])
def test_training_and_prediction(local: LocalFederation, recipient: str) -> None:
    change(local.job_path, ("classes = 3", f'classes = 3\nrecipient = "{recipient}"'))
    trained = run(local, "train")
    trained.checked()
    texts = [event.text for event in trained.events["shop"] if event.kind == "classes"]
    assert texts == ["the label's classes are 'ash', 'elm', 'oak'"]
    parts = {name: load_part(local.get_part_path(name)) for name in local.party_names}
    assert (parts["bank"].classes, parts["shop"].classes) == ((), NAMES)
    assert parts["bank"].part.leaf_shares.shape == (3, 3, 4)

    found = run(local, "predict").checked()
    (predictions,) = [found[name][1] for name in local.party_names if found[name][1] is not None]
    lines = list(csv.reader(predictions.to_csv().decode().splitlines()))
    assert lines[0] == ["id", "class", *(f"probability of {name}" for name in NAMES)]
    probabilities = np.array([[float(cell) for cell in line[2:]] for line in lines[1:]])
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(7), abs=1e-12)
    expected = model_of(local).predict(rows(2, 7).columns).T
    assert probabilities == pytest.approx(expected, abs=1e-3)
    assert [line[1] for line in lines[1:]] == [NAMES[k] for k in np.argmax(probabilities, axis=1)]
    for name in local.party_names:
        reveals = {reveal.what: reveal for reveal in found[name][0].reveals}
        assert ("names of the classes" in reveals) == (recipient == "bank")
        assert reveals["predictions"].count == 3 * 7
        assert reveals["predictions"].to == [recipient]


def test_inspect_shows_the_classes(local: LocalFederation) -> None:
    run(local, "train").checked()
    for name, names in (("bank", []), ("shop", list(NAMES))):
        shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path(name)), "--json"])
        assert json.loads(shown.output)["classes"] == names
        shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path(name))])
        assert ("classes: 'ash', 'elm', 'oak'" in shown.output) == bool(names)


def test_a_service(local: LocalFederation) -> None:
    run(local, "train").checked()
    service = Service(local)
    try:
        with endpoint(service.queue) as port:
            status, answer = post(port, {"ids": ["1-7", "1-0", "1-7"]})
            missing, _ = post(port, {"ids": ["1-7", "moon"]})
    finally:
        service.queue.close("the test is over")
    service.ended().checked()
    assert (status, missing) == (200, 404)
    assert answer["classes"] == list(NAMES)
    probabilities = np.array(answer["probabilities"])
    expected = service.model.predict(rows(1).columns[:, [7, 0, 7]]).T
    assert probabilities == pytest.approx(expected, abs=1e-3)
    assert answer["predictions"] == [NAMES[k] for k in np.argmax(probabilities, axis=1)]


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [
        (2, r"has 3 values, 'ash' \(row \d+\), .* agreed on 2 .* set classes = 3 in every"),
        (4, "agreed on 4 classes; set classes = 3 .* or get rows of those that are missing"),
    ],
)
def test_label_with_another_class_count_is_rejected(
    local: LocalFederation, classes: int, complaint: str
) -> None:
    """The label holder fails before connecting, with an error that says how to fix it."""
    change(local.job_path, ("classes = 3", f"classes = {classes}"))
    error = run(local, "train").errors["shop"]
    assert isinstance(error, DataError)
    assert error.exit_code == 4
    with pytest.raises(DataError, match=complaint):
        raise error


def test_class_count_is_an_agreed_setting(local: LocalFederation) -> None:
    """All members compare it."""
    job = Job.read(local.job_path)
    assert job.list_agreed_settings()["classes"] == 3
    assert job.digest != job.model_copy(update={"classes": 4}).digest


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("classes = 3", "classes = 1", "classes: .* greater than or equal to 2"),
        ("classes = 3", "classes = 33", "classes: .* less than or equal to 32"),
        ("classes = 3", 'classes = 3\nprotocol = "paper"', "classes: the protocol paper has two"),
        ('task = "classification"', 'task = "regression"', "classes: a regression is not one of 3"),
        ("classes = 3\n[params]", "[params]\nclasses = 3", "params.classes: is a key of the job"),
    ],
)
def test_invalid_jobs_are_rejected(
    local: LocalFederation, old: str, new: str, complaint: str
) -> None:
    change(local.job_path, (old, new))
    with pytest.raises(ParameterError, match=complaint):
        Job.read(local.job_path)


def test_recipient_checks_the_number_of_class_names(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(local.job_path, ("classes = 3", 'classes = 3\nrecipient = "bank"'))
    run(local, "train").checked()
    monkeypatch.setattr(
        "privet.federation.prediction.prediction.pack_texts", lambda names: pack_texts(names[:2])
    )
    error = run(local, "predict").errors["bank"]
    assert isinstance(error, PeerMisbehavedError)
    assert "shop: told what are no names of classes" in str(error)


def test_table_has_three_classes(local: LocalFederation) -> None:
    """Check the test table itself."""
    frame = read_frame(local.folder / "shop" / "train.csv", id="id", label="label")
    assert frame.label_schema.categories is not None
    assert sorted(frame.label_schema.categories) == list(NAMES)
