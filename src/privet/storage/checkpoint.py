"""Checkpoints of participants and workers, from which a training run resumes.

    RUN.tables            the tables of a run; each new table is appended
    TABLES-RUN.scores     a checkpoint: shares of the scores, and the length of its tables
    TABLES-RUN.ended      the checkpoint at which training finished
    TABLES-RUN.shard3     the scores of shard 3 at that checkpoint

TABLES is the number of tables, RUN the start of the run id. Participants train in lockstep, so
after a failure each has the last table or the one before, and two checkpoints are enough. A third
protects against disk damage: an unreadable checkpoint is skipped, and training resumes from the one
before. With early stopping, `patience` more are kept, because the last tables can be discarded at
the end.

File names contain the run, because tables that are trained again after a failure have other shares,
and shares of two runs must never be combined. A file is removed only when its successor is on disk.
When training has finished, the checkpoint of the kept tables stays, so that training can continue.

A table is on disk before the checkpoint that counts it is renamed to its final name. The checkpoint
contains the length and the digest of the tables up to that point; bytes after that length, from an
interrupted write, are not read.

With shards, each worker saves the scores of its shard in the same folder before the coordinator
writes the checkpoint, which then contains no scores. The coordinator accepts a checkpoint only if
the files of all shards are present and valid, and removes them together with the checkpoint.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from privet.boosting.model_part import ModelPart
from privet.boosting.training import TrainingState
from privet.errors import InputError, ModelError
from privet.filesystem import append_durably, make_folder, remove_file, write_atomically
from privet.schema import StrictSchema
from privet.spec.params import MAX_TABLES, Params, TableCount
from privet.spec.plan import MAX_SHARDS
from privet.storage.arrow_streams import (
    MAX_OUTPUTS,
    ArrayColumn,
    ArrayColumns,
    ModelPartHeader,
    append_seal,
    bound_table_bytes,
    build_part,
    parse_stream,
    read_sealed,
    serialise_batch,
    serialise_header,
    serialise_tables,
)
from privet.storage.json_records import Name, UnsupportedVersionError, read_bytes

TABLES_FORMAT: Final = "privet-tables"
TABLES_VERSION = 4
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TablesVersion = Annotated[int, Field(ge=TABLES_VERSION, le=TABLES_VERSION)]


class TablesHeader(StrictSchema):
    """The header of a tables file."""

    format: Literal["privet-tables"]
    version: TablesVersion
    run: Digest
    part: ModelPartHeader


@dataclass
class TableFile:
    """The tables of a run that are on disk."""

    path: Path
    n_tables: int
    n_bytes: int
    digest: hashlib._Hash

    @classmethod
    def create(cls, path: Path, state: TrainingState, run: str) -> TableFile:
        """Write all tables at the first checkpoint of a run."""
        part = ModelPartHeader.from_part(state.part)
        header = TablesHeader(format=TABLES_FORMAT, version=TABLES_VERSION, run=run, part=part)
        content = serialise_header(header, part.make_columns()) + serialise_tables(state.part)
        write_atomically(path, content, private=True)
        return cls(path, state.part.n_tables, len(content), hashlib.sha256(content))

    def append(self, state: TrainingState) -> None:
        """Append the new tables."""
        content = serialise_tables(state.part, self.n_tables)
        append_durably(self.path, self.n_bytes, content)
        self.n_tables = state.part.n_tables
        self.n_bytes += len(content)
        self.digest.update(content)


SHARD_SCORES_FORMAT: Final = "privet-shard"
SHARD_SCORES_VERSION = 1
SHARD_FILE_PREFIX = "shard"
"""The start of the file suffix, before the shard number."""


class _ShardScoresHeader(StrictSchema):
    format: Literal["privet-shard"]
    version: Annotated[int, Field(ge=SHARD_SCORES_VERSION, le=SHARD_SCORES_VERSION)]
    job: Name
    data: Name
    run: Name
    tables: TableCount
    shard: Annotated[int, Field(ge=0, lt=MAX_SHARDS)]
    outputs: Annotated[int, Field(ge=1, le=MAX_OUTPUTS)]

    def make_columns(self) -> ArrayColumns:
        """Return the columns of a sample's row."""
        return (ArrayColumn("score", np.dtype(np.uint64), (self.outputs,)),)


