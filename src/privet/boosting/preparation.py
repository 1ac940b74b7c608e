"""A participant's data for a training run: label, features and buckets, for all rows or a shard.

Whoever works on a part of the rows reads these alone, and gets of them what `prepare_data` made of
all: the same buckets, label and weights. All that depends on the other rows is learned before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.arithmetic.large_arrays import allocate_array
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns, bucket_column_stream, write_buckets
from privet.boosting.training import TrainingData
from privet.config.table import TableSpec
from privet.data.encoding import (
    Encoder,
    encode_selected_labels,
    fit_encoders,
    list_feature_names,
    prepare_label,
)
from privet.data.frame import Frame, Ids, LazyColumn, LazyFrame
from privet.data.reader import CHANGED_TABLE_MESSAGE, IdRules, read_selected_rows
from privet.data.sources.base import locate_errors
from privet.errors import DataError, ParameterError
from privet.spec.column_types import ColumnType
from privet.spec.params import Params
from privet.spec.sampling import (
    ClassWeight,
    WeightMean,
    WeightNormaliser,
    check_and_normalise_weights,
    check_validation_label,
    compute_class_sample_weights,
    compute_class_weights,
    count_validation_rows,
    order_rows,
)


@dataclass(frozen=True, eq=False, repr=False)
class PreparedData:
    """One participant's rows, ready for a training."""

    columns: BucketedColumns
    label: FloatArray | None
    sample_weight: FloatArray | None
    """How much each row counts, in means, if that is said."""
    classes: tuple[str, ...]
    """The names of the label's classes, if it has any: of two, the positive one is the last."""
    encoders: tuple[Encoder, ...]
    """What makes features of new rows."""
    ids: Ids | None
    """Which samples the rows are, if they have ids."""
    label_type: ColumnType | None = None
    """What the label's column holds, if there is one."""
    weighting: WeightNormaliser | None = None
    """What makes weights in means of those that rows have, if they have any."""


def prepare_data(
    owner: str,
    table: LazyFrame,
    params: Params,
    positive: str | None = None,
    class_weight: ClassWeight | None = None,
) -> PreparedData:
    """Settle what the label's classes are, make features of the columns, and bucket these.

    The rows that the parameters set aside go last; nothing is learned from them, but for the names
    of classes. Raises DataError if the label cannot be split so.
    """
    n_validation = count_validation_rows(table.n_samples, params)
    n_trained = table.n_samples - n_validation
    if n_validation:
        table = table.take(order_rows(table.n_samples, params))
    frame = table.row_data
    classes: list[str] = []
    label_kind = None if frame.label is None else frame.label_schema.column_type
    if frame.label is not None:
        frame, classes = prepare_label(frame, params.task, positive, params.classes)
        assert frame.label is not None
        check_validation_label(params, frame.label, n_validation)
    trained = frame.take(np.arange(n_trained)) if n_validation else frame
    by_class: tuple[float, ...] = ()
    if class_weight is not None:
        trained = apply_class_weights(trained, classes, class_weight)
        assert trained.label is not None
        by_class = tuple(compute_class_weights(trained.label, classes, class_weight).tolist())
    weight, weighting = trained.weight, None
    if trained.label is not None and weight is not None:
        weighting = WeightNormaliser(WeightMean.from_weights(weight), by_class)
        weight = check_and_normalise_weights(weight, trained.label, params.objective)
    encoders = fit_encoders((each.take(slice(n_trained)) for each in table.columns), params.buckets)
    features = iter_features(table.columns, encoders)
    return PreparedData(
        columns=bucket_column_stream(
            owner,
            list_feature_names(encoders),
            features,
            table.n_samples,
            params.buckets,
            n_validation,
        ),
        label=frame.label,
        sample_weight=weight,
        classes=tuple(classes),
        encoders=encoders,
        ids=frame.ids,
        label_type=label_kind,
        weighting=weighting,
    )


def iter_features(
    columns: Sequence[LazyColumn], encoders: Sequence[Encoder]
) -> Iterator[FloatArray]:
    """Yield the features of columns: one is in memory at a time."""
    for column, encoder in zip(columns, encoders, strict=True):
        yield from encoder.iter_features(column.schema, column.read())


def check_constrained_columns(encoders: Iterable[Encoder], wanted: Iterable[str]) -> None:
    """Raise ParameterError if a column that is to be constrained holds categories."""
    names = set(wanted)
    for encoder in encoders:
        if encoder.column_type.name == "category" and names & {
            encoder.column,
            *encoder.feature_names,
        }:
            raise ParameterError(
                f"monotone: column {encoder.column!r} holds categories, which do not grow; leave "
                "it out, or make numbers of them"
            )


