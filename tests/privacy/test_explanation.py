"""Other data of the honest participant explain the joint view of all other participants.

`tests/privacy/explain.py` defines the method, and `docs/privacy.md` says what it proves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.boosting.training import TrainingData
from privet.protocols.masked.inference import reveal_mean_contributions, sum_absolute_contributions
from privet.runtime.runtime import Runtime
from privet.spec.plan import ExplainBy
from tests.privacy.cases import (
    THREE,
    mirror,
    one_bucket,
    other_label,
    other_leaves,
    other_weights,
    prediction,
    training,
    twins,
    twins_trained,
    two_stages,
)
from tests.privacy.explain import check_inverse, explain
from tests.privacy.stage import Randomness, perform

ROLES = [(n, honest) for n in (2, 3, 4) for honest in range(n)]
TRAINED = [pytest.param(*role, marks=[pytest.mark.slow] if role[0] == 4 else []) for role in ROLES]
"""Training with four participants takes long, and covers the same code as with three."""
TASKS: list[str] = ["regression", "classification"]
ALL_TASKS: list[str] = [*TASKS, THREE]


@pytest.fixture(params=["all-to-all", "in-slices"])
def openings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send openings all-to-all and in slices, independently of their size."""
    if request.param == "in-slices":
        monkeypatch.setattr("privet.runtime.opening.DEFAULT_ALL_TO_ALL_BYTES", 0)


def changed(*changes: Callable[[TrainingData], TrainingData]) -> Callable[[Any], Any]:
    def change(data: tuple[TrainingData, Any]) -> tuple[TrainingData, Any]:
        local, state = data
        for apply in changes:
            local = apply(local)
        return local, state

    return change


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize(("protocol", "classes"), [("masked", 2), ("masked", 3), ("paper", 2)])
@pytest.mark.parametrize(("n", "honest"), ROLES)
@pytest.mark.parametrize("recipient_kind", ["honest", "another"])
def test_prediction(protocol: str, classes: int, n: int, honest: int, recipient_kind: str) -> None:
    """Flip every outcome of the honest participant's splits, and change leaf values."""
    recipient = honest if recipient_kind == "honest" else (honest + 1) % n
    program, data = prediction(protocol, n, honest, recipient, classes=classes)
    session = perform(program, data, Randomness("prediction"))
    part, batches = data[honest]
    other = other_leaves(part)
    if recipient == honest:  # no other participant has an output, so predictions can differ
        other = replace(part, leaf_shares=part.leaf_shares[..., ::-1].copy())
    found = explain(session, honest, (other, [-x for x in batches]))
    predictions = [s.seen[recipient].result[0] for s in (session, found)]
    assert np.unique(predictions[0], axis=-1).shape[-1] > 1
    assert (predictions[0] == predictions[1]).all() == (recipient != honest)


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("n", "honest"), ROLES)
@pytest.mark.parametrize("by", ["feature", "participant"])
def test_explained_prediction(by: ExplainBy, classes: int, n: int, honest: int) -> None:
    """As above with contributions; by participant, single features have other contributions."""
    recipient = (honest + 1) % n
    program, data = prediction("masked", n, honest, recipient, classes=classes, explain=by)
    session = perform(program, data, Randomness("explained"))
    part, batches = data[honest]
    found = explain(session, honest, (other_leaves(part), [-x for x in batches]))
    first, second = (s.seen[recipient].result[0].explanation for s in (session, found))
    assert first.contributions.shape[1] == n
    assert np.unique(first.contributions, axis=-1).shape[-1] > 1
    assert np.array_equal(first.contributions, second.contributions)
    assert np.array_equal(first.base, second.base)
    for seen in (s.seen[k] for s in (session, found) for k in range(n) if k != recipient):
        assert seen.result == [None]


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 1)])
def test_explained_prediction_for_honest_recipient(n: int, honest: int) -> None:
    """No other participant has an output, so contributions can differ."""
    program, data = prediction("masked", n, honest, honest, explain="feature")
    session = perform(program, data, Randomness("explained"))
    part, batches = data[honest]
    assert part.explanation is not None
    mirrored = replace(
        part.explanation, contributions=part.explanation.contributions[..., ::-1].copy()
    )
    found = explain(session, honest, (replace(part, explanation=mirrored), [-x for x in batches]))
    first, second = (s.seen[honest].result[0].explanation for s in (session, found))
    assert not np.array_equal(first.contributions, second.contributions)


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("honest", [0, 1, 2])
def test_service_batches(protocol: str, honest: int) -> None:
    """Several batches in one session: neither earlier nor repeated requests reveal anything."""
    recipient = (honest + 1) % 3
    program, data = prediction(protocol, 3, honest, recipient, sizes=(5, 1, 9, 5))
    for _, batches in data:
        batches[3] = batches[0]
    session = perform(program, data, Randomness("service"))
    part, batches = data[honest]
    explain(session, honest, (other_leaves(part), [-x for x in batches]))
    revealed = session.seen[recipient].result
    assert (revealed[0] == revealed[3]).all()


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_other_labels(task: str, n: int) -> None:
    """Negate the label, and with it every leaf value and every gradient."""
    program, data = training("masked", task, n, n - 1)
    session = perform(program, data, Randomness("labels"))
    found = explain(session, n - 1, changed(other_label, twins)(data[-1]))
    values = [
        np.add.reduce([seen.result.part.leaf_shares for seen in s.seen], dtype=np.uint32)
        for s in (session, found)
    ]
    # The values of the class before, or of the opposite sign.
    expected = np.roll(values[0], 1, axis=1) if task == THREE else -values[0]
    assert (np.abs((values[1] - expected).view(np.int32)) <= 8 * n).all()
    check_inverse(session, found, n - 1)


