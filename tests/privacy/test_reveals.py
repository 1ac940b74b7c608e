"""What leaves the protocol in the clear, and to whom: all of it, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.boosting.model_part import LabelUnit
from privet.protocols.masked.candidates import compute_score_units, count_hidden_gain_bits
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.accounting import DisclosureLedger
from privet.runtime.run import DEALER_NAME
from privet.spec.plan import ExplainBy
from tests.privacy.cases import DEPTH, SET_ASIDE, prediction, training
from tests.privacy.stage import perform
from tests.runtime.harness import play

EVERYBODY = ("party1", "party2", "party3")


def told(ledger: DisclosureLedger) -> set[tuple[str, tuple[str, ...]]]:
    return {(entry.disclosure, entry.recipients) for entry in ledger.entries}


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize(
    "chosen", [{}, {"min_child_weight": 3.0}, {"min_gain": 1e-9}, {"subsample": 0.6}]
)
def test_a_training(task: str, chosen: dict[str, float]) -> None:
    """All learn the features and that nothing is out of bounds; owners learn their own buckets."""
    program, data = training("masked", task, 3, 0, chosen=chosen)
    session = perform(program, data, None)
    features = session.seen[0].result.part.feature
    owners = {(f"party{feature // 2 + 1}",) for feature in features.reshape(-1)}
    expected = {("split feature", EVERYBODY), ("numbers within bounds", EVERYBODY)}
    # One count for leaf values and one for squares of the rows drawn, or one for scores and one for
    # squares of each level: not one for each number, which would tell in a training that fails
    # whose it was.
    counts = 2 * (1 + ("subsample" in chosen) if task == "regression" else 2 + DEPTH)
    for seen in session.seen:
        assert told(seen.runtime.ledger) == expected | {("split bucket", to) for to in owners}
        entries = seen.runtime.ledger.entries
        assert (
            sum(e.n_elements for e in entries if e.disclosure == "numbers within bounds") == counts
        )
        own = features // 2 == seen.runtime.index
        assert ((seen.result.part.bucket >= 0) == own).all()


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_gains(task: str) -> None:
    """The label's holder alone learns one number a level, of 16 bits or so; nobody else a byte."""
    program, data = training("masked", task, 3, 0, reveal_gain=True)
    session = perform(program, data, None)
    other = perform(training("masked", task, 3, 0)[0], data, None)
    for seen, before in zip(session.seen, other.seen, strict=True):
        holder = seen.runtime.index == 2
        entries = [e for e in seen.runtime.ledger.entries if e.disclosure == "gain of a test"]
        assert [(e.recipients, e.n_elements) for e in entries] == [(("party3",), 1)] * 2 * DEPTH
        assert told(seen.runtime.ledger) - told(before.runtime.ledger) == {
            ("gain of a test", ("party3",))
        }
        sizes = [
            [r.array.nbytes for r in each.received if r.step == "table/level/reveal"]
            for each in (seen, before)
        ]
        assert (sizes[0] != sizes[1]) == holder
        assert (seen.result.part.gains is not None) == holder
    # In units of which the scores of the first table have no more than 2^17.
    unit, scales = session.seen[2].result.part.label_unit.scale ** 2, Scales.from_plan(program.plan)
    unit *= float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales))
    in_units = 2 * session.seen[2].result.part.gains / unit
    assert in_units == pytest.approx(np.rint(in_units), abs=1e-6)
    assert 2**8 < in_units.sum(axis=1).max() < 2**17


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_scores_of_losers_stay_veiled(task: str) -> None:
    """Of all features but the best the label's holder sees uniform numbers, where scores would be.

    One in 2^24 of them is as small as these.
    """
    program, data = training("masked", task, 3, 0, reveal_gain=True)
    views = play(program, 3, data)
    for k, view in enumerate(views):
        veiled = [a for a in view.opened if a.ndim == 2 and a.shape[1] == 5]
        scores = [rows[2] for rows in veiled if len(rows) == 3]
        assert len(scores) == (2 * DEPTH if k == 2 else 0)
        assert all((numbers >= 1 << 24).all() for numbers in scores)


@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_validation_rows(task: str, revealed: bool) -> None:
    """The label's holder alone learns one number a table, and predictions if all agreed on that.

    All others, and the dealer, learn whether it goes on.
    """
    program, data = training("masked", task, 3, 0, watched=True, reveal_validation=revealed)
    session = perform(program, data, None)
    holder, rows = ("party3",), len(SET_ASIDE)
    word = ("number of tables to keep, or none yet", (*EVERYBODY, DEALER_NAME))
    expected = {("split feature", EVERYBODY), ("numbers within bounds", EVERYBODY), word}
    expected |= {("validation loss", holder)}
    expected |= {("predictions of validation rows", holder)} if revealed else set()
    for seen in session.seen:
        entries = seen.runtime.ledger.entries
        assert {e for e in told(seen.runtime.ledger) if e[0] != "split bucket"} == expected
        counts = {e.disclosure: e.n_elements for e in entries}
        assert counts["validation loss"] == counts[word[0]] == 1
        assert counts.get("predictions of validation rows", rows) == rows
        assert len(seen.result.losses) == (2 if seen.runtime.index == 2 else 0)
        # Of what is revealed to the holder alone, nobody else receives anything.
        steps = [r.step for r in seen.received]
        to_holder = [s for s in steps if s in ("table", "predict")]
        assert bool(to_holder) == (seen.runtime.index == 2)
    # Rounded: in units of 2^-16 of the mean.
    unit = session.seen[2].result.part.label_unit
    for loss in session.seen[2].result.losses:
        in_units = loss / unit.scale**2 * 2**16
        assert in_units == pytest.approx(round(in_units), abs=1e-6)


