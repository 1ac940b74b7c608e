"""Checkpoints of participants and workers, from which a training run resumes.

    RUN.tables            the tables of a run, to which every new one is added
    TABLES-RUN.scores     a stage: shares of the scores, and how much of the tables it stands for
    TABLES-RUN.ended      the stage at which a training has ended

Participants move in step, so when one ends, each has the last table or the one before. Two stages
are enough, therefore, and one more is kept for a disk that damages one: a stage that cannot be read
is left out, and the training goes on from the one before. With patience so many more are kept,
because the last of these tables may turn out not to be worth keeping. Their names hold the *run*
they were made in, because tables trained again after a failure have other shares: parts of two runs
never meet. Nothing is removed until its successor is safe.

When a training has ended, the stage of the tables that are kept stays: more can be trained later.

Where rows are in shards, each worker keeps the scores of its own (`files.shard_scores`), before its
head counts the stage: that has none.

A table is on disk before the stage that counts it gets its name. The stage holds the length and the
digest of the tables up to there; whatever lies behind, of a write that was cut short, is not read.

    TABLES-RUN.shard3     after so many tables of a run

They lie beside the checkpoints of their head (`files.checkpoint`), which counts a stage only if
those of all shards are there and whole; it removes them, too.
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
    """What such a file begins with."""

    format: Literal["privet-tables"]
    version: TablesVersion
    run: Digest
    part: ModelPartHeader


@dataclass
class TableFile:
    """The tables of a run, as far as they are on disk."""

    path: Path
    n_tables: int
    n_bytes: int
    digest: hashlib._Hash

    @classmethod
    def create(cls, path: Path, state: TrainingState, run: str) -> TableFile:
        """Write all tables that there are at the first stage of a run."""
        part = ModelPartHeader.from_part(state.part)
        header = TablesHeader(format=TABLES_FORMAT, version=TABLES_VERSION, run=run, part=part)
        content = serialise_header(header, part.make_columns()) + serialise_tables(state.part)
        write_atomically(path, content, private=True)
        return cls(path, state.part.n_tables, len(content), hashlib.sha256(content))

    def append(self, state: TrainingState) -> None:
        """Write the tables that are new."""
        content = serialise_tables(state.part, self.n_tables)
        append_durably(self.path, self.n_bytes, content)
        self.n_tables = state.part.n_tables
        self.n_bytes += len(content)
        self.digest.update(content)


SHARD_SCORES_FORMAT: Final = "privet-shard"
SHARD_SCORES_VERSION = 1
SHARD_FILE_PREFIX = "shard"
"""What the files are called after."""


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
        """Return what a sample's row holds."""
        return (ArrayColumn("score", np.dtype(np.uint64), (self.outputs,)),)


def make_shard_path(folder: Path, tables: int, run: str, shard: int) -> Path:
    """Return where the scores of one shard are after so many tables of a run."""
    return folder / f"{tables:05d}-{run[:16]}.{SHARD_FILE_PREFIX}{shard}"


class ShardScoreStore:
    """The scores of one shard's rows, at one participant."""

    def __init__(self, folder: Path, job_digest: str, data_digest: str, shard: int) -> None:
        self._folder = folder
        self._job = job_digest
        self._data = data_digest
        self._shard = shard

    def save(self, tables: int, run: str, scores: npt.NDArray[np.uint64]) -> None:
        """Write them: whole, or not at all."""
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
        """Return them; raise ModelError if they are not there, or not ours, or damaged."""
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
        ours = (self._job, self._data, run, tables, self._shard)
        if (header.job, header.data, header.run, header.tables, header.shard) != ours:
            raise ModelError(f"{path}: belongs to another training than this one")
        if len(batches) != 1:
            raise ModelError(f"{path}: damaged: scores in {len(batches)} batches")
        return np.ascontiguousarray(batches[0]["score"].T)


CHECKPOINT_FORMAT: Final = "privet-checkpoint"
MIN_CHECKPOINTS = 3
"""How many stages are kept, at least."""
CheckpointKey = tuple[int, str]
"""How many tables a training had done, and in which run."""
# Stages and tables, stages of versions before, and what a killed process was writing.
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
    """The digest of the participant's own data."""
    run: Digest
    tables: TableCount
    tables_bytes: Annotated[int, Field(ge=1)]
    """How much of the run's tables these are."""
    tables_digest: Digest
    outputs: Annotated[int, Field(ge=1, le=MAX_OUTPUTS)]
    losses: Annotated[list[float], Field(max_length=MAX_TABLES)] = Field(default_factory=list)
    """On validation rows, after each table: at the label's holder."""
    ended: str = ""
    """The `length` of the job that a training ended by here; nothing, if it did not."""

    @property
    def key(self) -> CheckpointKey:
        """The stage that it stands for."""
        return self.tables, self.run

    @property
    def file_suffix(self) -> str:
        """What its file is called after."""
        return "ended" if self.ended else "scores"

    def make_columns(self) -> ArrayColumns:
        """Return what a sample's row holds."""
        return (ArrayColumn("score", np.dtype(np.uint64), (self.outputs,)),)