@pytest.mark.parametrize(("n", "honest"), TRAINED)
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_weights(task: str, n: int, honest: int) -> None:
    """Change columns and, of the label holder, also weights."""
    reveal_loss = honest != n - 1  # the loss depends on the weights
    program, data = training(
        "masked", task, n, honest, tables=1, weighted=True, reveal_loss=reveal_loss
    )
    session = perform(program, data, Randomness("weights"))
    changes = [twins, mirror]
    if honest == n - 1:
        changes.append(other_weights)
    found = explain(session, honest, changed(*changes)(data[honest]))
    check_inverse(session, found, honest)


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize(("n", "honest"), TRAINED)
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_other_features(task: str, n: int, honest: int) -> None:
    """Change rows and the buckets of splits: exchange the columns of twins, and mirror columns."""
    program, data = training("masked", task, n, honest)
    session = perform(program, data, Randomness("training"))
    other = changed(twins, mirror)(data[honest])
    found = explain(session, honest, other)
    is_local = session.seen[honest].result.part.feature // 2 == honest
    assert is_local.any(), "the honest participant's splits must be among the chosen ones"
    before, after = (s.seen[honest].result.part.bucket[is_local] for s in (session, found))
    assert (before + after == 2).all()  # the other side of the same cut


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_disclosed_cut_counts(task: str, n: int, honest: int) -> None:
    """It is public that noise columns have two values."""
    program, data = training("masked", task, n, honest, ragged=True)
    assert program.plan.cut_counts == (3, 1) * n
    session = perform(program, data, Randomness("ragged"))
    explain(session, honest, changed(twins, mirror)(data[honest]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_two_trainings_on_kept_indicators(task: str, n: int, honest: int, tmp_path: Path) -> None:
    """The second sends none: what both show together is explained by the same other data."""
    program, data = training("masked", task, n, honest)
    other = changed(twins, mirror)(data[honest])
    first = program.keeping(data, tmp_path)
    assert first.plan.cached_owners == ()
    session = perform(first, data, Randomness("first"))
    found = explain(session, honest, other)
    second = program.at_another_rate().keeping(data, tmp_path)
    assert second.plan.cached_owners == tuple(range(n))
    again = perform(second, data, Randomness("second"))
    assert not any(r.step.endswith("publish indicators") for s in again.seen for r in s.received)
    explain(again, honest, other, earlier=found)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 1)])
