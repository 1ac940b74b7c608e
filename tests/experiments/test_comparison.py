from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privet import (
    Comparison,
    DataSet,
    Experiment,
    ParameterError,
    Scenario,
    UnavailableError,
    compare,
    load_dataset,
    run,
)
from privet.data.partition import split_rows
from privet.experiments.comparison import ComparisonProgress, compute_interval, make_groups
from privet.experiments.plots import check_plot_path, plot_comparison

FEW = {"tables": 6, "depth": 3, "buckets": 8}
COLUMNS = {"shop": ["spent", "visits"], "spa": ["luck*"], "bank": ["age"]}


def write(path: Path, columns: dict[str, Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shop has the signal, the spa noise, and the bank, the label holder, a weak signal."""
    rng = np.random.default_rng(7)
    age, spent, visits, luck1, luck2 = rng.normal(size=(5, 1500))
    score = 0.4 * age + 1.5 * spent - visits
    label = (rng.random(1500) < 1 / (1 + np.exp(-score))).astype(int)
    columns = {"age": age, "spent": spent, "visits": visits, "luck1": luck1, "luck2": luck2}
    return write(tmp_path_factory.mktemp("data") / "people.csv", {**columns, "label": label})


@pytest.fixture(scope="module")
def comparison(people: str) -> Comparison:
    return compare(Scenario(data=people, columns=COLUMNS, params=FEW))


def test_confidence_interval() -> None:
    """Mean 0.82, S = 0.02, t of 2 degrees of freedom 4.302653, variance (1/3 + 1/4) S^2."""
    mean, low, high = compute_interval([0.80, 0.84, 0.82], 0.25)
    half = 4.302653 * 0.02 * math.sqrt(7 / 12)
    assert mean == pytest.approx(0.82, abs=1e-12)
    assert (low, high) == pytest.approx((0.82 - half, 0.82 + half), abs=1e-8)
    # Without test rows it is the usual t interval.
    usual = stats.t.interval(0.95, 2, 0.82, stats.sem([0.80, 0.84, 0.82]))
    assert compute_interval([0.80, 0.84, 0.82], 0.0)[1:] == pytest.approx(usual)
    assert compute_interval([0.5, 0.5], 0.25) == (0.5, 0.5, 0.5)


def test_groups() -> None:
    assert make_groups({"a": ("x",), "b": ("y",), "c": ()}) == [
        ("c",),
        ("a", "c"),
        ("b", "c"),
        ("a", "b", "c"),
    ]
    assert make_groups({"a": ("x",), "b": ("y",)}) == [
        ("b",),
        ("a", "b"),
    ]  # the pair is also the group of all


def test_signal_and_noise_are_distinguished(comparison: Comparison) -> None:
    alone, shop, spa, all_three = comparison.groups
    assert [comparison.describe(group) for group in comparison.groups] == [
        "bank alone",
        "bank + shop",
        "bank + spa",
        "all 3",
    ]
    assert [group.n_columns for group in comparison.groups] == [1, 3, 3, 5]
    assert alone.gains == {}
    for metric in ("auc", "accuracy"):
        signal, noise, joint = (g.gains[metric] for g in (shop, spa, all_three))
        assert signal.low is not None
        assert joint.low is not None
        assert noise.low is not None
        assert noise.high is not None
        assert signal.low > 0.05
        assert joint.low > 0.05
        assert noise.low < 0 < noise.high


def test_gains_are_paired_over_splits(comparison: Comparison) -> None:
    """Each gain is a difference on the same test rows; the interval is that of the differences."""
    alone, shop, *_ = comparison.groups
    assert (comparison.n_samples, comparison.n_test_samples) == (1200, 300)
    assert comparison.seeds == [0, 1, 2, 3, 4]
    assert comparison.stratified
    for metric, gain in shop.gains.items():
        pairs = zip(shop.metrics[metric].splits, alone.metrics[metric].splits, strict=True)
        sign = -1 if metric in comparison.errors else 1
        differences = [sign * (a - b) for a, b in pairs if a is not None and b is not None]
        assert gain.splits == differences
        assert (gain.mean, gain.low, gain.high) == compute_interval(differences, 300 / 1200)


def test_splits_match_experiments(people: str, comparison: Comparison) -> None:
    experiment = Experiment(data=people, columns=COLUMNS, protocol="plain", params=FEW)
    for number, seed in enumerate(comparison.seeds[:2]):
        report = run(experiment.model_copy(update={"seed": seed}))[1]
        all_metrics = {name: m.splits[number] for name, m in comparison.groups[-1].metrics.items()}
        assert all_metrics == report.metrics


def test_gain_of_an_error_metric_is_its_decrease(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300))
    path = write(tmp_path / "t.csv", {"a": a, "b": b, "label": 3 * a + b})
    columns = {"shop": ["a"], "bank": ["b"]}
    comparison = compare(Scenario(data=path, columns=columns, params=FEW), splits=3)
    alone, both = comparison.groups
    assert (comparison.metric, comparison.errors, comparison.stratified) == (
        "rmse",
        ["mae", "rmse"],
        False,
    )
    splits = (alone.metrics["rmse"].splits, both.metrics["rmse"].splits, both.gains["rmse"].splits)
    for before, after, gain in zip(*splits, strict=True):
        assert before is not None
        assert after is not None
        assert gain == before - after > 1


def test_label_holder_without_columns_predicts_the_mean() -> None:
    columns = {"clinic": ["mean*", "worst*", "*error"], "registry": []}
    scenario = Scenario(data="breast-cancer", columns=columns, params=FEW)
    progress: list[ComparisonProgress] = []
    comparison = compare(scenario, 2, progress.append)
    alone, both = comparison.groups
    assert alone.n_columns == 0
    assert alone.metrics["auc"].splits == [0.5, 0.5]
    frame = load_dataset("breast-cancer").frame
    majority = [np.mean(split_rows(frame, 0.2, seed)[1].label == 1.0) for seed in (0, 1)]
    assert alone.metrics["accuracy"].splits == pytest.approx(majority)
    assert both.gains["auc"].low is not None
    assert both.gains["auc"].low > 0.3  # with only two splits, the interval is wide
    assert progress[0].n_trainings == 2  # the mean requires no training run


def test_progress_is_reported(people: str) -> None:
    reports: list[ComparisonProgress] = []
    compare(Scenario(data=people, columns=COLUMNS, params=FEW), 2, reports.append)
    assert reports[0] == ComparisonProgress(n_trainings=8, n_done=0, fraction=0.0)
    assert reports[-1] == ComparisonProgress(n_trainings=8, n_done=8, fraction=1.0)
    fractions = [progress.fraction for progress in reports]
    assert fractions == sorted(fractions)
    assert len(set(fractions)) == 1 + 8 * 6
    # 1, 3, 3 and 5 columns: the first training run is 1/12 of a split, which is half of the work.
    assert next(p.fraction for p in reports if p.n_done == 1) == pytest.approx(1 / 24)


def test_metric_that_is_undefined_in_a_split(tmp_path: Path) -> None:
    """2 of 40 rows have one class: without stratification, 4 test rows can contain none of them."""
    values = np.arange(40.0)
    path = write(
        tmp_path / "t.csv", {"a": values, "b": values[::-1], "label": (values < 2).astype(int)}
    )
    scenario = Scenario(data=path, n_parties=2, test_size=0.1, stratify=False, params=FEW)
    comparison = compare(scenario, splits=3)
    both = comparison.groups[-1]
    assert None in both.metrics["auc"].splits
    for measured in (both.metrics["auc"], both.gains["auc"]):
        assert (measured.mean, measured.low, measured.high) == (None, None, None)
    assert both.metrics["accuracy"].mean is not None


def test_report_round_trip(comparison: Comparison, tmp_path: Path) -> None:
    comparison.write(tmp_path / "c.json")
    content = (tmp_path / "c.json").read_bytes()
    assert Comparison.model_validate_json(content) == comparison
    assert b"NaN" not in content
    assert comparison.columns == {
        "shop": ["spent", "visits"],
        "spa": ["luck1", "luck2"],
        "bank": ["age"],
    }


def test_too_few_splits_are_rejected(people: str) -> None:
    with pytest.raises(ParameterError, match="splits: an interval takes at least 2, got 1"):
        compare(Scenario(data=people, columns=COLUMNS), splits=1)


@pytest.mark.parametrize("suffix", ["svg", "png", "PNG"])
def test_plot(comparison: Comparison, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"figure.{suffix}"
    plot_comparison(comparison, path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix.lower() == "png" else b"<?xml")
    if suffix == "svg":
        assert b"bank + shop (3 columns)" in content
        plot_comparison(comparison, tmp_path / "again.svg")
        assert (tmp_path / "again.svg").read_bytes() == content


def test_invalid_plot_paths_are_rejected(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParameterError, match=r"plot: .*figure.pdf ends in none of .svg, .png"):
        plot_comparison(comparison, tmp_path / "figure.pdf")
    with pytest.raises(UnavailableError, match="not a directory"):
        check_plot_path(tmp_path / "no" / "figure.svg")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'privet\[plot\]'"):
        check_plot_path(tmp_path / "figure.svg")


def test_credit_data_set(real_data: Callable[[str], DataSet]) -> None:
    """In the Credit data set, the payment history is the most useful information."""
    real_data("credit")
    columns = {
        "club": ["SEX", "EDUCATION", "MARRIAGE", "AGE"],
        "bureau": ["PAY_?"],
        "bank": ["LIMIT_BAL", "BILL*", "PAY_AMT*"],
    }
    params = {"tables": 5, "depth": 4}
    comparison = compare(Scenario(data="credit", columns=columns, params=params), splits=3)
    lower_ends = {
        comparison.describe(group): group.gains["auc"].low for group in comparison.groups[1:]
    }
    assert lower_ends["bank + bureau"] is not None
    assert lower_ends["bank + club"] is not None
    assert lower_ends["bank + bureau"] > 0.02 > lower_ends["bank + club"]
