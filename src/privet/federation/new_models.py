"""A model that is served from a file, and whatever model takes its place there.

Who trains anew writes the new part over the old one. It is loaded beside the one that predicts, in
a thread of its own; the service changes over when all participants have it (`federation.serving`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from typing_extensions import Self

from privet.errors import PrivetError
from privet.federation.events import Event, Tell
from privet.federation.served_model import ServedModel

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
