"""The served model of a participant: its rows, and its replacement by a new model.

A new training run overwrites the file of the model part. A background thread loads the new part,
and the service switches to it when all participants have loaded it (`serving.service`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from typing_extensions import Self

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.data.frame import Frame, Ids
from privet.errors import DataError, PrivetError
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.serving.request_queue import PredictionRequest, Rejection
from privet.storage.model_part import ModelPartFile


@dataclass(frozen=True, eq=False, repr=False)
class ServedModel:
    """The local part of a model, and the local features of the rows that can be requested."""

    part_file: ModelPartFile
    frame: Frame
    row_by_key: dict[str, int] = field(init=False)
    """Row number of each match key."""

    def __post_init__(self) -> None:
        keys = self.ids.match_keys.to_pylist()
        object.__setattr__(self, "row_by_key", {key: row for row, key in enumerate(keys)})

    @property
    def model_id(self) -> str:
        """Id of the model, the same at all participants."""
        return self.part_file.model_id

    @property
    def ids(self) -> Ids:
        """Ids of the rows."""
        assert self.frame.ids is not None
        return self.frame.ids

    def select_rows(self, rows: IndexArray) -> ServedModel:
        """Return the model with only some of its rows, in that order."""
        return ServedModel(self.part_file, self.frame.take(rows))

    def find_rows(self, keys: Sequence[str]) -> IndexArray:
        """Return the row numbers of some keys; -1 for an unknown key."""
        return np.array([self.row_by_key.get(key, -1) for key in keys], dtype=np.intp)


GetModel = Callable[[], ServedModel]
"""Returns the newest loaded model."""


_POLL_SECONDS = 1.0


class ReloadingModel:
    """The newest usable model in a file, loaded again when the file changes."""

    def __init__(
        self,
        path: str | Path,
        load_model: Callable[[], ServedModel],
        emit: EventHandler,
        *,
        rows_are_aligned: bool,
    ) -> None:
        """Load the first model; an error of `load_model` is raised.

        If `rows_are_aligned`, a newer model must have the same ids.
        """
        self._path = Path(path)
        self._load_model = load_model
        self._emit = emit
        self._aligned = rows_are_aligned
        self._last_signature = self._stat_signature()
        self._current = load_model()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="new models", daemon=True)

    def __call__(self) -> ServedModel:
        """Return the newest loaded model."""
        return self._current

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            signature = self._stat_signature()
            if signature is not None and signature != self._last_signature:
                self._last_signature = signature
                self._replace()

    def _replace(self) -> None:
        try:
            model = self._load_model()
        except PrivetError as error:
            self._reject(str(error))
            return
        if model.model_id == self._current.model_id:
            return
        if self._aligned and not model.ids.match_keys.equals(self._current.ids.match_keys):
            self._reject("the table has other ids now; start the service anew")
            return
        self._current = model
        text = f"loaded a new model, {model.model_id[:16]}: used as soon as all have it"
        self._emit(Event("model", text, {"used": False, "model": model.model_id}))

    def _reject(self, reason: str) -> None:
        text = f"the new model is not used: {reason}"
        self._emit(Event("model", text, {"used": False, "refused": True}))

    def _stat_signature(self) -> tuple[int, int, int] | None:
        """Return values that change when the file is replaced; None if there is no file."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


def accept_or_reject(model: ServedModel, request: PredictionRequest) -> bool:
    """Return whether a model can use the inline rows of a request; reject the request if not."""
    if request.inline_rows is not None:
        try:
            request.inline_rows.encode(model.part_file.encoders)
        except DataError as error:
            # The rows were checked on arrival, so the model was replaced since.
            request.rejection = Rejection("changed", f"the model was replaced: {error}")
            request.mark_done()
    return not request.is_done


def find_inline_rows(requests: Sequence[PredictionRequest]) -> BoolArray:
    """Return a mask of the requested ids whose rows came inline, with the request."""
    counts = [len(request.ids) for request in requests]
    return np.repeat([request.inline_rows is not None for request in requests], counts).astype(
        np.bool_
    )


def make_recipient_features(
    model: ServedModel, requests: Sequence[PredictionRequest], rows: IndexArray, selected: BoolArray
) -> FloatArray:
    """Return the local features of the selected ids, from inline rows or from the local table."""
    columns: FloatArray = model.frame.columns[:, rows]
    start = 0
    for request in requests:
        end = start + len(request.ids)
        if request.inline_rows is not None:
            columns[:, start:end] = request.inline_rows.encode(model.part_file.encoders)
        start = end
    return np.ascontiguousarray(columns[:, selected])
