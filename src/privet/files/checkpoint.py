"""Checkpoints: after every table, what a participant needs to go on from there.

Participants move in step, so when one ends, each has the last table or the one before. Two
checkpoints are kept, therefore. A checkpoint's name holds the *run* it was made in, because tables
trained again after a failure have other shares: parts of two runs never meet. Nothing is removed
until its successor is safe.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from privet.boosting.federation import PartyData, TrainingState
from privet.errors import InputError, ModelError
from privet.files.atomic import make_folder, remove, write_atomically
from privet.files.part_file import PartRecord, to_part, to_record
from privet.files.records import Name, Sealed, read_record

FORMAT: Final = "privet-checkpoint"
VERSION = 2
Stage = tuple[int, str]
"""How many tables a training had done, and in which run."""


class _CheckpointRecord(Sealed):
    format: Literal["privet-checkpoint"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    job: Name
    """The digest of the job."""
    data: Name
    """The digest of the participant's own data."""
    run: Name
    part: PartRecord
    scores: str
    """Our shares of the scores, in base64."""


class Checkpoints:
    """The checkpoints of one job at one participant."""

    def __init__(self, folder: Path, job: str, data: str) -> None:
        self._folder = folder
        self._job = job
        self._data = data
        self._previous: Path | None = None

    def stages(self) -> list[Stage]:
        """Return the stages that we could go on from; raise ModelError for what is not ours."""
        if not self._folder.is_dir():
            return []
        found = []
        for path in sorted(self._folder.glob("*.json")):
            record = self._read(path)
            found.append((len(record.part.tables), record.run))
        return found

    def load(self, stage: Stage) -> TrainingState:
        """Return what we had at a stage; it stays until two tables later."""
        path = self._path(stage)
        record = self._read(path)
        self._previous = path
        try:
            scores = np.frombuffer(base64.b64decode(record.scores, validate=True), dtype="<u8")
            return TrainingState(to_part(record.part), scores.copy())
        except (InputError, ValueError) as error:
            raise ModelError(f"{path}: damaged: {error}") from None

    def save(self, state: TrainingState, run: str) -> None:
        """Write a checkpoint, then remove all but it and the one before."""
        path = self._path((state.part.n_tables, run))
        record = _CheckpointRecord(
            format=FORMAT,
            version=VERSION,
            job=self._job,
            data=self._data,
            run=run,
            part=to_record(state.part),
            scores=base64.b64encode(state.scores.astype("<u8").tobytes()).decode(),
        )
        make_folder(self._folder)
        write_atomically(path, record.sealed().model_dump_json().encode(), private=True)
        for other in [*self._folder.glob("*.json"), *self._folder.glob(".*.json.*")]:
            if other not in (path, self._previous):
                remove(other)
        self._previous = path

    def clear(self) -> None:
        """Remove all of them: the model is safe."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, stage: Stage) -> Path:
        return self._folder / f"{stage[0]:05d}-{stage[1][:16]}.json"

    def _read(self, path: Path) -> _CheckpointRecord:
        advice = f"; remove {self._folder} to train from the first table"
        try:
            record = read_record(path, _CheckpointRecord, FORMAT, VERSION)
        except ModelError as error:
            raise ModelError(f"{error}{advice}") from None
        for what, ours, its in (
            ("job", self._job, record.job),
            ("data", self._data, record.data),
        ):
            if ours != its:
                raise ModelError(f"{path}: belongs to another {what} than this one{advice}")
        return record


def data_digest(data: PartyData) -> str:
    """Return a digest of everything that a training takes from a participant."""
    digest = hashlib.sha256()
    digest.update("\0".join(data.columns.names).encode())
    for array in (data.columns.buckets, data.columns.thresholds, data.label):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
