"""What a participant learned of its whole table, and some of its rows prepared by that.

Whoever works on a part of the rows reads these alone, and gets of them what `prepare` made of all:
the same buckets, label and weights. All that depends on the other rows is learned before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.arithmetic.roomy import roomy
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns, fill_buckets
from privet.boosting.federation import PartyData
from privet.boosting.preparation import Prepared, features_one_by_one
from privet.data.description import DataDescription
from privet.data.encoder import Encoder, features_of
from privet.data.frame import ByColumn
from privet.data.ids import Ids
from privet.data.kinds import Kind
from privet.data.labels import code_some
from privet.data.reader import OTHER_ROWS, Rules, read_some_rows
from privet.data.sources.source import naming
from privet.errors import DataError
from privet.terms.weights import Weighting


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