def make_shard_path(folder: Path, tables: int, run: str, shard: int) -> Path:
    """Return the path of one shard's scores after `tables` tables of a run."""
    return folder / f"{tables:05d}-{run[:16]}.{SHARD_FILE_PREFIX}{shard}"


class ShardScoreStore:
    """The scores of one shard's rows, at one participant."""

    def __init__(self, folder: Path, job_digest: str, data_digest: str, shard: int) -> None:
        self._folder = folder
        self._job = job_digest
        self._data = data_digest
        self._shard = shard

    def save(self, tables: int, run: str, scores: npt.NDArray[np.uint64]) -> None:
        """Write the scores atomically."""
        header = _ShardScoresHeader(
            format=SHARD_SCORES_FORMAT,
            version=SHARD_SCORES_VERSION,
            job=self._job,
            data=self._data,
            run=run,
            tables=tables,
            shard=self._shard,
            outputs=len(scores),
        )
        columns = header.make_columns()
        content = append_seal(
            serialise_header(header, columns) + serialise_batch({"score": scores.T}, columns)
        )
        make_folder(self._folder)
        path = make_shard_path(self._folder, tables, run, self._shard)
        write_atomically(path, content, private=True)

    def load(self, tables: int, run: str) -> npt.NDArray[np.uint64]:
        """Read the scores; raise ModelError if they are missing, damaged or of another run."""
        path = make_shard_path(self._folder, tables, run, self._shard)
        if not path.exists():
            raise ModelError(
                f"{path}: is not there: workers and their head must keep checkpoints where both "
                "reach them"
            )
        header, batches = read_sealed(
            path,
            _ShardScoresHeader,
            _ShardScoresHeader.make_columns,
            SHARD_SCORES_FORMAT,
            SHARD_SCORES_VERSION,
        )
        expected = (self._job, self._data, run, tables, self._shard)
        if (header.job, header.data, header.run, header.tables, header.shard) != expected:
            raise ModelError(f"{path}: belongs to another training than this one")
        if len(batches) != 1:
            raise ModelError(f"{path}: damaged: scores in {len(batches)} batches")
        return np.ascontiguousarray(batches[0]["score"].T)


CHECKPOINT_FORMAT: Final = "privet-checkpoint"
MIN_CHECKPOINTS = 3
"""The minimum number of checkpoints to keep."""
CheckpointKey = tuple[int, str]
"""The number of trained tables, and the run that trained them."""
# Checkpoints, tables, checkpoints of earlier versions, and temporary files of killed processes.
_PATTERNS = [
    f"{start}*.{kind}{end}"
    for kind in ("scores", "ended", "tables", "json", f"{SHARD_FILE_PREFIX}*")
    for start, end in (("", ""), (".", ".*"))
]


class _CheckpointHeader(StrictSchema):
    format: Literal["privet-checkpoint"]
    version: TablesVersion
    job: Name
    """The digest of the job."""
    data: Name
    """The digest of the participant's data."""
    run: Digest
    tables: TableCount
    tables_bytes: Annotated[int, Field(ge=1)]
    """The length of these tables in the tables file."""
    tables_digest: Digest
    outputs: Annotated[int, Field(ge=1, le=MAX_OUTPUTS)]
    losses: Annotated[list[float], Field(max_length=MAX_TABLES)] = Field(default_factory=list)
    """The validation loss after each table, at the label holder."""
    ended: str = ""
    """The stopping rule of the job, if training finished at this checkpoint; otherwise empty."""

    @property
    def key(self) -> CheckpointKey:
        """The key of this checkpoint."""
        return self.tables, self.run

    @property
    def file_suffix(self) -> str:
        """The suffix of the file."""
        return "ended" if self.ended else "scores"

    def make_columns(self) -> ArrayColumns:
        """Return the columns of a sample's row."""
        return (ArrayColumn("score", np.dtype(np.uint64), (self.outputs,)),)


class DamagedCheckpointError(ModelError):
    """A checkpoint is damaged; an earlier one may be readable."""


