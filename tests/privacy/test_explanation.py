"""What n - 1 participants see together is explained by other data of the one they do not control.

`tests/privacy/explain.py` says what that means, and `docs/privacy.md` what it proves.
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
"""Trainings of four take long, and show what those of three do."""
TASKS: list[str] = ["regression", "classification"]
ALL_TASKS: list[str] = [*TASKS, THREE]


@pytest.fixture(params=["all-to-all", "in-slices"])
def openings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which openings travel, whatever their size."""
    if request.param == "in-slices":
        monkeypatch.setattr("privet.runtime.opening.DEFAULT_ALL_TO_ALL_BYTES", 0)


def changed(*changes: Callable[[TrainingData], TrainingData]) -> Callable[[Any], Any]:
    def change(data: tuple[TrainingData, Any]) -> tuple[TrainingData, Any]:
        own, state = data
        for each in changes:
            own = each(own)
        return own, state

    return change


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize(("protocol", "classes"), [("masked", 2), ("masked", 3), ("paper", 2)])
@pytest.mark.parametrize(("n", "honest"), ROLES)
@pytest.mark.parametrize("whose", ["honest", "another"])
def test_prediction(protocol: str, classes: int, n: int, honest: int, whose: str) -> None:
    """Every outcome of the honest participant's tests turned round, and other leaf values."""
    recipient = honest if whose == "honest" else (honest + 1) % n
    program, data = prediction(protocol, n, honest, recipient, classes=classes)
    session = perform(program, data, Randomness("prediction"))
    part, batches = data[honest]
    other = other_leaves(part)
    if recipient == honest:  # nobody else has an output, so the predictions may differ, too
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
    """As above, explained: by participant, each feature of the honest one adds something else."""
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
def test_an_honest_recipient_of_explanations(n: int, honest: int) -> None:
    """Nobody else has an output, so contributions may differ, too."""
    program, data = prediction("masked", n, honest, honest, explain="feature")
    session = perform(program, data, Randomness("explained"))
    part, batches = data[honest]
    assert part.explanation is not None
    turned = replace(
        part.explanation, contributions=part.explanation.contributions[..., ::-1].copy()
    )
    found = explain(session, honest, (replace(part, explanation=turned), [-x for x in batches]))
    first, second = (s.seen[honest].result[0].explanation for s in (session, found))
    assert not np.array_equal(first.contributions, second.contributions)


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("honest", [0, 1, 2])
def test_batches_of_a_service(protocol: str, honest: int) -> None:
    """Several batches in one session, the same rows among them: what was asked before tells
    nothing, and asking again does not either."""
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
    """The label turned round, and with it every leaf value and every gradient."""
    program, data = training("masked", task, n, n - 1)
    session = perform(program, data, Randomness("labels"))
    found = explain(session, n - 1, changed(other_label, twins)(data[-1]))
    values = [
        np.add.reduce([seen.result.part.leaf_shares for seen in s.seen], dtype=np.uint32)
        for s in (session, found)
    ]
    # Those of the class before, or of the other sign.
    expected = np.roll(values[0], 1, axis=1) if task == THREE else -values[0]
    assert (np.abs((values[1] - expected).view(np.int32)) <= 8 * n).all()
    check_inverse(session, found, n - 1)


