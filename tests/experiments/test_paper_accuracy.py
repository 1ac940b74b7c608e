"""The paper's protocol matches plaintext training on the paper's data, with its parameters.

The runs have fewer tables than in the paper, to save time; docs/paper.md contains the full runs and
their commands.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from privet import DataSet, Experiment, run


@pytest.mark.parametrize(
    ("name", "tables", "depth"),
    [
        ("california", 1, 5),
        pytest.param("credit", 1, 4, marks=pytest.mark.slow),
        ("breast-cancer", 5, 3),
    ],
)
def test_metrics_match_plaintext(
    name: str, tables: int, depth: int, real_data: Callable[[str], DataSet]
) -> None:
    real_data(name)  # or skip
    params = {"tables": tables, "depth": depth, "buckets": 32, "l2": 1.0, "learning_rate": 1.0}
    if name != "california":
        params["base_score"] = 0.0  # as in the paper: its sigmoid is best there
    experiment = Experiment(
        data=name, n_parties=4, protocol="paper", network="memory", params=params
    )
    report = run(experiment)[1]
    # The largest allowed deterioration. Features that divide the training rows alike tie exactly in
    # plaintext, but here the last random bit decides, so one or two splits differ from run to run;
    # on the 114 test rows of breast-cancer, two rows are 1.8 points.
    bounds = {"rmse": 0.02, "mae": 0.02, "r2": 0.02, "auc": 0.005, "accuracy": 0.01}
    bounds |= {"ks": 0.02, "average_precision": 0.01, "log_loss": 0.02, "brier": 0.01}
    smaller = ("rmse", "mae", "log_loss", "brier")
    for metric, value in report.metrics.items():
        plain = report.plain_metrics[metric]
        assert value is not None
        assert plain is not None
        worse = value - plain if metric in smaller else plain - value
        assert worse <= bounds[metric], metric
