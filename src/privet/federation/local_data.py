"""A participant's local data for a training run, and its state from earlier runs.

Privet reads and checks both before it contacts the other participants, if the training rows are
known: all rows, or the rows of a stored alignment. Otherwise it does so right after the alignment,
because buckets depend on the rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privet.boosting.preparation import PreparedData, check_constrained_columns, prepare_data
from privet.boosting.training import TrainingData, TrainingState
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.encoding import prepare_label
from privet.data.frame import Ids, LazyFrame
from privet.data.sources.base import locate_errors
from privet.errors import DataError, ModelError, ParameterError
from privet.federation.alignment.alignment import (
    CommonRows,
    align_rows,
    check_min_common_rows,
    open_alignment_store,
)
from privet.federation.monitoring.events import EventHandler
from privet.federation.offline import LocalPreprocessing
from privet.federation.session.agreement import SessionPlan
from privet.filesystem import check_free_space, make_folder, prepare_output
from privet.spec.params import Params
from privet.storage.alignment import Alignment, AlignmentStore
from privet.storage.checkpoint import (
    MIN_CHECKPOINTS,
    CheckpointKey,
    CheckpointStore,
    bound_score_and_table_bytes,
)
from privet.storage.indicators import FOLDER
from privet.storage.json_records import MAX_FILE_BYTES
from privet.storage.model_part import (
    ModelPartFile,
    bound_part_bytes,
    bound_training_bytes,
    load_part,
)
from privet.transport.channel import Channel


@dataclass(frozen=True, repr=False)
class LocalState:
    """A participant's training rows, and its state from earlier runs."""

    data: TrainingData
    prepared: PreparedData
    ids: Ids
    data_digest: str
    checkpoints: CheckpointStore
    part_path: Path
    """Path of the model part to write."""
    previous_part: ModelPartFile | None
    """Model part that an earlier run left at `part_path`."""
    checkpoint_keys: list[CheckpointKey]
    """Checkpoints that this participant can resume from."""
    is_finished: bool
    """Whether training to the job's length has finished, at the only checkpoint listed."""
    kept: Path
    """The folder of indicators that are kept, if the job has them kept."""
    preprocessing: LocalPreprocessing | None
    """Preprocessing files, if the training run uses any."""

    def load_state(self, key: CheckpointKey) -> TrainingState | None:
        """Return the training state at a checkpoint that all participants have."""
        if key[0] == 0:
            return None
        if key not in self.checkpoints.list_keys():
            # No table is left to train, so the scores, which are deleted, are not needed.
            assert self.previous_part is not None
            return TrainingState(self.previous_part.part, np.empty(0, dtype=np.uint64))
        return self.checkpoints.load(key)