@pytest.mark.parametrize(("by", "groups"), [("feature", 6), ("participant", 3)])
def test_mean_absolute_contributions(by: ExplainBy, groups: int) -> None:
    """The label's holder alone learns them: a number each, and none of any row."""
    terms: dict[str, Any] = {"watched": True, "has_explanations": True}
    ledgers = []
    for importances_by in (None, by):
        program, data = training(
            "masked", "regression", 3, 0, importances_by=importances_by, **terms
        )
        session = perform(program, data, None)
        ledgers.append([told(seen.runtime.ledger) for seen in session.seen])
    for before, after in zip(*ledgers, strict=True):
        assert after - before == {("mean absolute contributions", ("party3",))}
    for k, seen in enumerate(session.seen):
        (entry,) = (
            e for e in seen.runtime.ledger.entries if e.disclosure == "mean absolute contributions"
        )
        assert entry.n_elements == groups
        revealed = [r for r in seen.received if r.step == "predict/importances"]
        assert bool(revealed) == (k == 2)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_constraints_reveal_no_more(task: str) -> None:
    """Neither which cuts would break them, nor in which order leaves were."""
    revealed = []
    for signs in ((), (0, -1, 1, 1, -1, 1)):
        program, data = training("masked", task, 3, 0, monotone=signs)
        session = perform(program, data, None)
        entries = [e for seen in session.seen for e in seen.runtime.ledger.entries]
        assert {e.disclosure for e in entries} == {
            "split feature",
            "split bucket",
            "numbers within bounds",
        }
        revealed.append(
            sum(e.n_elements for e in entries if e.disclosure == "numbers within bounds")
        )
    # A regression's tables check the squares of residuals, too.
    assert revealed[1] == revealed[0] * (2 if task == "regression" else 1)


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("recipient", [0, 2])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_prediction(protocol: str, recipient: int, task: str) -> None:
    """The recipient alone learns predictions, and a regression's unit if it has not got it."""
    program, data = prediction(protocol, 3, 0, recipient, task=task)
    session = perform(program, data, None)
    to = (f"party{recipient + 1}",)
    expected = {("predictions", to)}
    if recipient != 2 and task == "regression":
        expected.add(("centre and scale of the label", to))
    for k, seen in enumerate(session.seen):
        assert told(seen.runtime.ledger) == expected
        assert (seen.result[0] is not None) == (k == recipient)


@pytest.mark.parametrize("by", ["feature", "participant"])
@pytest.mark.parametrize("recipient", [0, 1, 2])
def test_an_explained_prediction(by: ExplainBy, recipient: int) -> None:
    """The recipient alone learns contributions, one for each feature or for each participant."""
    program, data = prediction("masked", 3, 0, recipient, sizes=(7,), explain=by)
    session = perform(program, data, None)
    features = len(data[0][0].features)
    assert features == (6 if by == "participant" else 3)
    for k, seen in enumerate(session.seen):
        entries = {e.disclosure: e for e in seen.runtime.ledger.entries}
        entries.pop("centre and scale of the label", None)
        assert set(entries) == {"predictions", "contributions and base"}
        assert {e.recipients for e in entries.values()} == {(f"party{recipient + 1}",)}
        assert entries["predictions"].n_elements == 7
        assert entries["contributions and base"].n_elements == 3 * 7 + 1
        assert (seen.result[0] is not None) == (k == recipient)


def test_a_training_that_explains_reveals_no_more() -> None:
    """What explains scores stays in shares, and shares of rows that pass with who owns the test."""
    ledgers = []
    for explains in (False, True):
        program, data = training("masked", "regression", 3, 0, has_explanations=explains)
        session = perform(program, data, None)
        ledgers.append([told(seen.runtime.ledger) for seen in session.seen])
    assert ledgers[0] == ledgers[1]


def test_nobody_but_the_recipient_sees_the_label_s_unit() -> None:
    """With another unit, the others receive messages of the same shapes, and shares alone."""
    sessions = []
    for scale in (1.0, 1024.0):
        program, data = prediction("masked", 3, 0, 0, task="regression")
        part, batches = data[2]
        object.__setattr__(part, "label_unit", LabelUnit((0.0,), scale))
        data[2] = (part, batches)
        sessions.append(perform(program, data, None))
    for session in sessions:
        first = [r for r in session.seen[1].received if r.step == "predict"]
        # From the active participant its share; from nobody else anything at that step.
        assert [(r.peer, r.array.shape) for r in first] == [("party3", (2,))]
