"""A participant's data for a training run: label, features and buckets, for all rows or a shard.

Whoever works on a part of the rows reads these alone, and gets of them what `prepare` made of all:
the same buckets, label and weights. All that depends on the other rows is learned before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.arithmetic.large_arrays import roomy
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns, bucket_each, fill_buckets
from privet.boosting.training import PartyData
from privet.config.table import DataDescription
from privet.data.encoding import Encoder, code_some, features_of, learn, settle_label
from privet.data.frame import ByColumn, Column, Frame, Ids
from privet.data.reader import OTHER_ROWS, Rules, read_some_rows
from privet.data.sources.base import naming
from privet.errors import DataError, ParameterError
from privet.spec.column_types import Kind
from privet.spec.params import Params
from privet.spec.sampling import (
    ClassWeight,
    Mean,
    Weighting,
    check_split,
    class_weights,
    count_validation,
    rows_in_order,
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


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """What a participant learned of all its rows: its own, like the rows."""

    owner: str
    encoders: tuple[Encoder, ...]
    thresholds: FloatArray
    """Of every feature, padded with inf: (n_features, B - 1)."""
    classes: tuple[str, ...] = ()
    """The names of the label's classes, if it has any, in the order of their numbers."""
    label_kind: Kind | None = None
    """What the label's column holds, if there is one."""
    weighting: Weighting | None = None
    """What makes weights in means of those that rows have, if they have any."""

    def __post_init__(self) -> None:
        if self.thresholds.ndim != 2 or len(self.thresholds) != len(features_of(self.encoders)):
            raise DataError(
                f"thresholds of shape {self.thresholds.shape} for "
                f"{len(features_of(self.encoders))} features"
            )

    @classmethod
    def of(cls, prepared: Prepared) -> Learned:
        """Return what there is to know of rows that are prepared."""
        return cls(
            owner=prepared.columns.owner,
            encoders=prepared.encoders,
            thresholds=prepared.columns.thresholds,
            classes=prepared.classes,
            label_kind=prepared.label_kind,
            weighting=prepared.weighting,
        )


@dataclass(frozen=True)
class SameIds:
    """What shows that rows are those that were meant: a table may change, or its order."""

    rules: Rules
    """How ids are compared."""
    digest: bytes
    """Of the ids of these rows, in the order in which they are wanted."""


def refuse_other_rows(where: str, ids: Ids | None, order: IndexArray, digest: bytes) -> None:
    """Raise DataError unless rows, in an order, have the ids that they had before."""
    if ids is None or ids.take(order).digest() != digest:
        raise DataError(f"{where}: {OTHER_ROWS}")


def prepare_rows(
    described: DataDescription,
    learned: Learned,
    rows: IndexArray,
    n_validation: int = 0,
    same: SameIds | None = None,
) -> PartyData:
    """Read some rows of the table that this was learned of, and prepare them as all were.

    `rows` are their numbers in the table, from 0, in the order in which they are wanted; the last
    `n_validation` of them are validation rows, which have no weight. Raises DataError if they have
    not the `same` ids, where these are to be looked at.
    """
    ordered, place = np.unique(rows, return_inverse=True)
    rules = None if same is None else same.rules
    table = read_some_rows(described, ordered, learned.encoders, learned.label_kind, rules)
    frame = table.frame
    if same is not None:
        refuse_other_rows(described.where, frame.ids, place, same.digest)
    columns = BucketedColumns(
        learned.owner,
        features_of(learned.encoders),
        _buckets(table, learned, place),
        learned.thresholds,
    )
    if frame.label is None:
        return PartyData(columns, None)
    with naming(described.where):
        label = code_some(frame.label, frame.label_content, learned.classes, ordered)[place]
    weight, weighting = None, learned.weighting
    if weighting is not None:
        trained = slice(len(rows) - n_validation)
        own = None if frame.weight is None else frame.weight[place][trained]
        weight = weighting.apply(own, label[trained])
    return PartyData(columns, label, weight)


def _buckets(table: ByColumn, learned: Learned, order: IndexArray) -> BucketArray:
    """Return the buckets of a table's rows, in an order."""
    buckets: BucketArray = roomy((len(learned.thresholds), len(order)), np.uint8)
    features = features_one_by_one(table.columns, learned.encoders)
    for target, feature, cuts in zip(buckets, features, learned.thresholds, strict=True):
        fill_buckets(target, feature[order], cuts)
    return buckets
