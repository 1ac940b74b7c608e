"""What a participant brings along to a training, and what it may have from an earlier one.

All of it is read and checked before anybody is bothered, if it is known which rows take part: all,
or those of an alignment that was kept. Otherwise as soon as it is: buckets depend on the rows.
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
    """What a participant trains with: the rows that take part, and what is left of earlier runs."""

    data: TrainingData
    prepared: PreparedData
    ids: Ids
    data_digest: str
    checkpoints: CheckpointStore
    part_path: Path
    """Where the model's part goes."""
    previous_part: ModelPartFile | None
    """The part that is there already."""
    checkpoint_keys: list[CheckpointKey]
    """The stages that we could go on from."""
    is_finished: bool
    """Whether a training of the job's length has ended, at the only one of them."""
    kept: Path
    """The folder of indicators that are kept, if the job has them kept."""
    preprocessing: LocalPreprocessing | None
    """Correlations that were dealt ahead, if we are to use any."""

    def load_state(self, key: CheckpointKey) -> TrainingState | None:
        """Return what we had at a stage that all have."""
        if key[0] == 0:
            return None
        if key not in self.checkpoints.list_keys():
            # Then nothing is left to train, and the scores, which are gone, are not needed.
            assert self.previous_part is not None
            return TrainingState(self.previous_part.part, np.empty(0, dtype=np.uint64))
        return self.checkpoints.load(key)


@dataclass(frozen=True, repr=False)
class LocalTable:
    """A participant's whole table, of which all rows take part or those that all have."""

    party_config: PartyConfig
    job: Job
    all_rows: LazyFrame
    """All of them."""
    restart: bool
    keys_digest: str
    """The digest of its ids' keys, if the job aligns them."""
    saved_alignment: Alignment | None
    """The one that was kept for these rows, if we would use it again."""

    @classmethod
    def read(cls, party_config: PartyConfig, job: Job, restart: bool) -> LocalTable:
        """Read a table, and see whether its rows were aligned before."""
        rows = party_config.read_rows(job)
        frame = rows.row_data
        if (
            job.align and frame.label is not None
        ):  # else the label is settled at once, in `load_local_state`
            with locate_errors(party_config.data.display_name):
                prepare_label(frame, job.task, party_config.data.positive, job.classes)
        assert frame.ids is not None
        alignments = open_alignment_store(job, frame.ids, party_config.folder)
        if not job.align:
            return cls(party_config, job, rows, restart, "", None)
        keys, alignment = frame.ids.digest().hex(), None
        if (
            not restart or party_config.correlations is not None
        ):  # without a dealer, there is no other
            alignment = alignments.find(keys)
        found = cls(party_config, job, rows, restart, keys, alignment)
        if alignment is None:
            found._check_not_needed_aligned()
        else:
            check_min_common_rows(job, frame.ids, alignment.rows)
        return found

    @property
    def alignment_store(self) -> AlignmentStore:
        """Where the job's alignments are kept and counted."""
        return AlignmentStore(self.party_config.folder, self.job)

    def load_local_state(self) -> LocalState | None:
        """Return what we bring along; None if it is not known yet which rows take part."""
        rows = self._select_rows()
        return None if rows is None else self._make_local_state(rows)

    def prepare_rows(self) -> PreparedData | None:
        """Make these rows ready, and look at nothing that is kept."""
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
        """Find out, as the job says, which rows take part; return what we bring along then."""
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
        """Return what we state of alignments, as keys of a statement."""
        return {
            "alignment": None
            if self.saved_alignment is None
            else self.saved_alignment.alignment_id,
            "aligned": self.alignment_store.read_count,
            "goes_on": state is not None and bool(state.checkpoint_keys),
        }

    def _check_not_needed_aligned(self) -> None:
        """Raise if there is something that needs rows as they were aligned before."""
        if self.party_config.correlations is not None:
            raise DataError(
                f"{self.party_config.data.display_name}: its rows are not aligned, and with "
                "correlations that "
                "were dealt ahead no dealer is there to help: run `privet align` everywhere first, "
                "with the dealer"
            )
        part = _make_part_path(self.party_config, self.job)
        left = [part] if part.exists() else []
        left += make_checkpoint_path(self.party_config, self.job).glob("*.scores")
        if left and not self.restart:
            raise ModelError(
                f"{left[0]}: was trained on rows as they were aligned before, and "
                f"{self.alignment_store.path} is not there any more, or not for these ids: put the "
                "file or the rows back, or start again with --restart"
            )

    def _prepare_rows(self, rows: LazyFrame) -> PreparedData:
        name, said, job = self.party_config.name, self.party_config.data, self.job
        with locate_errors(said.display_name):
            params = job.make_params()
            prepared = prepare_data(name, rows, params, said.positive, said.class_weight)
            check_constrained_columns(prepared.encoders, job.monotone.get(name, {}))
        return prepared

    def _make_local_state(self, rows: LazyFrame) -> LocalState:
        """Make ready what takes part, and check what is there of it."""
        party, job, restart = self.party_config, self.job, self.restart
        params, prepared = job.make_params(), self._prepare_rows(rows)
        data = TrainingData(prepared.columns, prepared.label, prepared.sample_weight)
        ids = prepared.ids
        assert ids is not None
        digest = _digest_data(data, ids)
        folder = make_folder(party.folder)
        path = _make_part_path(party, job)
        prepare_output(path)
        scores, tables = bound_score_and_table_bytes(rows.n_samples, params)
        part = bound_part_bytes(job)
        largest = max(scores, tables, part)
        if largest > MAX_FILE_BYTES:
            raise ParameterError(
                f"tables: {params.tables} of depth {params.depth} with {rows.n_samples} samples "
                f"make files of {largest / 1e6:,.0f} MB, and {MAX_FILE_BYTES / 1e6:,.0f} MB are "
                "read at most"
            )
        check_free_space(folder, bound_training_bytes(job, rows.n_samples))
        folder_of_job = make_checkpoint_path(party, job)
        kept = MIN_CHECKPOINTS + (params.patience or 0)
        checkpoints = CheckpointStore(folder_of_job, job.digest, digest, kept, job.shards)
        model, stages, end = None, list[CheckpointKey](), None
        if not restart:
            model, stages = _load_previous_part(path, job, digest), checkpoints.list_keys()
            end = _find_end(model, checkpoints, job)
            _check_length(path, model, stages, end, params)
        if end is not None:
            stages = [end]
        dealt = None
        if party.correlations is not None and job.shards > 1:
            raise ParameterError(
                "correlations: nothing is dealt ahead for rows in shards: leave it out, and have "
                "the dealer be there"
            )
        if party.correlations is not None:
            dealt = LocalPreprocessing.load(
                party.preprocessing_paths,
                folder,
                job,
                party.name,
                data.columns,
                is_resuming=bool(stages),
            )
        return LocalState(
            data=data,
            prepared=prepared,
            ids=ids,
            data_digest=digest,
            checkpoints=checkpoints,
            part_path=path,
            previous_part=model,
            checkpoint_keys=stages,
            is_finished=end is not None,
            kept=folder / FOLDER,
            preprocessing=dealt,
        )


