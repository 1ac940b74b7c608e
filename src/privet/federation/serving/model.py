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
from privet.federation.monitoring.events import Event, Tell
from privet.federation.serving.request_queue import Refusal, Request
from privet.storage.model_part import PartFile


@dataclass(frozen=True, eq=False, repr=False)
class ServedModel:
    """Our part of a model, and our features of the rows that can be asked for."""

    file: PartFile
    frame: Frame
    rows: dict[str, int] = field(init=False)
    """Where the row of each key is."""

    def __post_init__(self) -> None:
        keys = self.ids.keys.to_pylist()
        object.__setattr__(self, "rows", {key: row for row, key in enumerate(keys)})

    @property
    def name(self) -> str:
        """The model's, the same at all participants."""
        return self.file.model

    @property
    def ids(self) -> Ids:
        """Whose rows they are."""
        assert self.frame.ids is not None
        return self.frame.ids

    def take(self, rows: IndexArray) -> ServedModel:
        """Return the same with some rows alone, in that order."""
        return ServedModel(self.file, self.frame.take(rows))

    def find(self, asked: Sequence[str]) -> IndexArray:
        """Return which rows have these keys; -1 where none has."""
        return np.array([self.rows.get(key, -1) for key in asked], dtype=np.intp)


Newest = Callable[[], ServedModel]
"""Returns the model that was loaded last."""


_LOOK_SECONDS = 1.0


class WatchedModel:
    """The newest model of a file that can be used."""

    def __init__(
        self, path: str | Path, load: Callable[[], ServedModel], tell: Tell, *, aligned: bool
    ) -> None:
        """Load a model, and raise what keeps that from being done.

        Where rows were aligned, a newer one must come with the same ids.
        """
        self._path = Path(path)
        self._load = load
        self._tell = tell
        self._aligned = aligned
        self._seen = self._signature()
        self._newest = load()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="new models", daemon=True)

    def __call__(self) -> ServedModel:
        """Return the model that was loaded last."""
        return self._newest

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            found = self._signature()
            if found is not None and found != self._seen:
                self._seen = found
                self._replace()

    def _replace(self) -> None:
        try:
            found = self._load()
        except PrivetError as error:
            self._refuse(str(error))
            return
        if found.name == self._newest.name:
            return
        if self._aligned and not found.ids.keys.equals(self._newest.ids.keys):
            self._refuse("the table has other ids now; start the service anew")
            return
        self._newest = found
        text = f"loaded a new model, {found.name[:16]}: used as soon as all have it"
        self._tell(Event("model", text, {"used": False, "model": found.name}))

    def _refuse(self, why: str) -> None:
        text = f"the new model is not used: {why}"
        self._tell(Event("model", text, {"used": False, "refused": True}))

    def _signature(self) -> tuple[int, int, int] | None:
        """Return what tells one file at that path from another; None if there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


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
