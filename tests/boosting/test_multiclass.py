"""Classification of K classes, from the label to predictions, in plaintext and on shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from privet import DataError, ParameterError, Params
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model import Feature, Model
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import FederatedResult, train_federated, train_locally
from privet.boosting.training import TrainingData, TrainingSpec
from privet.boosting.training import train as train_on_shares
from privet.objectives.classification import compute_sigmoid
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime

N = 200
PARTITION = (slice(0, 2), slice(2, 4), slice(4, 6))


@dataclass(frozen=True)
class Trained:
    """The same training run in plaintext and on shares."""

    classes: int
    columns: FloatArray
    label: FloatArray
    plain: Model
    federated: FederatedResult
    estimate: CostEstimate

    @property
    def model(self) -> Model:
        """The model of all parts."""
        return join_parts(self.federated.parts)

    @property
    def metered(self) -> tuple[int, int, int]:
        """The rounds of a participant, the online bytes of all, and the dealer's bytes."""
        sums = np.zeros((3,), dtype=int)
        for meter in self.federated.program_result.meters:
            for within in ("setup", "table"):
                online, offline = (
                    meter.sum_traffic("online", within),
                    meter.sum_traffic("offline", within),
                )
                sums += online.rounds, online.sent, offline.received
        rounds, online_bytes, offline_bytes = sums.tolist()
        return rounds // len(PARTITION), online_bytes, offline_bytes


def bucketed(columns: FloatArray, buckets: int) -> list[BucketedColumns]:
    names = [f"x{j}" for j in range(len(columns))]
    return [
        bucket_columns(f"party{k}", names[part], columns[part], buckets)
        for k, part in enumerate(PARTITION)
    ]


def make_labelled_columns(classes: int, n: int = N) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(classes)
    columns = rng.normal(size=(6, n))
    order = np.argsort([1.0, 0.6, 0.3, 0.8, 0.5, 0.2] @ columns)
    label = np.empty(n)
    label[order] = np.arange(n) * classes // n
    return columns, label


@pytest.fixture(scope="module", params=[2, 3, 7, 10])
def trained(request: pytest.FixtureRequest) -> Trained:
    classes = request.param
    columns, label = make_labelled_columns(classes)
    params = Params(task="classification", classes=classes, tables=3, depth=3, buckets=8)
    parties = bucketed(columns, 8)
    estimates: list[CostEstimate] = []
    federated = train_federated(
        parties,
        label,
        params,
        "masked",
        new_columns=[columns[part] for part in PARTITION],
        on_estimate=estimates.append,
    )
    return Trained(
        classes, columns, label, train_locally(parties, label, params), federated, estimates[0]
    )


def test_masked_model_matches_reference(trained: Trained) -> None:
    outputs = 1 if trained.classes == 2 else trained.classes
    assert trained.model.leaf_values.shape == (3, outputs, 8)
    assert trained.model.compare_splits(trained.plain, trained.columns) == 1.0
    assert np.abs(trained.model.leaf_values - trained.plain.leaf_values).max() < 1e-4


def test_predictions_match_reference(trained: Trained) -> None:
    predicted, expected = trained.federated.predictions, trained.plain.predict(trained.columns)
    assert predicted is not None
    shape = (N,) if trained.classes == 2 else (trained.classes, N)
    assert predicted.shape == expected.shape == shape
    # Rounded to 2^-10 in the score, of which a probability against the rest is at most a quarter;
    # normalised, at most one: p / sum(p) moves by the logarithm of p, with two signs.
    assert np.abs(predicted - expected).max() < 2**-11
    if trained.classes > 2:
        assert predicted.sum(axis=0) == pytest.approx(np.ones(N))