@dataclass(frozen=True, repr=False)
class LocalTable:
    """A participant's whole table: training uses all of its rows, or the common rows."""

    party_config: PartyConfig
    job: Job
    all_rows: LazyFrame
    restart: bool
    keys_digest: str
    """Digest of the match keys of the ids, if `align = true`."""
    saved_alignment: Alignment | None
    """Stored alignment of these rows, if it can be reused."""

    @classmethod
    def read(cls, party_config: PartyConfig, job: Job, restart: bool) -> LocalTable:
        """Read a table, and look up a stored alignment of its rows."""
        rows = party_config.read_rows(job)
        frame = rows.row_data
        if (
            job.align and frame.label is not None
        ):  # otherwise `load_local_state` prepares the label right away
            with locate_errors(party_config.data.display_name):
                prepare_label(frame, job.task, party_config.data.positive, job.classes)
        assert frame.ids is not None
        alignments = open_alignment_store(job, frame.ids, party_config.folder)
        if not job.align:
            return cls(party_config, job, rows, restart, "", None)
        keys_digest, alignment = frame.ids.digest().hex(), None
        if (
            not restart or party_config.correlations is not None
        ):  # without a dealer, no new alignment is possible
            alignment = alignments.find(keys_digest)
        table = cls(party_config, job, rows, restart, keys_digest, alignment)
        if alignment is None:
            table._check_alignment_not_required()
        else:
            check_min_common_rows(job, frame.ids, alignment.rows)
        return table

    @property
    def alignment_store(self) -> AlignmentStore:
        """Store that keeps and counts the job's alignments."""
        return AlignmentStore(self.party_config.folder, self.job)

    def load_local_state(self) -> LocalState | None:
        """Return the local state; None if the training rows are not known yet."""
        rows = self._select_rows()
        return None if rows is None else self._make_local_state(rows)

    def prepare_rows(self) -> PreparedData | None:
        """Prepare the training rows, and ignore state from earlier runs."""
        rows = self._select_rows()
        return None if rows is None else self._prepare_rows(rows)

    def _select_rows(self) -> LazyFrame | None:
        if not self.job.align:
            return self.all_rows
        return (
            None if self.saved_alignment is None else self.all_rows.take(self.saved_alignment.rows)
        )

    def align(
        self, channel: Channel, plan: SessionPlan, emit: EventHandler, state: LocalState | None
    ) -> tuple[CommonRows, LocalState]:
        """Align the rows with the other participants; return common rows and local state."""
        alignments, ids = self.alignment_store, self.all_rows.row_data.ids
        assert ids is not None
        common = align_rows(
            channel, self.job, plan, ids, alignments, emit, saved_alignment=self.saved_alignment
        )
        if common.report.used_again:
            assert state is not None
            return common, state
        state = self._make_local_state(self.all_rows.take(common.rows))
        alignments.save(common.alignment, self.keys_digest, len(ids))
        return common, state

    def make_proposal_fields(self, state: LocalState | None) -> dict[str, Any]:
        """Return the fields of a `Proposal` that describe the stored alignment."""
        return {
            "alignment": None
            if self.saved_alignment is None
            else self.saved_alignment.alignment_id,
            "aligned": self.alignment_store.read_count,
            "goes_on": state is not None and bool(state.checkpoint_keys),
        }

    def _check_alignment_not_required(self) -> None:
        """Raise if preprocessing files or earlier results require the missing alignment."""
        if self.party_config.correlations is not None:
            raise DataError(
                f"{self.party_config.data.display_name}: its rows are not aligned, and with "
                "correlations that "
                "were dealt ahead no dealer is there to help: run `privet align` everywhere first, "
                "with the dealer"
            )
        part_path = _make_part_path(self.party_config, self.job)
        leftovers = [part_path] if part_path.exists() else []
        leftovers += make_checkpoint_path(self.party_config, self.job).glob("*.scores")
        if leftovers and not self.restart:
            raise ModelError(
                f"{leftovers[0]}: was trained on rows as they were aligned before, and "
                f"{self.alignment_store.path} is not there any more, or not for these ids: put the "
                "file or the rows back, or start again with --restart"
            )

    def _prepare_rows(self, rows: LazyFrame) -> PreparedData:
        name, table, job = self.party_config.name, self.party_config.data, self.job
        with locate_errors(table.display_name):
            params = job.make_params()
            prepared = prepare_data(name, rows, params, table.positive, table.class_weight)
            check_constrained_columns(prepared.encoders, job.monotone.get(name, {}))
        return prepared

    def _make_local_state(self, rows: LazyFrame) -> LocalState:
        """Prepare the training rows, and check the state from earlier runs against them."""
        party, job, restart = self.party_config, self.job, self.restart
        params, prepared = job.make_params(), self._prepare_rows(rows)
        data = TrainingData(prepared.columns, prepared.label, prepared.sample_weight)
        ids = prepared.ids
        assert ids is not None
        data_digest = _digest_data(data, ids)
        folder = make_folder(party.folder)
        part_path = _make_part_path(party, job)
        prepare_output(part_path)
        score_bytes, table_bytes = bound_score_and_table_bytes(rows.n_samples, params)
        part_bytes = bound_part_bytes(job)
        largest = max(score_bytes, table_bytes, part_bytes)
        if largest > MAX_FILE_BYTES:
            raise ParameterError(
                f"tables: {params.tables} of depth {params.depth} with {rows.n_samples} samples "
                f"make files of {largest / 1e6:,.0f} MB, and {MAX_FILE_BYTES / 1e6:,.0f} MB are "
                "read at most"
            )
        check_free_space(folder, bound_training_bytes(job, rows.n_samples))
        checkpoint_folder = make_checkpoint_path(party, job)
        n_kept = MIN_CHECKPOINTS + (params.patience or 0)
        checkpoints = CheckpointStore(
            checkpoint_folder, job.digest, data_digest, n_kept, job.shards
        )
        previous_part, checkpoint_keys, finished_key = None, list[CheckpointKey](), None
        if not restart:
            previous_part, checkpoint_keys = (
                _load_previous_part(part_path, job, data_digest),
                checkpoints.list_keys(),
            )
            finished_key = _find_finished_checkpoint(previous_part, checkpoints, job)
            _check_table_count(part_path, previous_part, checkpoint_keys, finished_key, params)
        if finished_key is not None:
            checkpoint_keys = [finished_key]
        preprocessing = None
        if party.correlations is not None and job.shards > 1:
            raise ParameterError(
                "correlations: nothing is dealt ahead for rows in shards: leave it out, and have "
                "the dealer be there"
            )
        if party.correlations is not None:
            preprocessing = LocalPreprocessing.load(
                party.preprocessing_paths,
                folder,
                job,
                party.name,
                data.columns,
                is_resuming=bool(checkpoint_keys),
            )
        return LocalState(
            data=data,
            prepared=prepared,
            ids=ids,
            data_digest=data_digest,
            checkpoints=checkpoints,
            part_path=part_path,
            previous_part=previous_part,
            checkpoint_keys=checkpoint_keys,
            is_finished=finished_key is not None,
            kept=folder / FOLDER,
            preprocessing=preprocessing,
        )


