"""Raw tables in a federation: text, dates, named classes, Parquet and CSV dialects."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from privet.cli.app import app
from privet.data.encoding import encode_frame
from privet.data.reader import read_frame
from privet.errors import DataError
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part
from tests.federation.harness import change, model_of, prepare, run

N_ROWS, N_NEW = 120, 9


def _write(local: LocalFederation, seed: int, count: int, file: str) -> dict[str, list[object]]:
    """Write the bank's table as a Parquet folder, and the shop's as a CSV file in Latin-1."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["cook", "clerk", "smith", "?"], count, p=[0.5, 0.3, 0.15, 0.05])
    age = rng.integers(18, 90, count)
    opened = np.datetime64("2020-01-01") + rng.integers(0, 900, count)
    city = rng.choice(["Zürich", "Bern; BE", "Chur"], count)
    spent = np.round(rng.normal(size=count) * 100, 2)
    score = (job == "clerk") * 2.0 + (age > 50) - (city == "Chur") + spent / 100
    ids = [f"{seed}-{i}" for i in range(count)]
    folder = local.folder / "bank" / file
    folder.mkdir(parents=True)
    table = pa.table({"customer": ids, "job": job, "age": age, "opened": opened})
    half = count // 2
    pq.write_table(table.slice(0, half), folder / "1.parquet")
    pq.write_table(table.slice(half), folder / "2.parquet")
    with (local.folder / "shop" / f"{file}.csv").open("w", newline="", encoding="latin-1") as out:
        writer = csv.writer(out, delimiter=";", lineterminator="\r\n")
        writer.writerow(["number", "city", "spent", "left"])
        for row in range(count):
            amount = f"{spent[row]:.2f}".replace(".", ",")
            writer.writerow([ids[row], city[row], amount, "gone" if score[row] > 0.5 else "here"])
    return {"ids": list(ids), "job": list(job), "city": list(city)}


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    found = prepare(tmp_path, tables=4)
    _write(found, 1, N_ROWS, "customers")
    _write(found, 2, N_NEW, "prospects")
    bank, shop = (found.folder / name / "party.toml" for name in ("bank", "shop"))
    change(
        bank,
        ('path = "train.csv"', 'path = "customers"'),
        ('id = "id"', 'id = "customer"\nmissing = { job = ["?"] }'),
    )
    change(
        shop,
        ('path = "train.csv"', 'path = "customers.csv"'),
        ('id = "id"', 'id = "number"\nencoding = "latin-1"\ndecimal = ","\npositive = "gone"'),
        ('label = "label"', 'label = "left"'),
    )
    return found


def _predict(local: LocalFederation) -> bytes:
    tables = {"bank": "prospects", "shop": "prospects.csv"}
    found = run(local, "predict", tables=tables).checked()
    (predictions,) = [found[name][1] for name in local.party_names if found[name][1] is not None]
    text: bytes = predictions.to_csv()
    return text


@pytest.mark.parametrize("recipient", ["bank", "shop"])
def test_training_and_prediction_on_raw_tables(local: LocalFederation, recipient: str) -> None:
    change(local.job_path, ("[params]", f'recipient = "{recipient}"\n[params]'))
    trained = run(local, "train")
    trained.checked()
    texts = [event.text for event in trained.events["shop"] if event.kind == "classes"]
    assert texts == ["of the label, 'here' is 0 and 'gone' is 1 (positive, in party.toml)"]
    bank, shop = (load_part(local.get_part_path(name)) for name in ("bank", "shop"))
    assert [encoder.column_type.name for encoder in bank.encoders] == ["category", "number", "date"]
    assert bank.encoders[0].categories == ("cook", "clerk", "smith")
    assert (bank.classes, shop.classes) == ((), ("here", "gone"))

    lines = list(csv.reader(_predict(local).decode().splitlines()))
    assert lines[0] == ["id", "class", "probability of here", "probability of gone"]
    new = [
        encode_frame(
            read_frame(local.folder / "bank" / "prospects", id="customer", missing={"job": ["?"]}),
            bank.encoders,
        ),
        encode_frame(
            read_frame(
                local.folder / "shop" / "prospects.csv",
                id="number",
                label="left",
                encoding="latin-1",
                decimal=",",
            ),
            shop.encoders,
        ),
    ]
    expected = model_of(local).predict(np.concatenate([frame.columns for frame in new]))
    np.testing.assert_allclose([float(line[3]) for line in lines[1:]], expected, atol=1e-3)
    assert [line[1] for line in lines[1:]] == ["gone" if p >= 0.5 else "here" for p in expected]


def test_class_names_are_in_the_disclosure_ledger(local: LocalFederation) -> None:
    change(local.job_path, ("[params]", 'recipient = "bank"\n[params]'))
    run(local, "train").checked()
    found = run(local, "predict", tables={"bank": "prospects", "shop": "prospects.csv"}).checked()
    for name in local.party_names:
        disclosures = [(reveal.what, reveal.to) for reveal in found[name][0].reveals]
        assert ("names of the classes", ["bank"]) in disclosures


def test_inspect_shows_categories_of_local_splits(local: LocalFederation) -> None:
    run(local, "train").checked()
    shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path("bank"))])
    assert shown.exit_code == 0
    assert "job is " in shown.output


def test_changed_column_type_is_reported(local: LocalFederation) -> None:
    run(local, "train").checked()
    path = local.folder / "bank" / "prospects"
    for file in path.iterdir():
        table = pq.read_table(file)
        changed = table.set_column(3, "opened", pa.array(range(len(table))))
        pq.write_table(changed, file)
    ended = run(local, "predict", tables={"bank": "prospects", "shop": "prospects.csv"})
    error = ended.errors["bank"]
    assert isinstance(error, DataError)
    assert "column 'opened' holds int64, and date was expected" in str(error)


def test_table_warnings_are_emitted(local: LocalFederation) -> None:
    path = local.folder / "shop" / "customers.csv"
    header, *lines = path.read_bytes().decode("latin-1").split("\r\n")[:-1]
    table = [f"{header};account", *(f"{line};{1000 + i}" for i, line in enumerate(lines))]
    path.write_bytes("\r\n".join(table).encode("latin-1"))
    trained = run(local, "train")
    trained.checked()
    (warning,) = [event.text for event in trained.events["shop"] if event.kind == "warning"]
    assert "column 'account' holds another whole number in each of 120 rows" in warning