class CheckpointStore:
    """The checkpoints of one job at one participant."""

    def __init__(
        self,
        folder: Path,
        job_digest: str,
        data_digest: str,
        max_checkpoints: int = MIN_CHECKPOINTS,
        shards: int = 1,
    ) -> None:
        self.folder = folder
        self._workers = [
            ShardScoreStore(folder, job_digest, data_digest, shard)
            for shard in range(shards if shards > 1 else 0)
        ]
        self._job = job_digest
        self._data = data_digest
        self._max_checkpoints = max_checkpoints
        """The number of checkpoints to keep."""
        self._saved_keys: list[CheckpointKey] = []
        self._tables: TableFile | None = None
        self.damaged: dict[Path, str] = {}
        """Damaged files that were skipped, with the reasons."""

    def list_keys(self) -> list[CheckpointKey]:
        """Return the keys of all undamaged checkpoints, from which training can resume.

        Raises ModelError for a checkpoint of another job, other data or another file version.
        """
        if not self.folder.is_dir():
            return []
        # Earlier versions wrote JSON files, which `_read` rejects.
        paths = [*self.folder.glob("*.json"), *self.folder.glob("*.scores")]
        keys = {self._read(path)[0].key for path in paths if self._is_readable(path)}
        return sorted(keys | {header.key for header in self._list_finished()})

    def find_finished(self, stopping_rule: str) -> CheckpointKey | None:
        """Return the key of the finished checkpoint with this stopping rule, if any."""
        return next(
            (header.key for header in self._list_finished() if header.ended == stopping_rule), None
        )

    def _list_finished(self) -> list[_CheckpointHeader]:
        """Return the headers of finished checkpoints of this job and data; ignore all others."""
        paths = self.folder.glob("*.ended")
        headers = [
            _read_checkpoint(path)[0] for path in paths if self._is_readable(path, _read_checkpoint)
        ]
        return [
            header for header in headers if (header.job, header.data) == (self._job, self._data)
        ]

    def _is_readable(self, path: Path, read: Callable[[Path], object] | None = None) -> bool:
        """Tell whether a checkpoint can be read; if not, add it to `damaged`."""
        try:
            (read or self._read)(path)
        except DamagedCheckpointError as error:
            self.damaged[path] = str(error)
            return False
        return True

    def load(self, key: CheckpointKey) -> TrainingState:
        """Load a checkpoint to resume from; the next `save` removes later checkpoints."""
        self._saved_keys = [
            saved_key for saved_key in self.list_keys() if saved_key[0] < key[0]
        ] + [key]
        return self._read(self._find_path(key))[1]

    def save(self, state: TrainingState, run: str) -> None:
        """Write a checkpoint, then remove old ones."""
        make_folder(self.folder)
        path = self._make_tables_path(run)
        if self._tables is None or self._tables.path != path:
            self._tables = TableFile.create(path, state, run)
        else:
            self._tables.append(state)
        header = _CheckpointHeader(
            format=CHECKPOINT_FORMAT,
            version=TABLES_VERSION,
            job=self._job,
            data=self._data,
            run=run,
            tables=self._tables.n_tables,
            tables_bytes=self._tables.n_bytes,
            tables_digest=self._tables.digest.hexdigest(),
            outputs=len(state.scores),
            losses=list(state.losses),
        )
        self._write(header, state)
        self._saved_keys = [*self._saved_keys, header.key][-self._max_checkpoints :]
        self._remove_all_but(self._saved_keys)

    def finish(self, tables: int, stopping_rule: str) -> str:
        """Keep only the checkpoint after `tables` tables; return the run that trained them.

        If this checkpoint no longer exists, none is kept, and training cannot continue later.
        """
        key = next((saved_key for saved_key in self._saved_keys if saved_key[0] == tables), None)
        if key is None:
            last_run = self._saved_keys[-1][1]
            shutil.rmtree(self.folder, ignore_errors=True)
            return last_run
        header, state = self._read(self._find_path(key))
        self._write(header.model_copy(update={"ended": stopping_rule}), state)
        self._remove_all_but([key])
        self._saved_keys = [key]
        return key[1]

    def _write(self, header: _CheckpointHeader, state: TrainingState) -> None:
        columns = header.make_columns()
        content = append_seal(
            serialise_header(header, columns) + serialise_batch({"score": state.scores.T}, columns)
        )
        write_atomically(self._make_path(header.key, header.file_suffix), content, private=True)

    def _remove_all_but(self, keys: list[CheckpointKey]) -> None:
        kept = {self._find_path(key) for key in keys}
        kept |= {self._make_tables_path(run) for _, run in keys}
        workers = range(len(self._workers))
        kept |= {make_shard_path(self.folder, *key, shard) for key in keys for shard in workers}
        for pattern in _PATTERNS:
            for path in self.folder.glob(pattern):
                if path not in kept:
                    remove_file(path)

    def _make_path(self, key: CheckpointKey, suffix: str) -> Path:
        return self.folder / f"{key[0]:05d}-{key[1][:16]}.{suffix}"

    def _find_path(self, key: CheckpointKey) -> Path:
        """Return the file of a checkpoint, preferring the one of a finished training."""
        ended = self._make_path(key, "ended")
        return ended if ended.exists() else self._make_path(key, "scores")

    def _make_tables_path(self, run: str) -> Path:
        return self.folder / f"{run[:16]}.tables"

    def _read(self, path: Path) -> tuple[_CheckpointHeader, TrainingState]:
        advice = f"; remove {self.folder} to train from the first table"
        try:
            header, scores = _read_checkpoint(path)
        except UnsupportedVersionError as error:
            raise ModelError(f"{error}{advice}") from None
        for owner, expected, found in (
            ("another job", self._job, header.job),
            ("other data", self._data, header.data),
        ):
            if expected != found:
                raise ModelError(f"{path}: belongs to {owner}{advice}")
        if self._make_path(header.key, header.file_suffix) != path:
            raise DamagedCheckpointError(f"{path}: damaged: its name is not that of its content")
        try:
            for worker in self._workers:
                worker.load(*header.key)
        except ModelError as error:
            raise DamagedCheckpointError(str(error)) from None
        losses = tuple(header.losses)
        return header, TrainingState(self._read_tables(header), scores, losses=losses)

    def _read_tables(self, checkpoint_header: _CheckpointHeader) -> ModelPart:
        path = self._make_tables_path(checkpoint_header.run)
        try:
            content = read_bytes(path)[: checkpoint_header.tables_bytes]
            if hashlib.sha256(content).hexdigest() != checkpoint_header.tables_digest:
                raise ModelError("its content does not fit its seal")
            header, tables = parse_stream(
                content,
                TablesHeader,
                lambda found: found.part.make_columns(),
                TABLES_FORMAT,
                TABLES_VERSION,
            )
            if (header.run, len(tables)) != (checkpoint_header.run, checkpoint_header.tables):
                raise ModelError("other tables than those of its stage")
            return build_part(header.part, tables)
        except InputError as error:
            raise DamagedCheckpointError(f"{path}: damaged: {error}") from None


