"""From columns to features: what encoders are learned on, and what they make of a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from privet.arrays import FloatArray
from privet.data.encoder import Encoder, features_of
from privet.data.frame import Column, Frame
from privet.errors import DataError


def learn(columns: Iterable[Column], buckets: int) -> tuple[Encoder, ...]:
    """Return what there is to know of every column, from the rows of a training."""
    return tuple(Encoder.learn(each.name, each.content, each.read, buckets) for each in columns)


def encode(frame: Frame, encoders: Sequence[Encoder]) -> Frame:
    """Return the features of a frame's rows."""
    position = {name: i for i, name in enumerate(frame.names)}
    names, rows = features_of(encoders), list[FloatArray]()
    for encoder in encoders:
        if encoder.column not in position:
            raise DataError(f"there is no column {encoder.column!r}, which the model needs")
        i = position[encoder.column]
        rows.append(encoder.encode(frame.contents[i], frame.columns[i]))
    if names == frame.names and all(e.kind.name != "category" for e in encoders):
        return replace(frame, contents=())  # as it is, without a copy
    columns = np.concatenate(rows) if rows else np.empty((0, frame.n_samples))
    return replace(frame, names=names, columns=columns, contents=())
