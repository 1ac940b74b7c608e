"""Files of model parts, each private to its participant.

A part contains the thresholds and categories of the participant's columns, and its shares of the
leaf values. If the job explains scores, it also contains shares of the feature attributions. All
parts together reveal the model.
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
    """A model part with its job, run and encoders."""

    part: ModelPart
    job: Job
    """The job that trained the model, with the participants that predict with it."""
    data: str
    """The digest of the participant's training data."""
    run: str
    """The run of the job that trained its last table."""
    encoders: tuple[Encoder, ...]
    """The encoders of the participant's columns, for new rows."""
    classes: tuple[str, ...] = ()
    """The class names of a classification, at the label holder; of two, the positive class is the
    last."""

    @property
    def checkpoint_key(self) -> tuple[int, str]:
        """The key of the checkpoint from which training can continue."""
        return self.part.n_tables, self.run

    @property
    def model_id(self) -> str:
        """The unique id of the model, equal in all its parts."""
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
    """Return an upper bound on the bytes of the tables of a job's part."""
    params, has_explanations = job.make_params(), job.explain is not None
    outputs = params.objective.n_outputs
    return params.tables * bound_table_bytes(
        params.depth, outputs, has_explanations=has_explanations
    )


def bound_training_bytes(job: Job, n_samples: int) -> int:
    """Return an upper bound on the bytes that training needs in the folder of models."""
    return bound_checkpoint_bytes(n_samples, job.make_params()) + bound_part_bytes(job)


def load_part(path: str | Path) -> ModelPartFile:
    """Read a part from a file; raise ModelError if it is not a valid one."""
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