def test_a_changed_bucket_is_published_under_other_masks(
    n: int, honest: int, tmp_path: Path
) -> None:
    """Two trainings that differ in one bucket: nobody sees in which."""
    program, data = training("masked", "regression", n, honest)
    first = program.keeping(data, tmp_path)
    session = perform(first, data, Randomness("first"))
    found = explain(session, honest, changed(twins, mirror)(data[honest]))
    after = [changed(one_bucket)(own) if k == honest else own for k, own in enumerate(data)]
    second = program.at_another_rate().keeping(after, tmp_path)
    assert second.plan.cached_owners == tuple(k for k in range(n) if k != honest)
    again = perform(second, after, Randomness("second"))
    explain(again, honest, changed(twins, mirror)(after[honest]), earlier=found)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_of_many_tables_and_levels(task: str, n: int, honest: int) -> None:
    """Cover levels of several nodes, later tables, and an argmax of several stages."""
    sizes: list[dict[str, Any]] = [{"tables": 1, "depth": 3}, {"tables": 5, "depth": 1}]
    for size in sizes:
        program, data = training("masked", task, n, honest, **size)
        with two_stages():
            session = perform(program, data, Randomness("large"))
            explain(session, honest, changed(twins, mirror)(data[honest]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_min_child_weight(task: str, n: int, honest: int) -> None:
    """Small sides, also of the root, follow from sums, which are the same for twins."""
    program, data = training("masked", task, n, honest, chosen={"min_child_weight": 3.0})
    session = perform(program, data, Randomness("least"))
    explain(session, honest, changed(twins, mirror)(data[honest]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_min_gain(task: str, n: int, honest: int) -> None:
    """In a regression, only the label holder provides the least gain."""
    program, data = training("masked", task, n, honest, chosen={"min_gain": 2.0})
    session = perform(program, data, Randomness("gain"))
    explain(session, honest, changed(twins)(data[honest]))


@pytest.mark.parametrize(("n", "honest", "sign"), [(2, 0, -1), (3, 2, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_constraints(task: str, n: int, honest: int, sign: int) -> None:
    """All columns but one are constrained: orders follow from sums, the same for twins."""
    signs = tuple(0 if j == 2 * honest else sign for j in range(2 * n))
    program, data = training("masked", task, n, honest, monotone=signs)
    session = perform(program, data, Randomness("order"))
    found = explain(session, honest, changed(twins)(data[honest]))
    assert any("order" in r.step for seen in session.seen for r in seen.received)
    check_inverse(session, found, honest)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_constraints_on_other_buckets(task: str, n: int, honest: int) -> None:
    """If only columns of others are constrained, those of the honest one can be mirrored."""
    signs = tuple(0 if j // 2 == honest else 1 for j in range(2 * n))
    program, data = training("masked", task, n, honest, depth=3, monotone=signs)
    session = perform(program, data, Randomness("order"))
    explain(session, honest, changed(twins, mirror)(data[honest]))


SAMPLING = {"subsample": 0.6, "colsample": 0.7}


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_sampling(task: str, n: int, honest: int) -> None:
    """Mirror columns and the label; twins are not exchanged, since a table can sample only one."""
    changes = [mirror] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, chosen=SAMPLING, reveal_loss=True)
    session = perform(program, data, Randomness("drawn"))
    explain(session, honest, changed(*changes)(data[honest]))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_revealed_loss(task: str, n: int) -> None:
    """The loss is the same for twins; the messages for computing it are explained."""
    program, data = training("masked", task, n, 0, reveal_loss=True)
    session = perform(program, data, Randomness("loss"))
    explain(session, 0, changed(twins)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_explanations(task: str, n: int, honest: int) -> None:
    """Mirrored columns change the fractions of rows that go left, and feature contributions."""
    program, data = training("masked", task, n, honest, depth=3, has_explanations=True)
    changes = [twins, mirror] + ([other_label] if honest == n - 1 else [])
    session = perform(program, data, Randomness("reasons"))
    explain(session, honest, changed(*changes)(data[honest]))
    assert any("reasons" in r.step for seen in session.seen for r in seen.received)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
def test_mean_absolute_contributions(n: int, honest: int) -> None:
    """Change the sign of every contribution."""
    rng = np.random.default_rng(n)
    values = rng.integers(-(1 << 20), 1 << 20, (3, 2, 40)).astype(np.int32).view(np.uint32)
    shares = rng.integers(0, 2**32, (n, *values.shape), dtype=np.uint32)
    shares[honest] += values - shares.sum(0, dtype=np.uint32)

    def program(runtime: Runtime, part: Any) -> Any:
        shared = Share.unknown(values.shape, Z32) if part is None else Share(part, Z32)
        total = sum_absolute_contributions(runtime, shared)
        return reveal_mean_contributions(runtime, total, 40, (16, 10), (honest + 1) % n)

    session = perform(program, list(shares), Randomness("absolute"))
    found = explain(session, honest, shares[honest] - 2 * values)
    before, after = (s.seen[(honest + 1) % n].result for s in (session, found))
    assert before.min() > 0
    assert np.array_equal(before, after)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_gains(task: str, n: int) -> None:
    """The label holder learns only the gain of each level, which is the same for twins."""
    program, data = training("masked", task, n, 0, reveal_gain=True)
    session = perform(program, data, Randomness("gains"))
    explain(session, 0, changed(twins)(data[0]))
    assert session.seen[-1].result.part.gains.max() > 0


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", TASKS)
def test_only_the_label_holder_learns_gains(task: str, n: int) -> None:
    """With other weights every gain changes; the other participants learn no gain."""
    program, data = training("masked", task, n, n - 1, weighted=True, reveal_gain=True)
    session = perform(program, data, Randomness("others"))
    found = explain(session, n - 1, changed(other_weights)(data[-1]))
    before, after = (each.seen[-1].result.part.gains for each in (session, found))
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_validation_rows(task: str, n: int) -> None:
    """The label holder learns only their mean loss, which is the same for twins."""
    program, data = training("masked", task, n, 0, tables=1, watched=True)
    session = perform(program, data, Randomness("watched"))
    explain(session, 0, changed(twins)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 0), (3, 2)])
@pytest.mark.parametrize("task", TASKS)
def test_mean_contributions_of_validation_rows(task: str, n: int, honest: int) -> None:
    """Only the label holder learns their means, which are the same for twins."""
    settings: dict[str, Any] = {
        "watched": True,
        "has_explanations": True,
        "importances_by": "feature",
    }
    changes = [twins] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, tables=1, **settings)
    session = perform(program, data, Randomness("importances"))
    explain(session, honest, changed(*changes)(data[honest]))
    assert any("importances" in r.step for seen in session.seen for r in seen.received)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_only_the_label_holder_learns_validation_losses(task: str, n: int) -> None:
    """The other participants learn when training stops, but no loss and no prediction."""
    settings: dict[str, Any] = {"watched": True, "reveal_validation": True}
    program, data = training("masked", task, n, n - 1, tables=2, **settings)
    session = perform(program, data, Randomness("others"))
    explain(session, n - 1, changed(other_label, twins)(data[-1]))


@pytest.mark.parametrize("task", TASKS)
def test_predictions_of_validation_rows(task: str) -> None:
    """Other training rows explain the messages for computing them."""
    settings: dict[str, Any] = {"watched": True, "reveal_validation": True}
    program, data = training("masked", task, 3, 0, tables=1, **settings)
    session = perform(program, data, Randomness("predicted"))
    explain(session, 0, changed(twins_trained)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_resumed_training(task: str, n: int, honest: int) -> None:
    """Two sessions: an interrupted training run, and the rest of it with fresh masks."""
    changes = [twins, mirror] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, tables=1)
    session = perform(program, data, Randomness("first"))
    found = explain(session, honest, changed(*changes)(data[honest]))
    states = [seen.result for seen in session.seen]
    again = [(local, state) for (local, _), state in zip(data, states, strict=True)]
    second = perform(program.resume(1), again, Randomness("second"))
    local, _ = changed(*changes)(data[honest])
    explain(second, honest, (local, found.seen[honest].result))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_paper_protocol(task: str, n: int, honest: int) -> None:
    """`paper` reveals the best bucket of every feature, so columns are not mirrored."""
    changes = [twins] + ([other_label] if honest == n - 1 else [])
    program, data = training("paper", task, n, honest, tables=2 if n == 2 else 1)
    session = perform(program, data, Randomness("paper"))
    explain(session, honest, changed(*changes)(data[honest]))
