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
from privet.filesystem import extend, make_folder, remove, write_atomically
from privet.schema import Checked
from privet.spec.params import MOST_TABLES, Params, Tables
from privet.spec.plan import MOST_SHARDS
from privet.storage.arrow_streams import (
    MOST_OUTPUTS,
    Column,
    Columns,
    PartHeader,
    batch_of,
    parse,
    read_part,
    read_sealed,
    seal,
    start_of,
    table_bytes,
    write_tables,
)
from privet.storage.json_records import Name, OtherVersionError, read_bytes

TABLES_FORMAT: Final = "privet-tables"
VERSION = 4
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Version = Annotated[int, Field(ge=VERSION, le=VERSION)]


class TablesHeader(Checked):
    """What such a file begins with."""

    format: Literal["privet-tables"]
    version: Version
    run: Digest
    part: PartHeader


@dataclass
class RunTables:
    """The tables of a run, as far as they are on disk."""

    path: Path
    count: int
    size: int
    digest: hashlib._Hash

    @classmethod
    def begin(cls, path: Path, state: TrainingState, run: str) -> RunTables:
        """Write all tables that there are at the first stage of a run."""
        part = PartHeader.of(state.part)
        header = TablesHeader(format=TABLES_FORMAT, version=VERSION, run=run, part=part)
        content = start_of(header, part.columns()) + write_tables(state.part)
        write_atomically(path, content, private=True)
        return cls(path, state.part.n_tables, len(content), hashlib.sha256(content))

    def add(self, state: TrainingState) -> None:
        """Write the tables that are new."""
        content = write_tables(state.part, self.count)
        extend(self.path, self.size, content)
        self.count = state.part.n_tables
        self.size += len(content)
        self.digest.update(content)


FORMAT: Final = "privet-shard"
SHARD_SCORES_VERSION = 1
KIND = "shard"
"""What the files are called after."""


class _Header(Checked):
    format: Literal["privet-shard"]
    version: Annotated[int, Field(ge=SHARD_SCORES_VERSION, le=SHARD_SCORES_VERSION)]
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
            version=SHARD_SCORES_VERSION,
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
        header, batches = read_sealed(path, _Header, _Header.columns, FORMAT, SHARD_SCORES_VERSION)
        ours = (self._job, self._data, run, tables, self._shard)
        if (header.job, header.data, header.run, header.tables, header.shard) != ours:
            raise ModelError(f"{path}: belongs to another training than this one")
        if len(batches) != 1:
            raise ModelError(f"{path}: damaged: scores in {len(batches)} batches")
        return np.ascontiguousarray(batches[0]["score"].T)


CHECKPOINT_FORMAT: Final = "privet-checkpoint"
STAGES = 3
"""How many stages are kept, at least."""
Stage = tuple[int, str]
"""How many tables a training had done, and in which run."""
# Stages and tables, stages of versions before, and what a killed process was writing.
_PATTERNS = [
    f"{start}*.{kind}{end}"
    for kind in ("scores", "ended", "tables", "json", f"{KIND}*")
    for start, end in (("", ""), (".", ".*"))
]


class _StageHeader(Checked):
    format: Literal["privet-checkpoint"]
    version: Version
    job: Name
    """The digest of the job."""
    data: Name
    """The digest of the participant's own data."""
    run: Digest
    tables: Tables
    tables_bytes: Annotated[int, Field(ge=1)]
    """How much of the run's tables these are."""
    tables_digest: Digest
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)]
    losses: Annotated[list[float], Field(max_length=MOST_TABLES)] = Field(default_factory=list)
    """On validation rows, after each table: at the label's holder."""
    ended: str = ""
    """The `length` of the job that a training ended by here; nothing, if it did not."""

    @property
    def stage(self) -> Stage:
        """The stage that it stands for."""
        return self.tables, self.run

    @property
    def kind(self) -> str:
        """What its file is called after."""
        return "ended" if self.ended else "scores"

    def columns(self) -> Columns:
        """Return what a sample's row holds."""
        return (Column("score", np.dtype(np.uint64), (self.outputs,)),)


