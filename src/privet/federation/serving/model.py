"""The served model of a participant: its rows, and its replacement by a new model.

Who trains anew writes the new part over the old one. It is loaded beside the one that predicts, in
a thread of its own; the service changes over when all participants have it (`federation.serving`).
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
    """Our part of a model, and our features of the rows that can be asked for."""

    part_file: ModelPartFile
    frame: Frame
    row_by_key: dict[str, int] = field(init=False)
    """Where the row of each key is."""

    def __post_init__(self) -> None:
        keys = self.ids.match_keys.to_pylist()
        object.__setattr__(self, "row_by_key", {key: row for row, key in enumerate(keys)})

    @property
    def model_id(self) -> str:
        """The model's, the same at all participants."""
        return self.part_file.model_id

    @property
    def ids(self) -> Ids:
        """Whose rows they are."""
        assert self.frame.ids is not None
        return self.frame.ids

    def select_rows(self, rows: IndexArray) -> ServedModel:
        """Return the same with some rows alone, in that order."""
        return ServedModel(self.part_file, self.frame.take(rows))

    def find_rows(self, keys: Sequence[str]) -> IndexArray:
        """Return which rows have these keys; -1 where none has."""
        return np.array([self.row_by_key.get(key, -1) for key in keys], dtype=np.intp)


GetModel = Callable[[], ServedModel]
"""Returns the model that was loaded last."""


_POLL_SECONDS = 1.0


class ReloadingModel:
    """The newest model of a file that can be used."""

    def __init__(
        self,
        path: str | Path,
        load_model: Callable[[], ServedModel],
        emit: EventHandler,
        *,
        rows_are_aligned: bool,
    ) -> None:
        """Load a model, and raise what keeps that from being done.

        Where rows were aligned, a newer one must come with the same ids.
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
        """Return the model that was loaded last."""
        return self._current

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            found = self._stat_signature()
            if found is not None and found != self._last_signature:
                self._last_signature = found
                self._replace()

    def _replace(self) -> None:
        try:
            found = self._load_model()
        except PrivetError as error:
            self._reject(str(error))
            return
        if found.model_id == self._current.model_id:
            return
        if self._aligned and not found.ids.match_keys.equals(self._current.ids.match_keys):
            self._reject("the table has other ids now; start the service anew")
            return
        self._current = found
        text = f"loaded a new model, {found.model_id[:16]}: used as soon as all have it"
        self._emit(Event("model", text, {"used": False, "model": found.model_id}))

    def _reject(self, reason: str) -> None:
        text = f"the new model is not used: {reason}"
        self._emit(Event("model", text, {"used": False, "refused": True}))

    def _stat_signature(self) -> tuple[int, int, int] | None:
        """Return what tells one file at that path from another; None if there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def accept_or_reject(model: ServedModel, request: PredictionRequest) -> bool:
    """Tell whether a model can use what came with a request; refuse it if not."""
    if request.inline_rows is not None:
        try:
            request.inline_rows.encode(model.part_file.encoders)
        except DataError as error:
            # It was checked when it came, so the model is another one since.
            request.rejection = Rejection("changed", f"the model was replaced: {error}")
            request.mark_done()
    return not request.is_done


def find_inline_rows(requests: Sequence[PredictionRequest]) -> BoolArray:
    """Return of which ids that are asked for our columns came with the request."""
    counts = [len(request.ids) for request in requests]
    return np.repeat([request.inline_rows is not None for request in requests], counts).astype(
        np.bool_
    )


def make_recipient_features(
    model: ServedModel, requests: Sequence[PredictionRequest], rows: IndexArray, selected: BoolArray
) -> FloatArray:
    """Return our features of what is wanted: those of our rows, unless they were given."""
    columns: FloatArray = model.frame.columns[:, rows]
    start = 0
    for request in requests:
        end = start + len(request.ids)
        if request.inline_rows is not None:
            columns[:, start:end] = request.inline_rows.encode(model.part_file.encoders)
        start = end
    return np.ascontiguousarray(columns[:, selected])
