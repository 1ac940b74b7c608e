"""The recipient's own columns of what it is asked for: from its table, or as they were given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.errors import DataError
from privet.federation.request_queue import Refusal, Request
from privet.federation.served_model import ServedModel


def can_use(model: ServedModel, request: Request) -> bool:
    """Tell whether a model can use what came with a request; refuse it if not."""
    if request.given is not None:
        try:
            request.given.features(model.file.encoders)
        except DataError as error:
            # It was checked when it came, so the model is another one since.
            request.refused = Refusal("changed", f"the model was replaced: {error}")
            request.settle()
    return not request.answered


def which_given(requests: Sequence[Request]) -> BoolArray:
    """Return of which ids that are asked for our columns came with the request."""
    counts = [len(request.ids) for request in requests]
    return np.repeat([request.given is not None for request in requests], counts).astype(np.bool_)


def own_columns(
    model: ServedModel, requests: Sequence[Request], rows: IndexArray, wanted: BoolArray
) -> FloatArray:
    """Return our features of what is wanted: those of our rows, unless they were given."""
    columns: FloatArray = model.frame.columns[:, rows]
    start = 0
    for request in requests:
        end = start + len(request.ids)
        if request.given is not None:
            columns[:, start:end] = request.given.features(model.file.encoders)
        start = end
    return np.ascontiguousarray(columns[:, wanted])
