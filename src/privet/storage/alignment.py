"""Alignments at one participant: the common rows of a job, and the number of its alignments.

    JOB.alignment           the positions of the common rows, in the agreed order
    JOB.alignment-sharded   the same for a table that `privet shard` wrote in that order
    JOB.alignment-count     the number of alignments for the job, by all commands

An alignment is valid while the job has the same participants and the table has the same ids. Common
rows are private: only their owner can read the files.
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
    """The rows of a participant that all participants have in common."""

    alignment_id: str
    """A unique id, equal at all participants."""
    rows: IndexArray
    """Positions in the participant's table, in the agreed order."""


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
        """The number of alignments for the job."""
        if not self._count_path.exists():
            return 0
        return read_record(
            self._count_path, ALIGNMENT_COUNT_FORMAT, {ALIGNMENT_VERSION: _CountRecord}
        ).count

    def increment_count(self) -> int:
        """Count an alignment before it starts: a failed one also discloses to the dealer."""
        make_folder(self._folder)
        record = _CountRecord(count=self.read_count + 1)
        write_atomically(self._count_path, record.model_dump_json().encode() + b"\n", private=True)
        return record.count

    def save(self, alignment: Alignment, keys_digest: str, n_rows: int) -> None:
        """Save an alignment of a table with `n_rows` rows and this digest of its match keys."""
        self._save(self.path, alignment, keys_digest, n_rows)

    def save_sharded(self, alignment: Alignment, keys_digest: str) -> None:
        """Save an alignment for a table that contains only the common rows, in the agreed order.

        The alignment of the original table stays. Both have the same id, so the other participants
        see one alignment.
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
        """Return the saved alignment for these participants and match keys, if any."""
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
