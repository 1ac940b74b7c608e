"""The disclosures of the protocols and their recipients: complete, and nothing else."""

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

ALL_PARTICIPANTS = ("party1", "party2", "party3")


def disclosures(ledger: DisclosureLedger) -> set[tuple[str, tuple[str, ...]]]:
    return {(entry.disclosure, entry.recipients) for entry in ledger.entries}


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize(
    "chosen", [{}, {"min_child_weight": 3.0}, {"min_gain": 1e-9}, {"subsample": 0.6}]
)
def test_training_disclosures(task: str, chosen: dict[str, float]) -> None:
    """All participants learn features and that numbers are in range; owners learn their buckets."""
    program, data = training("masked", task, 3, 0, chosen=chosen)
    session = perform(program, data, None)
    features = session.seen[0].result.part.feature
    owners = {(f"party{feature // 2 + 1}",) for feature in features.reshape(-1)}
    expected = {("split feature", ALL_PARTICIPANTS), ("numbers within bounds", ALL_PARTICIPANTS)}
    # One count for leaf values and one for squares of sampled rows, or one for scores and one for
    # the squares of each level. One count for each number would reveal the row or the leaf if a
    # check fails.
    counts = 2 * (1 + ("subsample" in chosen) if task == "regression" else 2 + DEPTH)
    for seen in session.seen:
        assert disclosures(seen.runtime.ledger) == expected | {
            ("split bucket", to) for to in owners
        }
        entries = seen.runtime.ledger.entries
        assert (
            sum(e.n_elements for e in entries if e.disclosure == "numbers within bounds") == counts
        )
        is_local = features // 2 == seen.runtime.index
        assert ((seen.result.part.bucket >= 0) == is_local).all()


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_gain_disclosures(task: str) -> None:
    """Only the label holder learns one number a level, of about 16 bits."""
    program, data = training("masked", task, 3, 0, reveal_gain=True)
    session = perform(program, data, None)
    other = perform(training("masked", task, 3, 0)[0], data, None)
    for seen, before in zip(session.seen, other.seen, strict=True):
        is_holder = seen.runtime.index == 2
        entries = [e for e in seen.runtime.ledger.entries if e.disclosure == "gain of a test"]
        assert [(e.recipients, e.n_elements) for e in entries] == [(("party3",), 1)] * 2 * DEPTH
        assert disclosures(seen.runtime.ledger) - disclosures(before.runtime.ledger) == {
            ("gain of a test", ("party3",))
        }
        sizes = [
            [r.array.nbytes for r in each.received if r.step == "table/level/reveal"]
            for each in (seen, before)
        ]
        assert (sizes[0] != sizes[1]) == is_holder
        assert (seen.result.part.gains is not None) == is_holder
    # The scores of the first table are at most 2^17 units.
    unit, scales = session.seen[2].result.part.label_unit.scale ** 2, Scales.from_plan(program.plan)
    unit *= float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales))
    in_units = 2 * session.seen[2].result.part.gains / unit
    assert in_units == pytest.approx(np.rint(in_units), abs=1e-6)
    assert 2**8 < in_units.sum(axis=1).max() < 2**17


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_scores_of_losing_candidates_stay_blinded(task: str) -> None:
    """In place of the scores of all features but the best, the label holder sees uniform numbers.

    A uniform number is as small as a score with a probability of 2^-24.
    """
    program, data = training("masked", task, 3, 0, reveal_gain=True)
    views = play(program, 3, data)
    for k, view in enumerate(views):
        blinded = [a for a in view.opened if a.ndim == 2 and a.shape[1] == 5]
        scores = [rows[2] for rows in blinded if len(rows) == 3]
        assert len(scores) == (2 * DEPTH if k == 2 else 0)
        assert all((numbers >= 1 << 24).all() for numbers in scores)