def estimate_multiclass_cost(classes: int, n_parties: int) -> CostEstimate:
    """Return the cost estimate of such a training run with `n_parties` participants."""
    names = tuple(f"party{k}" for k in range(n_parties))
    training_spec = TrainingSpec(
        protocol="masked",
        params=Params(task="classification", classes=classes, tables=3, depth=3, buckets=8),
        parties=names,
        features=tuple(Feature(f"x{j}", names[j * n_parties // 6]) for j in range(6)),
        active=n_parties - 1,
        prediction_bits=10,
        announced_cut_counts=(7,) * 6,
    )
    return estimate_cost(training_spec, training_spec.make_plan(N))


def test_cost_by_number_of_classes(trained: Trained) -> None:
    """The cost is as estimated; all but the rounds are at most K times those of two classes."""
    cost, two = trained.estimate, estimate_multiclass_cost(2, 3)
    assert cost == estimate_multiclass_cost(trained.classes, 3)
    assert (cost.rounds, cost.online_bytes, cost.offline_bytes) == trained.metered
    outputs = 1 if trained.classes == 2 else trained.classes
    assert cost.online_bytes <= outputs * two.online_bytes
    assert cost.offline_bytes <= outputs * two.offline_bytes
    assert cost.memory_bytes <= outputs * two.memory_bytes
    assert cost.n_multiplications == outputs * two.n_multiplications


@pytest.mark.parametrize("classes", [3, 7, 10, 32])
def test_rounds_do_not_grow_with_classes(classes: int) -> None:
    """An opening takes one delay between two participants, and a long one two between more."""
    assert estimate_multiclass_cost(classes, 2).rounds == estimate_multiclass_cost(2, 2).rounds
    assert (
        estimate_multiclass_cost(2, 3).rounds
        <= estimate_multiclass_cost(classes, 3).rounds
        <= 2 * estimate_multiclass_cost(2, 2).rounds
    )


def test_a_table_by_hand() -> None:
    """One class against the rest, K times; one split for all classes, with the best sum."""
    columns, label = make_labelled_columns(4, 60)
    params = Params(task="classification", classes=4, tables=2, depth=1, buckets=4)
    parties = bucketed(columns, 4)
    model = train_locally(parties, label, params)
    buckets = np.concatenate([party.buckets for party in parties])
    frequencies = np.bincount(label.astype(int)) / 60
    score = np.repeat(np.log(frequencies / (1 - frequencies))[:, None], 60, axis=1)
    for table in range(2):
        p = 1 / (1 + np.exp(-score))
        g = p - np.array([label == k for k in range(4)])
        h = p * (1 - p)
        gains = {}
        for j in range(6):
            for cut in range(3):
                sides = [buckets[j] <= cut, buckets[j] > cut]
                gains[j, cut] = sum(
                    g[k, side].sum() ** 2 / (h[k, side].sum() + 1.0)
                    for k in range(4)
                    for side in sides
                )
        feature, cut = max(gains, key=lambda test: gains[test])
        assert (model.feature[table, 0], model.bucket[table, 0]) == (feature, cut)
        for leaf, side in enumerate((buckets[feature] <= cut, buckets[feature] > cut)):
            step = -0.3 * g[:, side].sum(axis=1) / (h[:, side].sum(axis=1) + 1.0)
            assert model.leaf_values[table, :, leaf] == pytest.approx(step)
            score[:, side] += step[:, None]
    assert model.predict_scores(columns) == pytest.approx(score)
    p = 1 / (1 + np.exp(-score))
    assert model.predict(columns) == pytest.approx(p / p.sum(axis=0))


def test_the_loss_is_the_sum_over_classes() -> None:
    """The first loss is that of the class frequencies; later ones are those of the reference."""
    columns, label = make_labelled_columns(3)
    params = Params(task="classification", classes=3, tables=2, depth=2, buckets=4)
    parties = bucketed(columns, 4)
    names = tuple(party.owner for party in parties)
    training_spec = TrainingSpec(
        protocol="masked",
        params=params,
        parties=names,
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=2,
        prediction_bits=10,
        reveal_loss=True,
    )

    def program(runtime: Runtime, data: TrainingData | None) -> list[float | None]:
        losses: list[float | None] = []
        plan = training_spec.make_plan(N)
        train_on_shares(
            runtime, training_spec, plan, data, on_state=lambda state: losses.append(state.loss)
        )
        return losses

    data = [TrainingData(party, label if k == 2 else None) for k, party in enumerate(parties)]
    first = train_locally(parties, label, params.model_copy(update={"tables": 1}))
    residuals = compute_sigmoid(first.predict_scores(columns)) - params.objective.make_targets(
        label
    )
    frequencies = np.bincount(label.astype(int)) / N
    expected = [float((frequencies * (1 - frequencies)).sum()), float((residuals**2).sum() / N)]
    for losses in simulate(program, 3, data).results:
        assert losses == pytest.approx(expected, abs=2**-15)


def test_class_without_rows_is_rejected() -> None:
    columns, label = make_labelled_columns(3)
    params = Params(task="classification", classes=4, tables=1, depth=1, buckets=4)
    with pytest.raises(DataError, match="no row of 200 has the label 3"):
        train_federated(bucketed(columns, 4), label, params, "masked")


def test_paper_protocol_supports_only_two_classes() -> None:
    columns, label = make_labelled_columns(3)
    params = Params(task="classification", classes=3, tables=1, depth=1, buckets=4)
    with pytest.raises(ParameterError, match="paper has one score a sample, and 3 are needed"):
        train_federated(bucketed(columns, 4), label, params, "paper")
