"""One participant's part of a model as a file: its own, to be kept from the others.

It holds the participant's thresholds, the categories of its columns, its shares of the leaf values
and, where the job explains scores, of contributions. Whoever has all parts has the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import FailFast, Field

from privet.boosting.model_part import ModelPart
from privet.config.job import Job
from privet.data.encoding import Encoder, features_of
from privet.errors import InputError, ModelError
from privet.filesystem import write_atomically
from privet.schema import Checked
from privet.spec.params import Tables
from privet.storage.arrow_streams import (
    MOST_OUTPUTS,
    PartHeader,
    read_part,
    read_sealed,
    seal,
    start_of,
    table_bytes,
    write_tables,
)
from privet.storage.checkpoint import room_for_checkpoints
from privet.storage.json_records import EncoderRecord, Name, Text

FORMAT: Final = "privet-part"
VERSION = 5


class _FileHeader(Checked):
    format: Literal["privet-part"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    model: Name
    job: dict[str, Any]
    data: Name
    run: Name
    tables: Tables
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    classes: Annotated[list[Text], Field(max_length=MOST_OUTPUTS)]
    part: PartHeader


@dataclass(frozen=True, repr=False)
class PartFile:
    """A participant's part of a model, and what it belongs to."""

    part: ModelPart
    job: Job
    """The job that trained it, and whose participants predict with it."""
    data: str
    """The digest of the data that the participant trained it on."""
    run: str
    """The run of the job that trained its last table."""
    encoders: tuple[Encoder, ...]
    """What its columns were, and what makes features of new rows."""
    classes: tuple[str, ...] = ()
    """The label's classes, at the active participant of a classification; of two, the positive one
    is the last."""

    @property
    def stage(self) -> tuple[int, str]:
        """How many tables there are, and the run of the last: where a training can go on from."""
        return self.part.n_tables, self.run

    @property
    def model(self) -> str:
        """The name of the model: the same in all its parts, and in no other's."""
        digest = hashlib.sha256(f"{self.job.digest} {self.run}".encode())
        digest.update(self.part.feature.astype("<i8").tobytes())
        return digest.hexdigest()


def save_part(file: PartFile, path: str | Path) -> None:
    """Write a part to a file, atomically."""
    header = _FileHeader(
        format=FORMAT,
        version=VERSION,
        model=file.model,
        job=file.job.model_dump(),
        data=file.data,
        run=file.run,
        tables=file.part.n_tables,
        encoders=[EncoderRecord.of(encoder) for encoder in file.encoders],
        classes=list(file.classes),
        part=PartHeader.of(file.part),
    )
    stream = start_of(header, header.part.columns()) + write_tables(file.part)
    write_atomically(path, seal(stream), private=True)


def part_bytes(job: Job) -> int:
    """Return how many bytes the tables of a job's part take at most."""
    params, explains = job.hyper_parameters(), job.explain is not None
    outputs = params.objective.outputs
    return params.tables * table_bytes(params.depth, outputs, explains=explains)


def room_for_training(job: Job, samples: int) -> int:
    """Return how many bytes a training takes in the folder of models at most: until its part is."""
    return room_for_checkpoints(samples, job.hyper_parameters()) + part_bytes(job)


def load_part(path: str | Path) -> PartFile:
    """Read a part from a file; raise ModelError if it is not one, or not a sound one."""
    header, tables = read_sealed(
        Path(path), _FileHeader, lambda found: found.part.columns(), FORMAT, VERSION
    )
    try:
        if len(tables) != header.tables:
            raise ModelError(f"{len(tables)} tables of {header.tables}")
        part = read_part(header.part, tables)
        encoders = tuple(record.encoder() for record in header.encoders)
        file = PartFile(
            part, Job.parse(header.job), header.data, header.run, encoders, tuple(header.classes)
        )
        if features_of(encoders) != part.own_features:
            raise ModelError("its encoders make other features than it tests")
        if file.model != header.model:
            raise ModelError("its name is not that of its content")
        if [f.owner for f in file.part.features if f.owner not in file.job.names]:
            raise ModelError("features of somebody who takes no part in the job")
        if (part.reasons is not None) != (file.job.explain is not None):
            raise ModelError("it explains scores and its job does not say so, or the reverse")
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    return file
