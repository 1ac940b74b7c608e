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
from privet.data.encoding import Encoder, list_feature_names
from privet.errors import InputError, ModelError
from privet.filesystem import write_atomically
from privet.schema import StrictSchema
from privet.spec.params import TableCount
from privet.storage.arrow_streams import (
    MAX_OUTPUTS,
    ModelPartHeader,
    append_seal,
    bound_table_bytes,
    build_part,
    read_sealed,
    serialise_header,
    serialise_tables,
)
from privet.storage.checkpoint import bound_checkpoint_bytes
from privet.storage.json_records import EncoderRecord, Name, Text

PART_FORMAT: Final = "privet-part"
PART_VERSION = 5


class _PartFileHeader(StrictSchema):
    format: Literal["privet-part"]
    version: Annotated[int, Field(ge=PART_VERSION, le=PART_VERSION)]
    model: Name
    job: dict[str, Any]
    data: Name
    run: Name
    tables: TableCount
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    classes: Annotated[list[Text], Field(max_length=MAX_OUTPUTS)]
    part: ModelPartHeader


@dataclass(frozen=True, repr=False)
class ModelPartFile:
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
    def checkpoint_key(self) -> tuple[int, str]:
        """How many tables there are, and the run of the last: where a training can go on from."""
        return self.part.n_tables, self.run

    @property
    def model_id(self) -> str:
        """The name of the model: the same in all its parts, and in no other's."""
        digest = hashlib.sha256(f"{self.job.digest} {self.run}".encode())
        digest.update(self.part.feature.astype("<i8").tobytes())
        return digest.hexdigest()


def save_part(part_file: ModelPartFile, path: str | Path) -> None:
    """Write a part to a file, atomically."""
    header = _PartFileHeader(
        format=PART_FORMAT,
        version=PART_VERSION,
        model=part_file.model_id,
        job=part_file.job.model_dump(),
        data=part_file.data,
        run=part_file.run,
        tables=part_file.part.n_tables,
        encoders=[EncoderRecord.from_encoder(encoder) for encoder in part_file.encoders],
        classes=list(part_file.classes),
        part=ModelPartHeader.from_part(part_file.part),
    )
    stream = serialise_header(header, header.part.make_columns()) + serialise_tables(part_file.part)
    write_atomically(path, append_seal(stream), private=True)


def bound_part_bytes(job: Job) -> int:
    """Return how many bytes the tables of a job's part take at most."""
    params, explains = job.make_params(), job.explain is not None
    outputs = params.objective.n_outputs
    return params.tables * bound_table_bytes(params.depth, outputs, has_explanations=explains)


def bound_training_bytes(job: Job, n_samples: int) -> int:
    """Return how many bytes a training takes in the folder of models at most: until its part is."""
    return bound_checkpoint_bytes(n_samples, job.make_params()) + bound_part_bytes(job)


def load_part(path: str | Path) -> ModelPartFile:
    """Read a part from a file; raise ModelError if it is not one, or not a sound one."""
    header, tables = read_sealed(
        Path(path),
        _PartFileHeader,
        lambda found: found.part.make_columns(),
        PART_FORMAT,
        PART_VERSION,
    )
    try:
        if len(tables) != header.tables:
            raise ModelError(f"{len(tables)} tables of {header.tables}")
        part = build_part(header.part, tables)
        encoders = tuple(record.to_encoder() for record in header.encoders)
        file = ModelPartFile(
            part, Job.parse(header.job), header.data, header.run, encoders, tuple(header.classes)
        )
        if list_feature_names(encoders) != part.local_features:
            raise ModelError("its encoders make other features than it tests")
        if file.model_id != header.model:
            raise ModelError("its name is not that of its content")
        if [f.owner for f in file.part.features if f.owner not in file.job.party_names]:
            raise ModelError("features of somebody who takes no part in the job")
        if (part.explanation is not None) != (file.job.explain is not None):
            raise ModelError("it explains scores and its job does not say so, or the reverse")
    except InputError as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    return file