class DamagedError(ModelError):
    """A checkpoint that cannot be read: there may be another one."""


class Checkpoints:
    """The checkpoints of one job at one participant."""

    def __init__(
        self, folder: Path, job: str, data: str, most: int = STAGES, shards: int = 1
    ) -> None:
        self.folder = folder
        self._workers = [
            ShardScores(folder, job, data, shard) for shard in range(shards if shards > 1 else 0)
        ]
        self._job = job
        self._data = data
        self._most = most
        """How many stages are kept."""
        self._kept: list[Stage] = []
        self._tables: RunTables | None = None
        self.damaged: dict[Path, str] = {}
        """What was found to be damaged, and left out."""

    def stages(self) -> list[Stage]:
        """Return the stages that we could go on from: all that are whole.

        Raises ModelError for what is not ours, or not of this version.
        """
        if not self.folder.is_dir():
            return []
        # Versions before this one wrote stages as JSON; reading refuses them.
        paths = [*self.folder.glob("*.json"), *self.folder.glob("*.scores")]
        stages = {self._read(path)[0].stage for path in paths if self._is_whole(path)}
        return sorted(stages | {header.stage for header in self._ends()})

    def ended(self, length: str) -> Stage | None:
        """Return the stage at which a training of that length ended, if one did."""
        return next((header.stage for header in self._ends() if header.ended == length), None)

    def _ends(self) -> list[_StageHeader]:
        """Return where our trainings have ended; those of others are in nobody's way."""
        paths = self.folder.glob("*.ended")
        headers = [_read_stage(path)[0] for path in paths if self._is_whole(path, _read_stage)]
        return [each for each in headers if (each.job, each.data) == (self._job, self._data)]

    def _is_whole(self, path: Path, read: Callable[[Path], object] | None = None) -> bool:
        """Tell whether a stage can be read, and note it if it cannot."""
        try:
            (read or self._read)(path)
        except DamagedError as error:
            self.damaged[path] = str(error)
            return False
        return True

    def load(self, stage: Stage) -> TrainingState:
        """Return what we had at a stage, to go on from it; later ones are removed then."""
        self._kept = [found for found in self.stages() if found[0] < stage[0]] + [stage]
        return self._read(self._path_of(stage))[1]

    def save(self, state: TrainingState, run: str) -> None:
        """Write a checkpoint, then remove all but it and those before it that are kept."""
        make_folder(self.folder)
        path = self._tables_path(run)
        if self._tables is None or self._tables.path != path:
            self._tables = RunTables.begin(path, state, run)
        else:
            self._tables.add(state)
        header = _StageHeader(
            format=CHECKPOINT_FORMAT,
            version=VERSION,
            job=self._job,
            data=self._data,
            run=run,
            tables=self._tables.count,
            tables_bytes=self._tables.size,
            tables_digest=self._tables.digest.hexdigest(),
            outputs=len(state.scores),
            losses=list(state.losses),
        )
        self._write(header, state)
        self._kept = [*self._kept, header.stage][-self._most :]
        self._remove_all_but(self._kept)

    def end(self, tables: int, length: str) -> str:
        """Keep the stage after so many tables alone; return the run that they were trained in.

        Where it is not there any more, nothing is kept, and more tables cannot be trained later.
        """
        stage = next((kept for kept in self._kept if kept[0] == tables), None)
        if stage is None:
            last = self._kept[-1][1]
            shutil.rmtree(self.folder, ignore_errors=True)
            return last
        header, state = self._read(self._path_of(stage))
        self._write(header.model_copy(update={"ended": length}), state)
        self._remove_all_but([stage])
        self._kept = [stage]
        return stage[1]

    def _write(self, header: _StageHeader, state: TrainingState) -> None:
        columns = header.columns()
        content = seal(start_of(header, columns) + batch_of({"score": state.scores.T}, columns))
        write_atomically(self._stage_path(header.stage, header.kind), content, private=True)

    def _remove_all_but(self, stages: list[Stage]) -> None:
        kept = {self._path_of(stage) for stage in stages}
        kept |= {self._tables_path(run) for _, run in stages}
        workers = range(len(self._workers))
        kept |= {shard_path(self.folder, *stage, shard) for stage in stages for shard in workers}
        for pattern in _PATTERNS:
            for path in self.folder.glob(pattern):
                if path not in kept:
                    remove(path)

    def _stage_path(self, stage: Stage, kind: str) -> Path:
        return self.folder / f"{stage[0]:05d}-{stage[1][:16]}.{kind}"

    def _path_of(self, stage: Stage) -> Path:
        """Return the file of a stage: the one in which a training ended, if it did there."""
        ended = self._stage_path(stage, "ended")
        return ended if ended.exists() else self._stage_path(stage, "scores")

    def _tables_path(self, run: str) -> Path:
        return self.folder / f"{run[:16]}.tables"

    def _read(self, path: Path) -> tuple[_StageHeader, TrainingState]:
        advice = f"; remove {self.folder} to train from the first table"
        try:
            header, scores = _read_stage(path)
        except OtherVersionError as error:
            raise ModelError(f"{error}{advice}") from None
        for whose, ours, its in (
            ("another job", self._job, header.job),
            ("other data", self._data, header.data),
        ):
            if ours != its:
                raise ModelError(f"{path}: belongs to {whose}{advice}")
        if self._stage_path(header.stage, header.kind) != path:
            raise DamagedError(f"{path}: damaged: its name is not that of its content")
        try:
            for worker in self._workers:
                worker.load(*header.stage)
        except ModelError as error:
            raise DamagedError(str(error)) from None
        losses = tuple(header.losses)
        return header, TrainingState(self._read_tables(header), scores, losses=losses)

    def _read_tables(self, stage: _StageHeader) -> ModelPart:
        path = self._tables_path(stage.run)
        try:
            content = read_bytes(path)[: stage.tables_bytes]
            if hashlib.sha256(content).hexdigest() != stage.tables_digest:
                raise ModelError("its content does not fit its seal")
            header, tables = parse(
                content, TablesHeader, lambda found: found.part.columns(), TABLES_FORMAT, VERSION
            )
            if (header.run, len(tables)) != (stage.run, stage.tables):
                raise ModelError("other tables than those of its stage")
            return read_part(header.part, tables)
        except InputError as error:
            raise DamagedError(f"{path}: damaged: {error}") from None


def _read_stage(path: Path) -> tuple[_StageHeader, npt.NDArray[np.uint64]]:
    """Read a stage, whosever it is."""
    try:
        header, batches = read_sealed(
            path, _StageHeader, _StageHeader.columns, CHECKPOINT_FORMAT, VERSION
        )
    except OtherVersionError:
        raise
    except ModelError as error:
        raise DamagedError(str(error)) from None
    if len(batches) != 1:
        raise DamagedError(f"{path}: damaged: scores in {len(batches)} batches")
    return header, np.ascontiguousarray(batches[0]["score"].T)


def room_for_checkpoints(samples: int, params: Params) -> int:
    """Return the most bytes that checkpoints take: one more than are kept, and of two runs."""
    scores, tables = checkpoint_bytes(samples, params)
    return (STAGES + (params.patience or 0) + 1) * scores + 2 * tables


def checkpoint_bytes(samples: int, params: Params) -> tuple[int, int]:
    """Return how many bytes a stage's scores and a run's tables take at most."""
    outputs = params.objective.outputs
    return 4096 + 8 * outputs * samples, params.tables * table_bytes(params.depth, outputs)