class DamagedCheckpointError(ModelError):
    """A checkpoint that cannot be read: there may be another one."""


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
        """How many stages are kept."""
        self._saved_keys: list[CheckpointKey] = []
        self._tables: TableFile | None = None
        self.damaged: dict[Path, str] = {}
        """What was found to be damaged, and left out."""

    def list_keys(self) -> list[CheckpointKey]:
        """Return the stages that we could go on from: all that are whole.

        Raises ModelError for what is not ours, or not of this version.
        """
        if not self.folder.is_dir():
            return []
        # Versions before this one wrote stages as JSON; reading refuses them.
        paths = [*self.folder.glob("*.json"), *self.folder.glob("*.scores")]
        stages = {self._read(path)[0].key for path in paths if self._is_readable(path)}
        return sorted(stages | {header.key for header in self._list_finished()})

    def find_finished(self, length: str) -> CheckpointKey | None:
        """Return the stage at which a training of that length ended, if one did."""
        return next(
            (header.key for header in self._list_finished() if header.ended == length), None
        )

    def _list_finished(self) -> list[_CheckpointHeader]:
        """Return where our trainings have ended; those of others are in nobody's way."""
        paths = self.folder.glob("*.ended")
        headers = [_read_stage(path)[0] for path in paths if self._is_readable(path, _read_stage)]
        return [each for each in headers if (each.job, each.data) == (self._job, self._data)]

    def _is_readable(self, path: Path, read: Callable[[Path], object] | None = None) -> bool:
        """Tell whether a stage can be read, and note it if it cannot."""
        try:
            (read or self._read)(path)
        except DamagedCheckpointError as error:
            self.damaged[path] = str(error)
            return False
        return True

    def load(self, key: CheckpointKey) -> TrainingState:
        """Return what we had at a stage, to go on from it; later ones are removed then."""
        self._saved_keys = [found for found in self.list_keys() if found[0] < key[0]] + [key]
        return self._read(self._find_path(key))[1]

    def save(self, state: TrainingState, run: str) -> None:
        """Write a checkpoint, then remove all but it and those before it that are kept."""
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

    def finish(self, tables: int, length: str) -> str:
        """Keep the stage after so many tables alone; return the run that they were trained in.

        Where it is not there any more, nothing is kept, and more tables cannot be trained later.
        """
        stage = next((kept for kept in self._saved_keys if kept[0] == tables), None)
        if stage is None:
            last = self._saved_keys[-1][1]
            shutil.rmtree(self.folder, ignore_errors=True)
            return last
        header, state = self._read(self._find_path(stage))
        self._write(header.model_copy(update={"ended": length}), state)
        self._remove_all_but([stage])
        self._saved_keys = [stage]
        return stage[1]

    def _write(self, header: _CheckpointHeader, state: TrainingState) -> None:
        columns = header.make_columns()
        content = append_seal(
            serialise_header(header, columns) + serialise_batch({"score": state.scores.T}, columns)
        )
        write_atomically(self._make_path(header.key, header.file_suffix), content, private=True)

    def _remove_all_but(self, keys: list[CheckpointKey]) -> None:
        kept = {self._find_path(stage) for stage in keys}
        kept |= {self._make_tables_path(run) for _, run in keys}
        workers = range(len(self._workers))
        kept |= {make_shard_path(self.folder, *stage, shard) for stage in keys for shard in workers}
        for pattern in _PATTERNS:
            for path in self.folder.glob(pattern):
                if path not in kept:
                    remove_file(path)

    def _make_path(self, key: CheckpointKey, suffix: str) -> Path:
        return self.folder / f"{key[0]:05d}-{key[1][:16]}.{suffix}"

    def _find_path(self, key: CheckpointKey) -> Path:
        """Return the file of a stage: the one in which a training ended, if it did there."""
        ended = self._make_path(key, "ended")
        return ended if ended.exists() else self._make_path(key, "scores")

    def _make_tables_path(self, run: str) -> Path:
        return self.folder / f"{run[:16]}.tables"

    def _read(self, path: Path) -> tuple[_CheckpointHeader, TrainingState]:
        advice = f"; remove {self.folder} to train from the first table"
        try:
            header, scores = _read_stage(path)
        except UnsupportedVersionError as error:
            raise ModelError(f"{error}{advice}") from None
        for whose, ours, its in (
            ("another job", self._job, header.job),
            ("other data", self._data, header.data),
        ):
            if ours != its:
                raise ModelError(f"{path}: belongs to {whose}{advice}")
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


def _read_stage(path: Path) -> tuple[_CheckpointHeader, npt.NDArray[np.uint64]]:
    """Read a stage, whosever it is."""
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
    """Return the most bytes that checkpoints take: one more than are kept, and of two runs."""
    scores, tables = bound_score_and_table_bytes(n_samples, params)
    return (MIN_CHECKPOINTS + (params.patience or 0) + 1) * scores + 2 * tables


def bound_score_and_table_bytes(n_samples: int, params: Params) -> tuple[int, int]:
    """Return how many bytes a stage's scores and a run's tables take at most."""
    outputs = params.objective.n_outputs
    return 4096 + 8 * outputs * n_samples, params.tables * bound_table_bytes(params.depth, outputs)
