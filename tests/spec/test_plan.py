from __future__ import annotations

import pytest

from privet import Params
from privet.objectives.regression import OBJECTIVES
from privet.spec.plan import Ownership, Plan

OWNERSHIP = Ownership((0, 2, 0, 1, 2), 2)


def test_ownership() -> None:
    assert [OWNERSHIP.list_features(k) for k in range(4)] == [[0, 2], [3], [1, 4], []]
    assert OWNERSHIP.map_by_feature(2, ["a", "b"]) == {1: "a", 4: "b"}
    assert OWNERSHIP.map_by_feature(3, []) == {}
    with pytest.raises(ValueError, match="shorter"):
        OWNERSHIP.map_by_feature(2, ["a"])


def test_plan_uses_its_params() -> None:
    plan = Plan(Params(task="regression", learning_rate=0.25), OWNERSHIP, 100)
    assert plan.objective is OBJECTIVES["regression"]
    assert plan.n_features == 5
    assert not plan.reveal_loss
