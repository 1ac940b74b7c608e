"""A participant's data for a training run: label, features and buckets, for all rows or a shard.

A worker reads only the rows of its shard and obtains the same buckets, label and weights as
`prepare_data` does for all rows: everything that depends on other rows (encoders, thresholds,
classes, the mean weight) is fitted before (`TableEncoding`).
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
    """One participant's rows, ready for a training run."""

    columns: BucketedColumns
    label: FloatArray | None
    sample_weight: FloatArray | None
    """The weight of each training row, divided by the mean weight, if rows have weights."""
    classes: tuple[str, ...]
    """The names of the label's classes, if any: the second of two is the positive one."""
    encoders: tuple[Encoder, ...]
    """The encoders of the columns, for new rows."""
    ids: Ids | None
    """The ids of the rows, if they have any."""
    label_type: ColumnType | None = None
    """The column type of the label, if there is one."""
    weighting: WeightNormaliser | None = None
    """The normaliser of weights, if rows have weights."""


def prepare_data(
    owner: str,
    table: LazyFrame,
    params: Params,
    positive: str | None = None,
    class_weight: ClassWeight | None = None,
) -> PreparedData:
    """Determine the classes of the label, encode the columns as features, and bucket these.

    Validation rows come last; only the class names are fitted to them, too. Raises DataError if the
    label does not allow these validation rows.
    """
    n_validation = count_validation_rows(table.n_samples, params)
    n_trained = table.n_samples - n_validation
    if n_validation:
        table = table.take(order_rows(table.n_samples, params))
    frame = table.row_data
    classes: list[str] = []
    label_type = None if frame.label is None else frame.label_schema.column_type
    if frame.label is not None:
        frame, classes = prepare_label(frame, params.task, positive, params.classes)
        assert frame.label is not None
        check_validation_label(params, frame.label, n_validation)
    trained = frame.take(np.arange(n_trained)) if n_validation else frame
    class_weights: tuple[float, ...] = ()
    if class_weight is not None:
        trained = apply_class_weights(trained, classes, class_weight)
        assert trained.label is not None
        class_weights = tuple(compute_class_weights(trained.label, classes, class_weight).tolist())
    weight, weighting = trained.weight, None
    if trained.label is not None and weight is not None:
        weighting = WeightNormaliser(WeightMean.from_weights(weight), class_weights)
        weight = check_and_normalise_weights(weight, trained.label, params.objective)
    encoders = fit_encoders(
        (column.take(slice(n_trained)) for column in table.columns), params.buckets
    )
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
        label_type=label_type,
        weighting=weighting,
    )


def iter_features(
    columns: Sequence[LazyColumn], encoders: Sequence[Encoder]
) -> Iterator[FloatArray]:
    """Yield the features of columns, one in memory at a time."""
    for column, encoder in zip(columns, encoders, strict=True):
        yield from encoder.iter_features(column.schema, column.read())


def check_constrained_columns(encoders: Iterable[Encoder], constrained: Iterable[str]) -> None:
    """Raise ParameterError if a constrained column holds categories."""
    names = set(constrained)
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
    """Return a frame with each row's weight times that of its class; its label contains codes."""
    assert frame.label is not None
    if not classes:
        raise DataError("class_weight: the label has no classes; leave it out")
    weight = compute_class_sample_weights(frame.label, classes, class_weight)
    return replace(frame, weight=weight if frame.weight is None else weight * frame.weight)


@dataclass(frozen=True, eq=False, repr=False)
class TableEncoding:
    """The encoders, thresholds and classes fitted to all local rows: as private as the rows."""

    owner: str
    encoders: tuple[Encoder, ...]
    thresholds: FloatArray
    """The thresholds of each feature, padded with inf: (n_features, B - 1)."""
    classes: tuple[str, ...] = ()
    """The names of the label's classes, if any, in the order of their codes."""
    label_type: ColumnType | None = None
    """The column type of the label, if there is one."""
    weighting: WeightNormaliser | None = None
    """The normaliser of weights, if rows have weights."""

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
        """Return the encoding of prepared rows."""
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
    """The ids that rows must have: a table, or the order of its rows, can change on disk."""

    rules: IdRules
    """The rules by which ids are normalised."""
    digest: bytes
    """The digest of the ids of these rows, in the requested order."""


def require_same_rows(where: str, ids: Ids | None, order: IndexArray, digest: bytes) -> None:
    """Raise DataError unless the rows, in this order, have the same ids as before."""
    if ids is None or ids.take(order).digest() != digest:
        raise DataError(f"{where}: {CHANGED_TABLE_MESSAGE}")


def prepare_shard(
    table_spec: TableSpec,
    encoding: TableEncoding,
    rows: IndexArray,
    n_validation: int = 0,
    expected_ids: ExpectedIds | None = None,
) -> TrainingData:
    """Read some rows of the encoded table, and prepare them as `prepare_data` prepared all rows.

    `rows` are their numbers in the table, from 0, in the requested order; the last `n_validation`
    of them are validation rows, which have no weight. Raises DataError if `expected_ids` is given
    and the rows have other ids.
    """
    sorted_rows, order = np.unique(rows, return_inverse=True)
    rules = None if expected_ids is None else expected_ids.rules
    table = read_selected_rows(
        table_spec, sorted_rows, encoding.encoders, encoding.label_type, rules
    )
    frame = table.row_data
    if expected_ids is not None:
        require_same_rows(table_spec.display_name, frame.ids, order, expected_ids.digest)
    columns = BucketedColumns(
        encoding.owner,
        list_feature_names(encoding.encoders),
        _compute_buckets(table, encoding, order),
        encoding.thresholds,
    )
    if frame.label is None:
        return TrainingData(columns, None)
    with locate_errors(table_spec.display_name):
        label = encode_selected_labels(
            frame.label, frame.label_schema, encoding.classes, sorted_rows
        )[order]
    weight, weighting = None, encoding.weighting
    if weighting is not None:
        trained = slice(len(rows) - n_validation)
        trained_weight = None if frame.weight is None else frame.weight[order][trained]
        weight = weighting.apply(trained_weight, label[trained])
    return TrainingData(columns, label, weight)


def _compute_buckets(table: LazyFrame, encoding: TableEncoding, order: IndexArray) -> BucketArray:
    """Return the buckets of a table's rows, in the given order."""
    buckets: BucketArray = allocate_array((len(encoding.thresholds), len(order)), np.uint8)
    features = iter_features(table.columns, encoding.encoders)
    for target, feature, cuts in zip(buckets, features, encoding.thresholds, strict=True):
        write_buckets(target, feature[order], cuts)
    return buckets
