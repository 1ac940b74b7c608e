from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import DataError, ModelError, ParameterError
from privet.arithmetic.rings import Z64, signed
from privet.arithmetic.shares import Share
from privet.objectives.base import Objective, SharedFixedPoint, SharedFunctions
from privet.objectives.classification import compute_sigmoid
from privet.objectives.metrics import choose_likeliest_class, list_class_probabilities
from privet.objectives.regression import OBJECTIVES, create_objective, create_objective_with_outputs

REGRESSION, CLASSIFICATION = OBJECTIVES["regression"], OBJECTIVES["classification"]
THREE = create_objective("classification", 3)
ALL = pytest.mark.parametrize(
    "objective", [*OBJECTIVES.values(), THREE], ids=[*OBJECTIVES, "three classes"]
)


@pytest.mark.parametrize(
    ("label", "objective", "complaint"),
    [
        ([1.0], REGRESSION, "1 row.*at least 2"),
        ([], REGRESSION, "0 row"),
        ([1.0, np.nan, np.nan], REGRESSION, r"row 2 is nan.*\(2 of 3"),
        ([0.0, 1.0, np.inf], CLASSIFICATION, "row 3 is inf"),
        ([3.0, 3.0], REGRESSION, "constant, 3, in all 2 rows"),
        ([3.0, -1e101], REGRESSION, "row 2 is -1e.101; above 1e.100"),
        ([1.0, 1.0, 1.0], CLASSIFICATION, "single class"),
        ([0.0, 1.0, 2.0], CLASSIFICATION, "row 3 is 2; .* needs 0 and 1"),
        ([0.0, 1.0, 2.0, 3.0], THREE, "row 4 is 3; 3 classes are 0 to 2"),
        ([0.0, 1.5, 2.0], THREE, "row 2 is 1.5; 3 classes are 0 to 2"),
        ([0.0, 2.0, 2.0], THREE, "no row of 3 has the label 1"),
    ],
)
def test_invalid_labels_are_refused(
    label: list[float], objective: Objective, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        objective.check_label(np.array(label))


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_a_label_is_one_column(objective: Objective) -> None:
    with pytest.raises(DataError, match=r"one column, not of shape \(3, 2\)"):
        objective.check_label(np.ones((3, 2)))
    objective.check_label(np.array([0.0, 1.0, 1.0]))


@ALL
@given(st.floats(-20, 20), st.sampled_from([0.0, 1.0]))
def test_gradients_are_the_derivatives_of_the_loss(
    objective: Objective, score: float, label: float
) -> None:
    target = objective.make_targets(np.array([label]))
    step = 1e-5

    def at(x: float) -> tuple[float, float]:
        scores = np.full(target.shape, score)
        scores[0] = x
        g, _ = objective.compute_gradients(scores, target)
        return objective.compute_mean_loss(scores, target), g[0, 0]

    g, h = objective.compute_gradients(np.full(target.shape, score), target)
    assert g.shape == h.shape == target.shape == (objective.n_outputs, 1)
    (loss_up, g_up), (loss_down, g_down) = at(score + step), at(score - step)
    # A central difference is off by step^2/6 times the third derivative of the loss (at most 0.1),
    # and by the rounding of the loss (at most 400, in double precision) over 2 * step.
    rounding = 2**-53 * 400 * objective.n_outputs / step
    assert abs((loss_up - loss_down) / (2 * step) - g[0, 0]) <= step**2 / 60 + rounding
    assert abs((g_up - g_down) / (2 * step) - h[0, 0]) <= step**2 / 6 + rounding


def test_sigmoid_does_not_overflow() -> None:
    with np.errstate(all="raise"):
        assert compute_sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_initial_scores() -> None:
    assert REGRESSION.compute_initial_scores(np.array([1.0, 2.0, 6.0])).tolist() == [3.0]
    assert REGRESSION.compute_initial_scores(
        np.array([1.0, 2.0, 6.0]), np.array([0.0, 3.0, 1.0])
    ).tolist() == [3.0]
    # Summed exactly, in any order, even with cancellation.
    assert REGRESSION.compute_initial_scores(np.array([1e16, 1.0, -1e16, 1.0])).tolist() == [0.5]
    label = np.array([0.0, 1.0, 1.0])
    assert CLASSIFICATION.compute_initial_scores(label) == pytest.approx([np.log(2)])
    assert CLASSIFICATION.compute_initial_scores(label, np.array([6.0, 1.0, 0.0])) == pytest.approx(
        [-np.log(6)]
    )
    # A class of weight zero has a score that protocols can compute with.
    assert CLASSIFICATION.compute_initial_scores(label, np.array([0.0, 1.0, 1.0])).tolist() == [
        12.0
    ]


class Plain(SharedFunctions):
    """Functions on a single participant's shares, which are the values."""

    bits = 40

    def evaluate_sigmoid(
        self, score: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        p = compute_sigmoid(decoded(score))
        return real(p, self.bits), real(p * (1 - p), self.bits)


def real(values: np.ndarray, bits: int) -> SharedFixedPoint:
    whole = np.rint(values * 2.0**bits).astype(np.int64)
    return SharedFixedPoint(Share(whole.view(np.uint64), Z64), bits)


def decoded(x: SharedFixedPoint) -> np.ndarray:
    return signed(x.share.part) / 2.0**x.fraction_bits


@ALL
@pytest.mark.parametrize("bits", [(26, 26), (26, 30), (30, 26)])
def test_gradients_on_shares_equal_those_in_plaintext(
    objective: Objective, bits: tuple[int, int]
) -> None:
    """Within rounding, for any fraction bits of scores and targets."""
    rng = np.random.default_rng(0)
    target = objective.make_targets((rng.random(200) < 0.5).astype(float))
    score = rng.normal(scale=4, size=target.shape)
    shared = objective.compute_shared_gradients(
        Plain(), real(score, bits[0]), real(target, bits[1])
    )
    plain = objective.compute_gradients(score, target)
    assert (shared[1] is None) == objective.constant_hessian
    for found, exact in zip(shared, plain, strict=True):
        if found is None:
            assert (exact == 1).all()
        else:
            assert found.fraction_bits >= min(bits)
            assert np.abs(decoded(found) - exact).max() <= 2.0**-26 + 2.0**-40


def test_subtraction_of_different_fraction_bits() -> None:
    x, y = real(np.array([1.5, -2.25]), 4), real(np.array([0.125, 3.0]), 10)
    for difference, exact in ((x - y, [1.375, -5.25]), (y - x, [-1.375, 5.25])):
        assert difference.fraction_bits == 10
        assert decoded(difference).tolist() == exact
    assert x.rescale(4) is x.share
    assert signed(x.rescale(6).part).tolist() == [96, -144]


@ALL
def test_bounds_of_gradients_hold(objective: Objective) -> None:
    """Bounds hold for any score; those of a regression are for a label in its unit."""
    rng = np.random.default_rng(0)
    label = (rng.random(1000) < 0.5).astype(float)
    target = objective.make_targets(label)
    for scale in (0.0, 1.0, 10.0, 1e4):
        g, h = objective.compute_gradients(rng.normal(scale=scale, size=target.shape), target)
        assert h.min() >= 0
        assert Fraction(h.max()) <= objective.max_hessian
        if not objective.normalised_label:
            bound = objective.max_gradient_sum(g.shape[1], Fraction(1), 8, centred=True)
            for output in g:
                assert max(output[output > 0].sum(), -output[output < 0].sum()) <= bound
    assert objective.max_leaf_weight & (objective.max_leaf_weight - 1) == 0


def test_max_gradient_sum_of_a_regression() -> None:
    """N/2 for a label in its unit; from the mean, N/4 plus the sum that l2 leaves over, and never
    more than N/2."""
    for n_samples in (2, 3, 100, 10**6):
        half = Fraction(n_samples, 2)
        assert REGRESSION.max_gradient_sum(n_samples, Fraction(1), 8, centred=False) == half
        for l2 in (Fraction(1, 1000), Fraction(1), Fraction(10**5)):
            for leaves in (2, 64):
                found = REGRESSION.max_gradient_sum(n_samples, l2, leaves, centred=True)
                rest = math.sqrt(l2 * leaves * n_samples) / 4
                assert found <= half
                assert found == half or half / 2 + rest <= found <= half / 2 + rest + 0.5
    assert CLASSIFICATION.max_gradient_sum(77, Fraction(1), 8, centred=False) == 77


def test_predictions_and_metrics() -> None:
    scores = np.array([[-1.0, 0.0, 2.0]])
    assert REGRESSION.predict_from_scores(scores).tolist() == [-1.0, 0.0, 2.0]
    assert CLASSIFICATION.predict_from_scores(scores) == pytest.approx(1 / (1 + np.exp(-scores[0])))
    label = np.array([0.0, 1.0, 1.0])
    errors = REGRESSION.compute_metrics(label, np.array([0.0, 1.0, 4.0]))
    assert errors == pytest.approx({"rmse": 3**0.5, "mae": 1.0, "r2": 1 - 9 / (2 / 3)})
    assert REGRESSION.compute_metrics(np.ones(2), np.zeros(2)) == {
        "rmse": 1.0,
        "mae": 1.0,
        "r2": None,
    }
    found = CLASSIFICATION.compute_metrics(label, np.array([0.1, 0.6, 0.4]))
    assert found == pytest.approx(
        {
            "accuracy": 2 / 3,
            **dict.fromkeys(("auc", "ks", "average_precision"), 1.0),
            "log_loss": -np.log(0.9 * 0.6 * 0.4) / 3,
            "brier": (0.1**2 + 0.4**2 + 0.6**2) / 3,
        }
    )
    constant = CLASSIFICATION.compute_metrics(np.ones(3), np.ones(3))
    assert constant["accuracy"] == 1.0
    assert constant["auc"] is constant["ks"] is constant["average_precision"] is None


def test_curves() -> None:
    """Thinned to 200 points with both ends, and agreeing with the metrics."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 5000).astype(float)
    predicted = np.clip(0.3 * label + rng.random(5000) * 0.7, 0, 1)
    found = CLASSIFICATION.compute_curves(label, predicted)
    assert {name: len(points) for name, points in found.items()} == {
        "roc": 200,
        "precision_recall": 200,
        "ks": 200,
        "calibration": 10,
    }
    assert (found["roc"][0], found["roc"][-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert found["precision_recall"][0] == (0.0, 1.0)
    area = np.trapezoid(*np.array(found["roc"]).T[::-1])
    metrics = CLASSIFICATION.compute_metrics(label, predicted)
    assert area == pytest.approx(metrics["auc"], abs=2e-3)
    assert max(above for _, above in found["ks"]) == pytest.approx(metrics["ks"], abs=2e-2)
    assert CLASSIFICATION.compute_curves(np.ones(3), np.ones(3)) == {}
    assert (
        REGRESSION.compute_curves(label, predicted) == THREE.compute_curves(label, predicted) == {}
    )


def test_several_classes() -> None:
    assert [create_objective("classification", k).n_outputs for k in (2, 3, 32)] == [1, 3, 32]
    label = np.array([2.0, 0.0, 1.0])
    assert THREE.make_targets(label).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert THREE.compute_initial_scores(label) == pytest.approx([-np.log(2)] * 3)
    assert THREE.compute_initial_scores(label, np.array([2.0, 1.0, 1.0])) == pytest.approx(
        np.log([1 / 3, 1 / 3, 1])
    )
    scores = np.array([[0.0, -50.0, 3.0], [0.0, -49.0, 0.0], [0.0, -800.0, 0.0]])
    with np.errstate(under="ignore", over="raise", divide="raise", invalid="raise"):
        found = THREE.predict_from_scores(scores)
    assert found.sum(axis=0) == pytest.approx(np.ones(3), abs=1e-15)
    assert found[:, 0] == pytest.approx(np.ones(3) / 3)
    # If all are tiny, exp(score) is the one-vs-rest probability of a class.
    assert found[:, 1] == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e), 0.0])
    p = compute_sigmoid(scores[:, 2])
    assert found[:, 2] == pytest.approx(p / p.sum())
    assert choose_likeliest_class(found).tolist() == [2, 1, 0]
    assert list_class_probabilities(found).shape == (3, 3)
    assert list_class_probabilities(np.array([0.25, 1.0])).tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert choose_likeliest_class(np.array([0.25, 0.5, 1.0])).tolist() == [0, 1, 1]


def test_metrics_of_several_classes() -> None:
    label = np.array([0.0, 1.0, 2.0, 2.0])
    predicted = np.array([[0.5, 0.3, 0.1, 0.6], [0.25, 0.4, 0.2, 0.2], [0.25, 0.3, 0.7, 0.2]])
    found = THREE.compute_metrics(label, predicted)
    loss = -np.mean(np.log([0.5, 0.4, 0.7, 0.2]))
    # For class 0, one of the three other samples is ranked above its sample; for class 2, two of
    # four pairs are in order, because 0.2 is below both.
    auc = (2 / 3 + 1.0 + 2 / 4) / 3
    assert found == pytest.approx({"accuracy": 0.75, "log_loss": loss, "auc": auc})
    assert THREE.compute_metrics(label[:2], predicted[:, :2])["auc"] is None
    assert THREE.primary_metric == "accuracy"
    assert THREE.error_metrics == {"log_loss"}


def test_objective_for_a_number_of_outputs() -> None:
    """Two classes have one output."""
    for outputs, objective in ((1, CLASSIFICATION), (3, THREE)):
        found = create_objective_with_outputs("classification", outputs)
        assert (type(found), found.n_outputs) == (type(objective), outputs)
    for task, outputs in (("classification", 2), ("classification", 33), ("regression", 3)):
        with pytest.raises(ModelError, match=f"a {task} does not have {outputs} outputs"):
            create_objective_with_outputs(task, outputs)
    with pytest.raises(ParameterError, match="classes: a regression is not one of 3 classes"):
        create_objective("regression", 3)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_an_objective_is_found_by_its_name(objective: Objective) -> None:
    assert OBJECTIVES[objective.name] is objective
    label = np.array([0.0, 1.0, 1.0])
    target = objective.make_targets(label)
    assert target.shape == (objective.n_outputs, 3)
    score = np.zeros(target.shape)
    assert objective.predict_from_scores(score).shape == (3,)
    assert objective.primary_metric in objective.compute_metrics(
        label, objective.predict_from_scores(score)
    )


def test_defaults_of_objectives() -> None:
    """Defaults are fixed, because files, reports and other participants depend on them."""
    assert list(OBJECTIVES) == ["regression", "classification"]
    found = [
        (
            o.n_outputs,
            o.normalised_label,
            o.constant_hessian,
            o.max_leaf_weight,
            o.ties_in_first_table,
            o.prediction_bits,
        )
        for o in OBJECTIVES.values()
    ]
    assert found == [(1, True, True, 8, False, 12), (1, False, False, 64, True, 10)]
    assert [o.primary_metric for o in OBJECTIVES.values()] == ["rmse", "auc"]