def _read_checkpoint(path: Path) -> tuple[_CheckpointHeader, npt.NDArray[np.uint64]]:
    """Read a checkpoint of any job."""
    try:
        header, batches = read_sealed(
            path,
            _CheckpointHeader,
            _CheckpointHeader.make_columns,
            CHECKPOINT_FORMAT,
            TABLES_VERSION,
        )
    except UnsupportedVersionError:
        raise
    except ModelError as error:
        raise DamagedCheckpointError(str(error)) from None
    if len(batches) != 1:
        raise DamagedCheckpointError(f"{path}: damaged: scores in {len(batches)} batches")
    return header, np.ascontiguousarray(batches[0]["score"].T)


def bound_checkpoint_bytes(n_samples: int, params: Params) -> int:
    """Return an upper bound on the bytes of checkpoints: one more than kept, of two runs."""
    scores, tables = bound_score_and_table_bytes(n_samples, params)
    return (MIN_CHECKPOINTS + (params.patience or 0) + 1) * scores + 2 * tables


def bound_score_and_table_bytes(n_samples: int, params: Params) -> tuple[int, int]:
    """Return upper bounds on the bytes of a checkpoint's scores and of a run's tables."""
    outputs = params.objective.n_outputs
    return 4096 + 8 * outputs * n_samples, params.tables * bound_table_bytes(params.depth, outputs)
