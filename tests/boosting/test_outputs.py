"""The axis of outputs: an objective of three, from the label to predictions, touching nothing else.

Nothing of this is offered yet. It shows that the reference, the masked suite, parts and predictions
take any number of outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from privet import ParameterError, Params
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.estimate import Estimate
from privet.boosting.part import join
from privet.boosting.trainer import train, train_federated
from privet.terms.objective import OBJECTIVES, Classification, sigmoid

N = 200
OUTPUTS = 3


class OneOfThree(Classification):
    """One class against the rest, three times, with a table for all."""

    name = "one of three"
    outputs = OUTPUTS

    def check_values(self, label: FloatArray) -> None:
        assert np.isin(label, range(OUTPUTS)).all()

    def targets(self, label: FloatArray) -> FloatArray:
        found: FloatArray = (label == np.arange(OUTPUTS)[:, None]).astype(np.float64)
        return found

    def prediction(self, score: FloatArray) -> FloatArray:
        p = sigmoid(score)
        shares: FloatArray = p / p.sum(axis=0)
        return shares


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    OBJECTIVES[OneOfThree.name] = OneOfThree()
    yield
    del OBJECTIVES[OneOfThree.name]


def test_three_outputs() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(6, N))
    label = np.digitize(columns[0] + 0.7 * columns[3], [-0.5, 0.5]).astype(np.float64)
    params = Params(task=OneOfThree.name, tables=3, depth=3, buckets=8)
    names = [f"x{j}" for j in range(6)]
    owned = [slice(0, 2), slice(2, 4), slice(4, 6)]
    parties = [
        bucket_columns(f"party{k}", names[own], columns[own], 8) for k, own in enumerate(owned)
    ]
    plain = train(parties, label, params)
    estimates: list[Estimate] = []
    found = train_federated(
        parties,
        label,
        params,
        "masked",
        new_columns=[columns[own] for own in owned],
        on_estimate=estimates.append,
    )
    model = join(found.parts)
    assert model.leaf_values.shape == (3, OUTPUTS, 8)
    assert model.same_tests(plain, columns) == 1.0
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4
    assert found.predictions is not None
    assert found.predictions.shape == (OUTPUTS, N)
    # Rounded to 2^-10 in the score, of which a probability is at most a quarter.
    assert np.abs(found.predictions - plain.predict(columns)).max() < 2**-11
    rounds = [
        traffic.rounds
        for step, traffic in found.outcome.meters[0].online.items()
        if not step.startswith("predict")
    ]
    assert estimates[0].rounds == sum(rounds)


def test_the_paper_s_protocol_learns_one() -> None:
    columns = np.random.default_rng(0).normal(size=(2, N))
    params = Params(task=OneOfThree.name, tables=1, depth=1, buckets=4)
    parties = [bucket_columns(f"party{k}", [f"x{k}"], columns[[k]], 4) for k in range(2)]
    label = (np.arange(N) % OUTPUTS).astype(np.float64)
    with pytest.raises(ParameterError, match="paper learns one output, and one of three has 3"):
        train_federated(parties, label, params, "paper")
