"""What a worker needs to go on after a failure: shares of the scores of its shard's rows.

    TABLES-RUN.shard3     after so many tables of a run

They lie beside the checkpoints of their head (`files.checkpoint`), which counts a stage only if
those of all shards are there and whole; it removes them, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from privet.config import Checked
from privet.errors import ModelError
from privet.files.atomic import make_folder, write_atomically
from privet.files.records import Name
from privet.files.streams import Column, Columns, batch_of, read_sealed, seal, start_of
from privet.files.tables import MOST_OUTPUTS
from privet.terms.params import Tables
from privet.terms.shards import MOST_SHARDS

FORMAT: Final = "privet-shard"
VERSION = 1
KIND = "shard"
"""What the files are called after."""


class _Header(Checked):
    format: Literal["privet-shard"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    job: Name
    data: Name
    run: Name
    tables: Tables
    shard: Annotated[int, Field(ge=0, lt=MOST_SHARDS)]
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)]

    def columns(self) -> Columns:
        """Return what a sample's row holds."""
        return (Column("score", np.dtype(np.uint64), (self.outputs,)),)


def shard_path(folder: Path, tables: int, run: str, shard: int) -> Path:
    """Return where the scores of one shard are after so many tables of a run."""
    return folder / f"{tables:05d}-{run[:16]}.{KIND}{shard}"


class ShardScores:
    """The scores of one shard's rows, at one participant."""

    def __init__(self, folder: Path, job: str, data: str, shard: int) -> None:
        self._folder = folder
        self._job = job
        self._data = data
        self._shard = shard

    def save(self, tables: int, run: str, scores: npt.NDArray[np.uint64]) -> None:
        """Write them: whole, or not at all."""
        header = _Header(
            format=FORMAT,
            version=VERSION,
            job=self._job,
            data=self._data,
            run=run,
            tables=tables,
            shard=self._shard,
            outputs=len(scores),
        )
        columns = header.columns()
        content = seal(start_of(header, columns) + batch_of({"score": scores.T}, columns))
        make_folder(self._folder)
        path = shard_path(self._folder, tables, run, self._shard)
        write_atomically(path, content, private=True)

    def load(self, tables: int, run: str) -> npt.NDArray[np.uint64]:
        """Return them; raise ModelError if they are not there, or not ours, or damaged."""
        path = shard_path(self._folder, tables, run, self._shard)
        if not path.exists():
            raise ModelError(
                f"{path}: is not there: workers and their head must keep checkpoints where both "
                "reach them"
            )
        header, batches = read_sealed(path, _Header, _Header.columns, FORMAT, VERSION)
        ours = (self._job, self._data, run, tables, self._shard)
        if (header.job, header.data, header.run, header.tables, header.shard) != ours:
            raise ModelError(f"{path}: belongs to another training than this one")
        if len(batches) != 1:
            raise ModelError(f"{path}: damaged: scores in {len(batches)} batches")
        return np.ascontiguousarray(batches[0]["score"].T)