def apply_class_weights(frame: Frame, classes: Sequence[str], class_weight: ClassWeight) -> Frame:
    """Return a frame, whose label numbers the classes, with their weights times its rows' own."""
    assert frame.label is not None
    if not classes:
        raise DataError("class_weight: the label has no classes; leave it out")
    found = compute_class_sample_weights(frame.label, classes, class_weight)
    return replace(frame, weight=found if frame.weight is None else found * frame.weight)


@dataclass(frozen=True, eq=False, repr=False)
class TableEncoding:
    """What a participant learned of all its rows: its own, like the rows."""

    owner: str
    encoders: tuple[Encoder, ...]
    thresholds: FloatArray
    """Of every feature, padded with inf: (n_features, B - 1)."""
    classes: tuple[str, ...] = ()
    """The names of the label's classes, if it has any, in the order of their numbers."""
    label_type: ColumnType | None = None
    """What the label's column holds, if there is one."""
    weighting: WeightNormaliser | None = None
    """What makes weights in means of those that rows have, if they have any."""

    def __post_init__(self) -> None:
        if self.thresholds.ndim != 2 or len(self.thresholds) != len(
            list_feature_names(self.encoders)
        ):
            raise DataError(
                f"thresholds of shape {self.thresholds.shape} for "
                f"{len(list_feature_names(self.encoders))} features"
            )

    @classmethod
    def from_prepared(cls, prepared: PreparedData) -> TableEncoding:
        """Return what there is to know of rows that are prepared."""
        return cls(
            owner=prepared.columns.owner,
            encoders=prepared.encoders,
            thresholds=prepared.columns.thresholds,
            classes=prepared.classes,
            label_type=prepared.label_type,
            weighting=prepared.weighting,
        )


@dataclass(frozen=True)
class ExpectedIds:
    """What shows that rows are those that were meant: a table may change, or its order."""

    rules: IdRules
    """How ids are compared."""
    digest: bytes
    """Of the ids of these rows, in the order in which they are wanted."""


def require_same_rows(where: str, ids: Ids | None, order: IndexArray, digest: bytes) -> None:
    """Raise DataError unless rows, in an order, have the ids that they had before."""
    if ids is None or ids.take(order).digest() != digest:
        raise DataError(f"{where}: {CHANGED_TABLE_MESSAGE}")


def prepare_shard(
    table_spec: TableSpec,
    encoding: TableEncoding,
    rows: IndexArray,
    n_validation: int = 0,
    expected_ids: ExpectedIds | None = None,
) -> TrainingData:
    """Read some rows of the table that this was learned of, and prepare them as all were.

    `rows` are their numbers in the table, from 0, in the order in which they are wanted; the last
    `n_validation` of them are validation rows, which have no weight. Raises DataError if they have
    not the `expected_ids` ids, where these are to be looked at.
    """
    ordered, place = np.unique(rows, return_inverse=True)
    rules = None if expected_ids is None else expected_ids.rules
    table = read_selected_rows(table_spec, ordered, encoding.encoders, encoding.label_type, rules)
    frame = table.row_data
    if expected_ids is not None:
        require_same_rows(table_spec.display_name, frame.ids, place, expected_ids.digest)
    columns = BucketedColumns(
        encoding.owner,
        list_feature_names(encoding.encoders),
        _buckets(table, encoding, place),
        encoding.thresholds,
    )
    if frame.label is None:
        return TrainingData(columns, None)
    with locate_errors(table_spec.display_name):
        label = encode_selected_labels(frame.label, frame.label_schema, encoding.classes, ordered)[
            place
        ]
    weight, weighting = None, encoding.weighting
    if weighting is not None:
        trained = slice(len(rows) - n_validation)
        own = None if frame.weight is None else frame.weight[place][trained]
        weight = weighting.apply(own, label[trained])
    return TrainingData(columns, label, weight)


def _buckets(table: LazyFrame, encoding: TableEncoding, order: IndexArray) -> BucketArray:
    """Return the buckets of a table's rows, in an order."""
    buckets: BucketArray = allocate_array((len(encoding.thresholds), len(order)), np.uint8)
    features = iter_features(table.columns, encoding.encoders)
    for target, feature, cuts in zip(buckets, features, encoding.thresholds, strict=True):
        write_buckets(target, feature[order], cuts)
    return buckets
