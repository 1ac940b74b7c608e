"""What a participant does with its rows, alone, before a training: label, features, buckets."""

from __future__ import annotations

from dataclasses import dataclass

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.data.encoder import Encoder
from privet.data.encoding import encode, learn
from privet.data.frame import Frame
from privet.data.labels import settle_label
from privet.terms.params import Params


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """One participant's rows, ready for a training."""

    columns: BucketedColumns
    label: FloatArray | None
    classes: tuple[str, ...]
    """The names of the label's classes, if it has any: of two, the positive one is the last."""
    encoders: tuple[Encoder, ...]
    """What makes features of new rows."""


def prepare(owner: str, frame: Frame, params: Params, positive: str | None = None) -> Prepared:
    """Settle what the label's classes are, make features of the columns, and bucket these."""
    classes: list[str] = []
    if frame.label is not None:
        frame, classes = settle_label(frame, params.task, positive, params.classes)
    encoders = learn(frame, params.buckets)
    features = encode(frame, encoders)
    columns = bucket_columns(owner, features.names, features.columns, params.buckets)
    return Prepared(columns, frame.label, tuple(classes), encoders)