@pytest.mark.parametrize(("n", "honest"), TRAINED)
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_weights(task: str, n: int, honest: int) -> None:
    """Other columns; and, of the label's holder, other weights."""
    terms: dict[str, Any] = {"reveal_loss": honest != n - 1}  # which depends on the weights
    program, data = training("masked", task, n, honest, tables=1, weighted=True, **terms)
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
    """Other rows, and other buckets of the tests: the columns of twins, exchanged and mirrored."""
    program, data = training("masked", task, n, honest)
    session = perform(program, data, Randomness("training"))
    other = changed(twins, mirror)(data[honest])
    found = explain(session, honest, other)
    tested = session.seen[honest].result.part.feature // 2 == honest
    assert tested.any(), "the honest participant's tests must be among those chosen"
    before, after = (s.seen[honest].result.part.bucket[tested] for s in (session, found))
    assert (before + after == 2).all()  # the other side of the same cut


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_numbers_of_cuts_told(task: str, n: int, honest: int) -> None:
    """All know that the columns of noise have two values, and no more."""
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
    """What a small training leaves out: levels of several nodes, later tables, and tournaments of
    two stages."""
    shapes: list[dict[str, Any]] = [{"tables": 1, "depth": 3}, {"tables": 5, "depth": 1}]
    for shape in shapes:
        program, data = training("masked", task, n, honest, **shape)
        with two_stages():
            session = perform(program, data, Randomness("large"))
            explain(session, honest, changed(twins, mirror)(data[honest]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_sides_that_do_not_count(task: str, n: int, honest: int) -> None:
    """Of the root, too: which they are follows from sums, and these are those of twins."""
    program, data = training("masked", task, n, honest, chosen={"min_child_weight": 3.0})
    session = perform(program, data, Randomness("least"))
    explain(session, honest, changed(twins, mirror)(data[honest]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_with_levels_that_test_nothing(task: str, n: int, honest: int) -> None:
    """What a test must gain is the label holder's alone to add, in a regression."""
    program, data = training("masked", task, n, honest, chosen={"min_gain": 2.0})
    session = perform(program, data, Randomness("gain"))
    explain(session, honest, changed(twins)(data[honest]))


@pytest.mark.parametrize(("n", "honest", "sign"), [(2, 0, -1), (3, 2, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_constraints(task: str, n: int, honest: int, sign: int) -> None:
    """On all columns but one: which nodes and leaves are in the wrong order follows from sums, and
    these are those of twins."""
    signs = tuple(0 if j == 2 * honest else sign for j in range(2 * n))
    program, data = training("masked", task, n, honest, monotone=signs)
    session = perform(program, data, Randomness("order"))
    found = explain(session, honest, changed(twins)(data[honest]))
    assert any("order" in r.step for seen in session.seen for r in seen.received)
    check_inverse(session, found, honest)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_with_constraints_on_other_buckets(task: str, n: int, honest: int) -> None:
    """Where others' columns are constrained, ours may be turned round, too."""
    signs = tuple(0 if j // 2 == honest else 1 for j in range(2 * n))
    program, data = training("masked", task, n, honest, depth=3, monotone=signs)
    session = perform(program, data, Randomness("order"))
    explain(session, honest, changed(twins, mirror)(data[honest]))


DRAWS = {"subsample": 0.6, "colsample": 0.7}


@pytest.mark.usefixtures("openings")
@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_on_what_is_drawn(task: str, n: int, honest: int) -> None:
    """Columns turned round, and the label: a table that leaves out one of two twins tells them
    apart, so they are not exchanged."""
    changes = [mirror] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, chosen=DRAWS, reveal_loss=True)
    session = perform(program, data, Randomness("drawn"))
    explain(session, honest, changed(*changes)(data[honest]))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_that_reveals_the_loss(task: str, n: int) -> None:
    """The loss is the same for twins: what leads to it is explained, too."""
    program, data = training("masked", task, n, 0, reveal_loss=True)
    session = perform(program, data, Randomness("loss"))
    explain(session, 0, changed(twins)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_training_that_explains(task: str, n: int, honest: int) -> None:
    """Which share of rows passes the honest participant's tests is another, mirrored; and with it
    what features contribute."""
    program, data = training("masked", task, n, honest, depth=3, has_explanations=True)
    changes = [twins, mirror] + ([other_label] if honest == n - 1 else [])
    session = perform(program, data, Randomness("reasons"))
    explain(session, honest, changed(*changes)(data[honest]))
    assert any("reasons" in r.step for seen in session.seen for r in seen.received)


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1)])
def test_mean_absolute_contributions(n: int, honest: int) -> None:
    """The sign of every contribution is another."""
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
def test_gains_to_the_label_s_holder(task: str, n: int) -> None:
    """It learns what each level gains, which is the same for twins, and nothing else."""
    program, data = training("masked", task, n, 0, reveal_gain=True)
    session = perform(program, data, Randomness("gains"))
    explain(session, 0, changed(twins)(data[0]))
    assert session.seen[-1].result.part.gains.max() > 0


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", TASKS)
def test_gains_that_others_do_not_learn(task: str, n: int) -> None:
    """With other weights every gain is another; everybody but the label's holder learns none."""
    program, data = training("masked", task, n, n - 1, weighted=True, reveal_gain=True)
    session = perform(program, data, Randomness("others"))
    found = explain(session, n - 1, changed(other_weights)(data[-1]))
    before, after = (each.seen[-1].result.part.gains for each in (session, found))
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_validation_rows_of_others(task: str, n: int) -> None:
    """The label's holder learns their mean loss, which is the same for twins, and nothing else."""
    program, data = training("masked", task, n, 0, tables=1, watched=True)
    session = perform(program, data, Randomness("watched"))
    explain(session, 0, changed(twins)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (3, 0), (3, 2)])
@pytest.mark.parametrize("task", TASKS)
def test_mean_contributions_of_validation_rows(task: str, n: int, honest: int) -> None:
    """The label's holder learns their means, which are the same for twins; the others nothing."""
    terms: dict[str, Any] = {"watched": True, "has_explanations": True, "importances_by": "feature"}
    changes = [twins] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, tables=1, **terms)
    session = perform(program, data, Randomness("importances"))
    explain(session, honest, changed(*changes)(data[honest]))
    assert any("importances" in r.step for seen in session.seen for r in seen.received)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_losses_that_others_do_not_learn(task: str, n: int) -> None:
    """Everybody but the label's holder learns when it stops, and no loss and no prediction."""
    terms: dict[str, Any] = {"watched": True, "reveal_validation": True}
    program, data = training("masked", task, n, n - 1, tables=2, **terms)
    session = perform(program, data, Randomness("others"))
    explain(session, n - 1, changed(other_label, twins)(data[-1]))


@pytest.mark.parametrize("task", TASKS)
def test_predictions_of_validation_rows(task: str) -> None:
    """What leads to them is explained by other training rows."""
    terms: dict[str, Any] = {"watched": True, "reveal_validation": True}
    program, data = training("masked", task, 3, 0, tables=1, **terms)
    session = perform(program, data, Randomness("predicted"))
    explain(session, 0, changed(twins_trained)(data[0]))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("task", ALL_TASKS)
def test_resumed_training(task: str, n: int, honest: int) -> None:
    """Two sessions: a training that is cut short, and the rest of it under fresh masks."""
    changes = [twins, mirror] + ([other_label] if honest == n - 1 else [])
    program, data = training("masked", task, n, honest, tables=1)
    session = perform(program, data, Randomness("first"))
    found = explain(session, honest, changed(*changes)(data[honest]))
    states = [seen.result for seen in session.seen]
    again = [(own, state) for (own, _), state in zip(data, states, strict=True)]
    second = perform(program.rest(1), again, Randomness("second"))
    own, _ = changed(*changes)(data[honest])
    explain(second, honest, (own, found.seen[honest].result))


@pytest.mark.parametrize(("n", "honest"), [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1)])
@pytest.mark.parametrize("task", TASKS)
def test_training_by_the_paper_s_protocol(task: str, n: int, honest: int) -> None:
    """It reveals the best bucket of every feature, so columns cannot be mirrored here."""
    changes = [twins] + ([other_label] if honest == n - 1 else [])
    program, data = training("paper", task, n, honest, tables=2 if n == 2 else 1)
    session = perform(program, data, Randomness("paper"))
    explain(session, honest, changed(*changes)(data[honest]))
