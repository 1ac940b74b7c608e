"""What a label's values are: numbers to be estimated, or classes by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.data.encoder import in_words
from privet.data.frame import Frame, listing
from privet.data.kinds import NUMBERS, Content
from privet.errors import DataError
from privet.terms.objectives import MOST_CLASSES, OBJECTIVES

_SHOWN = 8
_WAS_THERE = "was not before: the table changed while it was in use; start again"


def task_of(frame: Frame) -> str:
    """Return what a label seems to ask for: text, and 0 and 1, are classes, all else numbers."""
    assert frame.label is not None
    if frame.label_content.kind.name in ("category", "boolean"):
        return "classification"
    there = frame.label[~np.isnan(frame.label)]
    return "classification" if np.isin(there, (0.0, 1.0)).all() else "regression"


def settle_label(
    frame: Frame, task: str, positive: str | None = None, agreed: int | None = None
) -> tuple[Frame, list[str]]:
    """Return a frame whose label is what a task takes, and the names of the classes.

    Classes are in the order of their names or numbers, or the one of two named positive is the
    last. There must be as many as were agreed on, if that was done.
    """
    label, content = frame.label, frame.label_content
    assert label is not None
    kind = content.kind.name
    if task != "classification":
        if positive is not None:
            raise DataError(f"positive: a {task} has no classes; leave it out")
        if kind != "number":
            raise DataError(
                f"the label is a {content.kind}, and a {task} needs numbers; is it a "
                "classification?"
            )
        OBJECTIVES[task].check_label(label)
        return frame, []
    gone = np.flatnonzero(np.isnan(label))
    if len(gone):
        raise DataError(
            f"the label of row {gone[0] + 1} is missing; every sample needs one ({len(gone)} of "
            f"{len(label)} have none): drop those rows everywhere"
        )
    values = np.unique(label)
    named = {_name(content, value): value for value in values}
    classes = sorted(named) if content.texts else list(named)
    complaint = _complaint(len(classes), agreed)
    if complaint:
        first = {name: int(np.argmax(label == named[name])) + 1 for name in classes[:_SHOWN]}
        shown = ", ".join(f"{name!r} (row {row})" for name, row in first.items())
        more = f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
        raise DataError(
            f"the label has {len(classes)} value{'s' * (len(classes) != 1)}, {shown}{more}: "
            f"{complaint}"
        )
    for value in values:
        if named[name := _name(content, value)] != value:
            rows = [int(np.argmax(label == each)) + 1 for each in (value, named[name])]
            raise DataError(
                f"the label has two values that are both written {name!r}, in rows {rows[0]} and "
                f"{rows[1]}: write them alike if they are one class, or else further apart"
            )
    if positive is not None:
        if kind == "boolean":
            positive = positive.lower()
        if len(classes) > 2:
            raise DataError(f"positive: is for two classes, not {len(classes)}; leave it out")
        if positive not in classes:
            raise DataError(f"the label has no value {positive!r}; it has {listing(classes)}")
        classes.sort(key=lambda name: name == positive)
    place = {named[name]: k for k, name in enumerate(classes)}
    codes = np.array([place[value] for value in values], dtype=np.float64)
    coded = codes[np.searchsorted(values, label)]
    return replace(frame, label=coded, label_content=NUMBERS), classes


def code_some(
    label: FloatArray, content: Content, classes: Sequence[str], rows: IndexArray
) -> FloatArray:
    """Return the label of some rows, with these numbers, as `settle_label` made it of all rows.

    `classes` are what it found; none in a regression.
    """
    gone = np.flatnonzero(np.isnan(label))
    if len(gone):
        raise DataError(f"the label of row {rows[gone[0]] + 1} is missing, and {_WAS_THERE}")
    if not classes:
        return label
    values, where = np.unique(label, return_inverse=True)
    names = [_name(content, value) for value in values]
    place = {name: k for k, name in enumerate(classes)}
    for k, name in enumerate(names):
        if name not in place:
            row = rows[int(np.argmax(where == k))]
            raise DataError(f"the label of row {row + 1} is {name!r}, and {_WAS_THERE}")
    coded: FloatArray = np.array([place[name] for name in names], dtype=np.float64)[where]
    return coded


def _complaint(found: int, agreed: int | None) -> str:
    """Say what is wrong with so many classes, if anything is."""
    if found < 2:
        return "a classification needs two or more"
    if found > MOST_CLASSES:
        return f"a classification has {MOST_CLASSES} classes at most; is it a regression?"
    if agreed is None or found == agreed:
        return ""
    advice = f"set classes = {found} in everybody's job"
    if found > agreed:
        return f"all agreed on {agreed} classes; {advice}, or put values together"
    return f"all agreed on {agreed} classes; {advice}, or get rows of those that are missing"


def _name(content: Content, value: float) -> str:
    if content.texts:
        return content.texts[int(value)]
    if content.kind.name == "boolean":
        return "true" if value else "false"
    return in_words(content.kind, value, digits=15)
