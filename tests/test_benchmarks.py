"""Benchmarks that write JSON: small runs, and detection of errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import (
    boosters,
    dealers,
    growth,
    homomorphic,
    many_rows,
    masks,
    multiclass,
    options,
    same_tests,
    secretflow,
)
from benchmarks.evidence import page
from benchmarks.evidence.kept import keep, read
from benchmarks.evidence.processor import train_timed
from benchmarks.public_data import load

from privet import Params, load_dataset
from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_locally
from privet.data.partition import split_frame
from privet.runtime.accounting import Meter

PARAMS = Params(task="classification", tables=2, depth=3, buckets=8, learning_rate=1.0)


def cancer(rows: int, parties: int = 2) -> tuple[list[Any], Any]:
    frame = load_dataset("breast-cancer").frame.take(np.arange(rows))
    frame = frame.select(frame.names[:6])
    columns = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, PARAMS.buckets)
        for party in split_frame(frame, parties)
    ]
    return columns, frame.label


def test_reference_does_not_differ_from_itself() -> None:
    parties, label = cancer(300)
    model = train_locally(parties, label, PARAMS)
    buckets = np.concatenate([party.buckets for party in parties])
    found = list(same_tests.follow(model, buckets, label, PARAMS))
    assert [place for place, _ in found] == list(np.ndindex(2, 3))
    assert all(chosen == 0.0 and not differs for _, (_, chosen, differs) in found)
    assert all(runner_up > 0.0 for _, (runner_up, _, _) in found)


def test_worse_split_is_detected() -> None:
    scores = -np.array([[8.0, 4.0, 8.0 * (1 - 1e-7)], [8.0, 1.0, 2.0]])
    # The first cut of the second feature splits rows as that of the first one, with sides swapped.
    buckets = np.array([[0, 1, 2, 3], [1, 0, 0, 0]], dtype=np.uint8)
    judged = [same_tests.judge(scores, buckets, test) for test in ((0, 0), (1, 0), (0, 2), (0, 1))]
    assert [differs for _, _, differs in judged] == [False, False, True, True]
    assert [chosen for _, chosen, _ in judged] == pytest.approx([0, 0, 1e-7, 0.5])
    assert [runner_up for runner_up, _, _ in judged] == pytest.approx([1e-7] * 4)
    levels = [same_tests.Level("made", 0, 0, n, *found) for n, found in enumerate(judged)]
    summary = same_tests.summary(levels)
    assert (summary["differ"], summary["close"], summary["too_far"]) == (2, 4, 1)


def test_masked_training_is_compared_with_the_reference(tmp_path: Path) -> None:
    levels = list(same_tests.levels_of("breast-cancer", 0, PARAMS, rows=100))
    found = same_tests.summary(levels)
    assert (found["levels"], found["too_far"]) == (6, 0)
    sets = [{"data": "breast-cancer", "seeds": 1, **found}]
    figures = {"close": 3e-6, "run_seconds": 1.0, "sets": sets, "all": found}
    kept = keep(tmp_path / "same-tests.json", figures, "make bench-same-tests")
    assert "| breast-cancer | 1 | 6 |" in "\n".join(same_tests.section(kept))


def test_several_classes_are_compared_with_catboost(tmp_path: Path) -> None:
    found = multiclass.compare(load("digits-10"), splits=1, quick=True)
    assert found["masked"]["same_tests"] == 1.0
    assert set(found["metrics"]) == {"ours", "MultiClass", "MultiClassOneVsAll"}
    better = max(multiclass.mean(found, name, "accuracy") for name in multiclass.CATBOOST)
    ours = multiclass.mean(found, "ours", "accuracy")
    assert multiclass.behind(found) == pytest.approx(better - ours)
    costs = [multiclass.cost(classes) for classes in (2, 3)]
    figures = {"sets": [found], "costs": costs, "run_seconds": 1.0}
    kept = keep(tmp_path / "multiclass.json", figures, "make bench-multiclass")
    lines = list(multiclass.section(kept))
    assert any(line.startswith("| digits-10 | 1,797 | 10 | 0.") for line in lines)
    assert any(line.startswith("| 3 | ") for line in lines)


def test_boosters_are_compared_split_by_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # CatBoost twice, so that the test does not need LightGBM.
    monkeypatch.setitem(boosters.LEARNERS, "LightGBM", boosters.catboost)
    if not (Path(os.environ.get("PRIVET_DATA", "")) / "raw").is_dir():
        pytest.skip("raw is not in PRIVET_DATA: boosters are NOT compared")
    sets = [
        boosters.compare(load(name), splits=2, checked=1, quick=True)
        for name in ("diabetes", "breast-cancer", "dry-bean-7")
    ]
    for found, metrics in zip(
        sets, (["rmse"], ["auc", "log_loss"], ["accuracy", "log_loss"]), strict=True
    ):
        assert found["masked"]["same_tests"] == 1.0
        ours, theirs = (found["metrics"][name] for name in ("ours", "CatBoost"))
        for metric in metrics:
            sign = -1 if metric in ("rmse", "log_loss") else 1
            gains = [sign * (a[metric] - b[metric]) for a, b in zip(ours, theirs, strict=True)]
            assert boosters.better(found, "CatBoost", metric) == gains
            assert boosters.better(found, "LightGBM", metric) == gains
    kept = keep(
        tmp_path / "boosters.json", {"sets": sets, "run_seconds": 1.0}, "make bench-boosters"
    )
    lines = list(boosters.section(kept))
    assert any(line.startswith("| breast-cancer | 569 | 30 | AUC | 0.9") for line in lines)


def test_lightgbm_learns() -> None:
    pytest.importorskip("lightgbm")
    data = load("breast-cancer")
    assert data.frame.label is not None
    predicted = boosters.lightgbm(data.frame, data.frame, PARAMS, 0)
    assert boosters.metrics(data, data.frame.label, predicted)["auc"] > 0.95


def test_metrics_of_predictions() -> None:
    data, label = load("diabetes"), load("diabetes").frame.label
    assert label is not None
    assert boosters.metrics(data, label, np.full(len(label), label.mean()))["rmse"] == 1.0
    two = load("breast-cancer")
    half = np.full((2, 2), 0.5)
    assert boosters.metrics(two, np.array([0.0, 1.0]), half) == pytest.approx(
        {"auc": 0.5, "log_loss": np.log(2)}
    )


def test_options_are_counted_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [o for o in options.OPTIONS if o is options.BASE or o.weighted or o.explains]
    monkeypatch.setattr(options, "OPTIONS", chosen)
    monkeypatch.setattr(options, "REPEATED", 2)
    task = options.task_of("breast-cancer", rows=60)
    found = options.measure(task, tables=1, times=1)  # raises where counts and meters differ
    base, weighted, explained = found["training"]
    assert base["rounds"] < weighted["rounds"]
    assert base["rounds"] < explained["rounds"]
    plain, by_feature, by_participant = found["prediction"]
    assert plain["online"] < by_participant["online"] < by_feature["online"]
    figures = {"sets": [found], "timed_tables": 1, "times": 1, "new_rows": 9, "run_seconds": 1.0}
    kept = keep(tmp_path / "options.json", figures, "make bench-options")
    assert any(line.startswith("|  | weights | ") for line in options.section(kept))


def test_difference_of_counts_and_meters_is_an_error() -> None:
    meter = Meter()
    meter.online["table"].rounds = 4
    counted = {"rounds": 2, "online": 0, "offline": 0}
    options._check("twice", counted, [meter], times=2)
    with pytest.raises(ArithmeticError, match="once: counted"):
        options._check("once", counted, [meter])


def test_counts_match_a_training_run(tmp_path: Path) -> None:
    sizes = {**growth.TIMED, "samples": 60, "features": 4, "buckets": 4, "parties": 2}
    found = growth.clock(sizes, "masked", times=1)  # raises where counts and meters differ
    assert found["seconds"] > 0
    counted = growth.sweep(growth.count, sizes, {"parties": (2, 3)})
    (two,) = [r for r in counted if (r["value"], r["protocol"]) == (2, "masked")]
    assert two.items() > growth.count(sizes, "masked").items()
    timed = [{"by": "parties", "value": 2, "protocol": "masked", **found}]
    rows = {"counted_sizes": sizes, "counted": counted, "timed_sizes": sizes, "timed": timed}
    figures = {**rows, "times": 1, "run_seconds": 1.0}
    kept = keep(tmp_path / "growth.json", figures, "make bench-growth")
    growth.draw(tmp_path / "growth", kept)
    assert (tmp_path / "growth.svg").exists()
    assert "| n = 3 | " in "\n".join(growth.section(kept))


def test_every_process_is_timed() -> None:
    parties, label = cancer(60)
    federated, seconds = train_timed(parties, label, PARAMS, "masked", network="loopback")
    assert len(federated.parts) == 2
    assert len(seconds) == 3
    assert min(seconds) > 0


def test_sgb_tree() -> None:
    parties, _ = cancer(200)
    buckets = np.concatenate([party.buckets for party in parties])
    rng = np.random.default_rng(1)
    g, h = rng.normal(size=(1, 200)), np.ones((1, 200))
    nodes = secretflow._tree(buckets, g, h, PARAMS)
    assert nodes.shape == (3, 200)
    for level in range(3):
        assert set(np.unique(nodes[level])) <= set(range(1 << level))
        assert level == 0 or (nodes[level] // 2 == nodes[level - 1]).all()
        sizes = np.bincount(nodes[level], minlength=1 << level)
        for k in homomorphic._smaller(nodes[level], level):
            assert level == 0 or sizes[k] <= sizes[k ^ 1]
    sums = homomorphic._exact(np.stack((g[0], h[0]), 1), nodes[1] == 1, buckets.T, 8)
    assert sums.shape == (len(buckets) * 8, 2)
    last = sums.reshape(len(buckets), 8, 2)[:, -1]
    assert last == pytest.approx(
        np.tile([g[0, nodes[1] == 1].sum(), (nodes[1] == 1).sum()], (6, 1))
    )


def test_missing_package_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parties, label = cancer(60)
    assert secretflow._sgb("/no/python", parties, label, PARAMS) is None
    assert "needs the package sf-heu" in capsys.readouterr().err
    assert secretflow._sgb(sys.executable, parties, label, PARAMS) is None
    assert "sf-heu is not installed" in capsys.readouterr().err


def test_results_are_stored_with_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "results" / "made.json"
    found = keep(path, {"answer": 42}, "make bench-made")
    assert found == read(path)
    assert (found["answer"], found["command"]) == (42, "make bench-made")
    assert all(found[name] for name in ("date", "version", "python", "numpy", "machine"))


def test_page_has_the_sections_of_benchmarks(tmp_path: Path) -> None:
    ways = {"processor_seconds": {"add": 1.0}, "wall_seconds": {"add": 1.0}, "bytes": {"sums": 9}}
    sgb = {"sf_heu": "0", "key_bits": 2048, "trees": 1, "keys_seconds": 1.0, "fraction_bits": 20}
    table = {"processor_seconds": 1.0, "bytes": 9, "dealt_bytes": 9, "rounds": 9}
    sizes = {"samples": 9, "features": 2, "parties": 4, "buckets": 4, "depth": 2}
    figures = {
        **sizes,
        "sgb": {**sgb, "ways": {"together": ways, "apart": ways}},
        "ours": {"tables": 1, "per_table": table, "setup_bytes": 9},
    }
    keep(tmp_path / "secretflow.json", figures, "make bench-secretflow")
    page.write(tmp_path, tmp_path / "page.md", [], quick=False)
    assert "## Beside SecretFlow's SGB\n" in (tmp_path / "page.md").read_text()


def test_dealers_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = {way: ("memory", ahead) for way, (_, ahead) in dealers.WAYS.items()}
    monkeypatch.setattr(dealers, "WAYS", in_memory)
    task = options.task_of("breast-cancer", rows=60)
    found = dealers.measure(task, tables=1)  # raises where counts and meters differ
    assert [run["dealers"] for run in found["runs"]] == [1, 1, 1, 3, 3, 3]
    assert {run["same_tests"] for run in found["runs"]} == {found["runs"][0]["tests"]}
    kept = keep(
        tmp_path / "dealers.json",
        {"sets": [found], "cores": 1, "run_seconds": 1.0},
        "make bench-dealers",
    )
    assert any(line.startswith("|  | 3 | ") for line in dealers.section(kept))


def test_masks_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "NETWORK", "memory")
    params = Params(task="regression", tables=1, depth=2)
    found = masks.measure("made", *masks.made(300), params)  # raises if counts and meters differ
    assert [run["same_tests"] for run in found["runs"]] == [2, 2]
    figures = {"sets": [found], "cores": 1, "run_seconds": 1.0}
    kept = keep(tmp_path / "masks.json", figures, "make bench-masks")
    assert any(line.startswith("|  | lattice | 2 of 2 | ") for line in masks.section(kept))
    of_many = [line for line in many_rows.section(kept) if line.startswith("| made, 300 x 20 |")]
    assert len(of_many) == 2
