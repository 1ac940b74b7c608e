"""Alignments at one participant: how many a job has had, and the one that its training uses.

    JOB.alignment           which of our rows all have, in the order that all have agreed on
    JOB.alignment-sharded   the same of a table that `privet shard` wrote in that order
    JOB.alignment-count     how often rows were aligned for the job, for whatever command

An alignment is of use as long as its participants are the job's and our ids are those that it was
made for. Which rows all have is nobody else's business: the files are their owner's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from privet.arrays import IndexArray
from privet.config.job import MAX_ALIGNED_ROWS, Job
from privet.errors import ModelError
from privet.filesystem import make_folder, write_atomically
from privet.schema import StrictSchema
from privet.storage.arrow_streams import (
    ArrayColumn,
    append_seal,
    read_sealed,
    serialise_batch,
    serialise_header,
)
from privet.storage.json_records import Name, read_record

ALIGNMENT_FORMAT: Final = "privet-row-alignment"
ALIGNMENT_COUNT_FORMAT: Final = "privet-count-of-alignments"
ALIGNMENT_VERSION = 1
_COLUMNS = (ArrayColumn("row", np.dtype(np.uint32), ()),)
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Version = Annotated[int, Field(ge=ALIGNMENT_VERSION, le=ALIGNMENT_VERSION)]


class _AlignmentHeader(StrictSchema):
    format: Literal["privet-row-alignment"] = ALIGNMENT_FORMAT
    version: _Version = ALIGNMENT_VERSION
    name: _Digest
    participants: list[Name]
    keys: _Digest
    rows: Annotated[int, Field(ge=0, le=MAX_ALIGNED_ROWS)]


class _CountRecord(StrictSchema):
    format: Literal["privet-count-of-alignments"] = ALIGNMENT_COUNT_FORMAT
    version: _Version = ALIGNMENT_VERSION
    count: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, eq=False, repr=False)
class Alignment:
    """Which of a participant's rows all have."""

    alignment_id: str
    """The same at all participants, and of no other alignment."""
    rows: IndexArray
    """Their positions in its table, in the order that all have agreed on."""


class AlignmentStore:
    """The alignments of one job at one participant."""

    def __init__(self, folder: str | Path, job: Job) -> None:
        self._folder = Path(folder)
        self._job = job
        self.path = self._folder / f"{job.name}.alignment"
        self._sharded_path = self._folder / f"{job.name}.alignment-sharded"
        self._count_path = self._folder / f"{job.name}.alignment-count"

    @property
    def read_count(self) -> int:
        """How often rows were aligned for the job."""
        if not self._count_path.exists():
            return 0
        return read_record(
            self._count_path, ALIGNMENT_COUNT_FORMAT, {ALIGNMENT_VERSION: _CountRecord}
        ).count

    def increment_count(self) -> int:
        """Count one more, before it is made: one that fails has told the dealer something, too."""
        make_folder(self._folder)
        record = _CountRecord(count=self.read_count + 1)
        write_atomically(self._count_path, record.model_dump_json().encode() + b"\n", private=True)
        return record.count

    def save(self, alignment: Alignment, keys_digest: str, n_rows: int) -> None:
        """Keep an alignment of so many rows whose ids' keys have this digest."""
        self._save(self.path, alignment, keys_digest, n_rows)

    def save_sharded(self, alignment: Alignment, keys_digest: str) -> None:
        """Keep an alignment for a table that has its rows alone, in its order; and the other one.

        It is the same alignment to the other participants, who know it by its name.
        """
        rows = np.arange(len(alignment.rows))
        self._save(
            self._sharded_path, Alignment(alignment.alignment_id, rows), keys_digest, len(rows)
        )

    def _save(self, path: Path, alignment: Alignment, keys_digest: str, n_rows: int) -> None:
        make_folder(self._folder)
        header = _AlignmentHeader(
            name=alignment.alignment_id,
            participants=self._job.party_names,
            keys=keys_digest,
            rows=n_rows,
        )
        rows = {"row": alignment.rows.astype(np.uint32)}
        content = append_seal(serialise_header(header, _COLUMNS) + serialise_batch(rows, _COLUMNS))
        write_atomically(path, content, private=True)

    def find(self, keys_digest: str) -> Alignment | None:
        """Return an alignment that is kept, if one is of these participants and of these ids."""
        return self._find(self.path, keys_digest) or self._find(self._sharded_path, keys_digest)

    def _find(self, path: Path, keys_digest: str) -> Alignment | None:
        if not path.exists():
            return None
        header, batches = read_sealed(
            path, _AlignmentHeader, lambda _: _COLUMNS, ALIGNMENT_FORMAT, ALIGNMENT_VERSION
        )
        if (header.participants, header.keys) != (self._job.party_names, keys_digest):
            return None
        rows = np.concatenate([batch["row"] for batch in batches]) if batches else np.empty(0)
        if len(rows) and rows.max() >= header.rows:
            raise ModelError(f"{path}: damaged: rows that are not there")
        return Alignment(header.name, rows.astype(np.intp))