def _digest_data(data: TrainingData, ids: Ids) -> str:
    """Return a digest of a participant's training data and its ids.

    The ids are included because a reordering of the rows can leave one participant's data
    unchanged and still change the data of another.
    """
    digest = hashlib.sha256(ids.digest())
    digest.update("\0".join(data.columns.names).encode())
    for array in (*data.columns.buckets, data.columns.thresholds, data.label, data.sample_weight):
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.hexdigest()


def _make_part_path(party_config: PartyConfig, job: Job) -> Path:
    return Path(party_config.folder) / f"{job.name}.part"


def make_checkpoint_path(party_config: PartyConfig, job: Job) -> Path:
    """Return the checkpoint folder of a job."""
    return Path(party_config.folder) / f"{job.name}.checkpoints"


def _load_previous_part(path: Path, job: Job, data_digest: str) -> ModelPartFile | None:
    """Return the part of an earlier run; raise if another job or other data produced it."""
    if not path.exists():
        return None
    file = load_part(path)
    for basis, expected, found in (
        ("by another job", job.digest, file.job.digest),
        ("on other data", data_digest, file.data),
    ):
        if expected != found:
            raise ModelError(
                f"{path}: was trained {basis}; move it away, give the job another name, or replace "
                "it with --restart"
            )
    return file


def _find_finished_checkpoint(
    previous_part: ModelPartFile | None, store: CheckpointStore, job: Job
) -> CheckpointKey | None:
    """Return the checkpoint at which a run of this length finished; None if no run did.

    A finished run leaves a model part, or, if it was interrupted just before, a checkpoint.
    """
    if previous_part is None:
        return None if job.explain is not None else store.find_finished(job.stopping_rule)
    params = job.make_params()
    is_complete = previous_part.part.n_tables == params.tables and params.patience is None
    return (
        previous_part.checkpoint_key
        if is_complete or previous_part.job.stopping_rule == job.stopping_rule
        else None
    )


def _check_table_count(
    path: Path,
    previous_part: ModelPartFile | None,
    checkpoint_keys: list[CheckpointKey],
    finished_key: CheckpointKey | None,
    params: Params,
) -> None:
    """Raise unless training can resume and reach the number of tables that the job sets."""
    n_checkpointed = max((n_done for n_done, _ in checkpoint_keys), default=0)
    n_in_part = 0 if previous_part is None else previous_part.part.n_tables
    if (n_done := max(n_checkpointed, n_in_part)) > params.tables:
        raise ParameterError(
            f"tables: {n_done} are trained already, and the job says {params.tables}: tables are "
            "added, never taken away. Say so many, or train anew with --restart"
        )
    if finished_key is None and n_checkpointed < n_in_part:
        raise ModelError(
            f"{path}: has {n_in_part} tables, and what is needed to train more of them "
            "is gone: put the job's folder of checkpoints back, or train anew with --restart"
        )