@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_validation_disclosures(task: str, revealed: bool) -> None:
    """Only the label holder learns one number a table and, if agreed, predictions.

    The other participants and the dealer learn whether training continues.
    """
    program, data = training("masked", task, 3, 0, watched=True, reveal_validation=revealed)
    session = perform(program, data, None)
    holder, rows = ("party3",), len(SET_ASIDE)
    early_stop = ("number of tables to keep, or none yet", (*ALL_PARTICIPANTS, DEALER_NAME))
    expected = {
        ("split feature", ALL_PARTICIPANTS),
        ("numbers within bounds", ALL_PARTICIPANTS),
        early_stop,
    }
    expected |= {("validation loss", holder)}
    expected |= {("predictions of validation rows", holder)} if revealed else set()
    for seen in session.seen:
        entries = seen.runtime.ledger.entries
        assert {e for e in disclosures(seen.runtime.ledger) if e[0] != "split bucket"} == expected
        counts = {e.disclosure: e.n_elements for e in entries}
        assert counts["validation loss"] == counts[early_stop[0]] == 1
        assert counts.get("predictions of validation rows", rows) == rows
        assert len(seen.result.losses) == (2 if seen.runtime.index == 2 else 0)
        # Only the label holder receives messages of these reveals.
        steps = [r.step for r in seen.received]
        to_holder = [s for s in steps if s in ("table", "predict")]
        assert bool(to_holder) == (seen.runtime.index == 2)
    # Losses are rounded to units of 2^-16 of the mean.
    unit = session.seen[2].result.part.label_unit
    for loss in session.seen[2].result.losses:
        in_units = loss / unit.scale**2 * 2**16
        assert in_units == pytest.approx(round(in_units), abs=1e-6)


@pytest.mark.parametrize(("by", "groups"), [("feature", 6), ("participant", 3)])
def test_importance_disclosures(by: ExplainBy, groups: int) -> None:
    """Only the label holder learns them: one number for each group, and none for a row."""
    settings: dict[str, Any] = {"watched": True, "has_explanations": True}
    ledgers = []
    for importances_by in (None, by):
        program, data = training(
            "masked", "regression", 3, 0, importances_by=importances_by, **settings
        )
        session = perform(program, data, None)
        ledgers.append([disclosures(seen.runtime.ledger) for seen in session.seen])
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
def test_constraints_add_no_disclosure(task: str) -> None:
    """Neither the cuts that would violate them are revealed, nor the order of leaf values."""
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
    # The tables of a regression also check the squares of residuals.
    assert revealed[1] == revealed[0] * (2 if task == "regression" else 1)


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("recipient", [0, 2])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_prediction_disclosures(protocol: str, recipient: int, task: str) -> None:
    """Only the recipient learns predictions and, in a regression, the unit if it lacks it."""
    program, data = prediction(protocol, 3, 0, recipient, task=task)
    session = perform(program, data, None)
    to = (f"party{recipient + 1}",)
    expected = {("predictions", to)}
    if recipient != 2 and task == "regression":
        expected.add(("centre and scale of the label", to))
    for k, seen in enumerate(session.seen):
        assert disclosures(seen.runtime.ledger) == expected
        assert (seen.result[0] is not None) == (k == recipient)


@pytest.mark.parametrize("by", ["feature", "participant"])
@pytest.mark.parametrize("recipient", [0, 1, 2])
def test_explained_prediction_disclosures(by: ExplainBy, recipient: int) -> None:
    """Only the recipient learns contributions, one for each feature or each participant."""
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


def test_explanations_add_no_disclosure_in_training() -> None:
    """Contributions stay in shares, and the owner of a split keeps its fraction of rows."""
    ledgers = []
    for explains in (False, True):
        program, data = training("masked", "regression", 3, 0, has_explanations=explains)
        session = perform(program, data, None)
        ledgers.append([disclosures(seen.runtime.ledger) for seen in session.seen])
    assert ledgers[0] == ledgers[1]


def test_only_the_recipient_learns_the_label_unit() -> None:
    """With another unit, the others receive only shares, in messages of the same shapes."""
    sessions = []
    for scale in (1.0, 1024.0):
        program, data = prediction("masked", 3, 0, 0, task="regression")
        part, batches = data[2]
        object.__setattr__(part, "label_unit", LabelUnit((0.0,), scale))
        data[2] = (part, batches)
        sessions.append(perform(program, data, None))
    for session in sessions:
        first = [r for r in session.seen[1].received if r.step == "predict"]
        # The share of the label holder; no other message at that step.
        assert [(r.peer, r.array.shape) for r in first] == [("party3", (2,))]