def _digest_data(data: TrainingData, ids: Ids) -> str:
    """Return a digest of everything that a training takes from a participant, and of whose it is.

    With ids, because rows in another order may look the same to one participant, not to all.
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
    """Return where the checkpoints of a job's training are."""
    return Path(party_config.folder) / f"{job.name}.checkpoints"


def _load_previous_part(path: Path, job: Job, data_digest: str) -> ModelPartFile | None:
    """Return the part that an earlier run of the same job left; refuse to replace another's."""
    if not path.exists():
        return None
    file = load_part(path)
    for how, ours, its in (
        ("by another job", job.digest, file.job.digest),
        ("on other data", data_digest, file.data),
    ):
        if ours != its:
            raise ModelError(
                f"{path}: was trained {how}; move it away, give the job another name, or replace "
                "it with --restart"
            )
    return file


def _find_end(
    previous_part: ModelPartFile | None, store: CheckpointStore, job: Job
) -> CheckpointKey | None:
    """Return where a training of this length ended, if one did: at a part, or just before."""
    if previous_part is None:
        return None if job.explain is not None else store.find_finished(job.stopping_rule)
    params = job.make_params()
    whole = previous_part.part.n_tables == params.tables and params.patience is None
    return (
        previous_part.checkpoint_key
        if whole or previous_part.job.stopping_rule == job.stopping_rule
        else None
    )


def _check_length(
    path: Path,
    previous_part: ModelPartFile | None,
    checkpoint_keys: list[CheckpointKey],
    end: CheckpointKey | None,
    params: Params,
) -> None:
    """Raise unless a training that did not end could go on to as many tables as the job says."""
    left = max((done for done, _ in checkpoint_keys), default=0)
    kept = 0 if previous_part is None else previous_part.part.n_tables
    if (done := max(left, kept)) > params.tables:
        raise ParameterError(
            f"tables: {done} are trained already, and the job says {params.tables}: tables are "
            "added, never taken away. Say so many, or train anew with --restart"
        )
    if end is None and left < kept:
        raise ModelError(
            f"{path}: has {kept} tables, and what is needed to train more of them "
            "is gone: put the job's folder of checkpoints back, or train anew with --restart"
        )
