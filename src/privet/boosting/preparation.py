"""What a participant does with its rows, alone, before a training: label, features, buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_each
from privet.data.encoder import Encoder, features_of
from privet.data.encoding import learn
from privet.data.frame import ByColumn, Column, Frame
from privet.data.ids import Ids
from privet.data.kinds import Kind
from privet.data.labels import settle_label
from privet.errors import DataError, ParameterError
from privet.terms.params import Params
from privet.terms.validation import check_split, count_validation, rows_in_order
from privet.terms.weights import (
    ClassWeight,
    Mean,
    Weighting,
    class_weights,
    usable_weights,
    weights_by_class,
)


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """One participant's rows, ready for a training."""

    columns: BucketedColumns
    label: FloatArray | None
    weight: FloatArray | None
    """How much each row counts, in means, if that is said."""
    classes: tuple[str, ...]
    """The names of the label's classes, if it has any: of two, the positive one is the last."""
    encoders: tuple[Encoder, ...]
    """What makes features of new rows."""
    ids: Ids | None
    """Which samples the rows are, if they have ids."""
    label_kind: Kind | None = None
    """What the label's column holds, if there is one."""
    weighting: Weighting | None = None
    """What makes weights in means of those that rows have, if they have any."""


def prepare(
    owner: str,
    table: ByColumn,
    params: Params,
    positive: str | None = None,
    class_weight: ClassWeight | None = None,
) -> Prepared:
    """Settle what the label's classes are, make features of the columns, and bucket these.

    The rows that the parameters set aside go last; nothing is learned from them, but for the names
    of classes. Raises DataError if the label cannot be split so.
    """
    n_validation = count_validation(table.n_samples, params)
    n_trained = table.n_samples - n_validation
    if n_validation:
        table = table.take(rows_in_order(table.n_samples, params))
    frame = table.frame
    classes: list[str] = []
    label_kind = None if frame.label is None else frame.label_content.kind
    if frame.label is not None:
        frame, classes = settle_label(frame, params.task, positive, params.classes)
        assert frame.label is not None
        check_split(params, frame.label, n_validation)
    trained = frame.take(np.arange(n_trained)) if n_validation else frame
    by_class: tuple[float, ...] = ()
    if class_weight is not None:
        trained = weighted_by_class(trained, classes, class_weight)
        assert trained.label is not None
        by_class = tuple(weights_by_class(trained.label, classes, class_weight).tolist())
    weight, weighting = trained.weight, None
    if trained.label is not None and weight is not None:
        weighting = Weighting(Mean.of(weight), by_class)
        weight = usable_weights(weight, trained.label, params.objective)
    encoders = learn((each.take(slice(n_trained)) for each in table.columns), params.buckets)
    features = features_one_by_one(table.columns, encoders)
    return Prepared(
        columns=bucket_each(
            owner,
            features_of(encoders),
            features,
            table.n_samples,
            params.buckets,
            n_validation,
        ),
        label=frame.label,
        weight=weight,
        classes=tuple(classes),
        encoders=encoders,
        ids=frame.ids,
        label_kind=label_kind,
        weighting=weighting,
    )


def features_one_by_one(
    columns: Sequence[Column], encoders: Sequence[Encoder]
) -> Iterator[FloatArray]:
    """Yield the features of columns: one is in memory at a time."""
    for column, encoder in zip(columns, encoders, strict=True):
        yield from encoder.encode_each(column.content, column.read())


def refuse_constrained_categories(encoders: Iterable[Encoder], wanted: Iterable[str]) -> None:
    """Raise ParameterError if a column that is to be constrained holds categories."""
    names = set(wanted)
    for encoder in encoders:
        if encoder.kind.name == "category" and names & {encoder.column, *encoder.features}:
            raise ParameterError(
                f"monotone: column {encoder.column!r} holds categories, which do not grow; leave "
                "it out, or make numbers of them"
            )


def weighted_by_class(frame: Frame, classes: Sequence[str], wanted: ClassWeight) -> Frame:
    """Return a frame, whose label numbers the classes, with their weights times its rows' own."""
    assert frame.label is not None
    if not classes:
        raise DataError("class_weight: the label has no classes; leave it out")
    found = class_weights(frame.label, classes, wanted)
    return replace(frame, weight=found if frame.weight is None else found * frame.weight)
