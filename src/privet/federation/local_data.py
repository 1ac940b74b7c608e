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

from privet.boosting.preparation import Prepared, prepare, refuse_constrained_categories
from privet.boosting.training import PartyData, TrainingState
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.data.encoding import settle_label
from privet.data.frame import ByColumn, Ids
from privet.data.sources.base import naming
from privet.errors import DataError, ModelError, ParameterError
from privet.federation.alignment.alignment import Common, alignments_of, find_common, refuse_few
from privet.federation.monitoring.events import Tell
from privet.federation.offline import Dealt
from privet.federation.session.agreement import Purpose
from privet.filesystem import check_room, make_folder, make_way
from privet.spec.params import Params
from privet.storage.alignment import Alignment, Alignments
from privet.storage.checkpoint import STAGES, Checkpoints, Stage, checkpoint_bytes
from privet.storage.indicators import FOLDER
from privet.storage.json_records import MAX_BYTES
from privet.storage.model_part import PartFile, load_part, part_bytes, room_for_training
from privet.transport.channel import Channel


@dataclass(frozen=True, repr=False)
class Own:
    """What a participant trains with: the rows that take part, and what is left of earlier runs."""

    data: PartyData
    prepared: Prepared
    ids: Ids
    digest: str
    checkpoints: Checkpoints
    path: Path
    """Where the model's part goes."""
    model: PartFile | None
    """The part that is there already."""
    stages: list[Stage]
    """The stages that we could go on from."""
    ended: bool
    """Whether a training of the job's length has ended, at the only one of them."""
    kept: Path
    """The folder of indicators that are kept, if the job has them kept."""
    dealt: Dealt | None
    """Correlations that were dealt ahead, if we are to use any."""

    def state(self, stage: Stage) -> TrainingState | None:
        """Return what we had at a stage that all have."""
        if stage[0] == 0:
            return None
        if stage not in self.checkpoints.stages():
            # Then nothing is left to train, and the scores, which are gone, are not needed.
            assert self.model is not None
            return TrainingState(self.model.part, np.empty(0, dtype=np.uint64))
        return self.checkpoints.load(stage)


@dataclass(frozen=True, repr=False)
class Table:
    """A participant's whole table, of which all rows take part or those that all have."""

    party: PartyFile
    job: Job
    rows: ByColumn
    """All of them."""
    restart: bool
    keys: str
    """The digest of its ids' keys, if the job aligns them."""
    alignment: Alignment | None
    """The one that was kept for these rows, if we would use it again."""

    @classmethod
    def read(cls, party: PartyFile, job: Job, restart: bool) -> Table:
        """Read a table, and see whether its rows were aligned before."""
        rows = party.read_rows(job)
        frame = rows.frame
        if job.align and frame.label is not None:  # else the label is settled at once, in `own`
            with naming(party.data.where):
                settle_label(frame, job.task, party.data.positive, job.classes)
        assert frame.ids is not None
        alignments = alignments_of(job, frame.ids, party.folder)
        if not job.align:
            return cls(party, job, rows, restart, "", None)
        keys, alignment = frame.ids.digest().hex(), None
        if not restart or party.correlations is not None:  # without a dealer, there is no other
            alignment = alignments.find(keys)
        found = cls(party, job, rows, restart, keys, alignment)
        if alignment is None:
            found._refuse_unaligned()
        else:
            refuse_few(job, frame.ids, alignment.rows)
        return found

    @property
    def alignments(self) -> Alignments:
        """Where the job's alignments are kept and counted."""
        return Alignments(self.party.folder, self.job)

    def own(self) -> Own | None:
        """Return what we bring along; None if it is not known yet which rows take part."""
        rows = self._rows_that_take_part()
        return None if rows is None else self._own(rows)

    def prepare(self) -> Prepared | None:
        """Make these rows ready, and look at nothing that is kept."""
        rows = self._rows_that_take_part()
        return None if rows is None else self._prepare(rows)

    def _rows_that_take_part(self) -> ByColumn | None:
        if not self.job.align:
            return self.rows
        return None if self.alignment is None else self.rows.take(self.alignment.rows)

    def find_common(
        self, channel: Channel, purpose: Purpose, tell: Tell, own: Own | None
    ) -> tuple[Common, Own]:
        """Find out, as the job says, which rows take part; return what we bring along then."""
        alignments, ids = self.alignments, self.rows.frame.ids
        assert ids is not None
        common = find_common(channel, self.job, purpose, ids, alignments, tell, kept=self.alignment)
        if common.report.used_again:
            assert own is not None
            return common, own
        own = self._own(self.rows.take(common.rows))
        alignments.keep(common.alignment, self.keys, len(ids))
        return common, own

    def states(self, own: Own | None) -> dict[str, Any]:
        """Return what we state of alignments, as keys of a statement."""
        return {
            "alignment": None if self.alignment is None else self.alignment.name,
            "aligned": self.alignments.count,
            "goes_on": own is not None and bool(own.stages),
        }

    def _refuse_unaligned(self) -> None:
        """Raise if there is something that needs rows as they were aligned before."""
        if self.party.correlations is not None:
            raise DataError(
                f"{self.party.data.where}: its rows are not aligned, and with correlations that "
                "were dealt ahead no dealer is there to help: run `privet align` everywhere first, "
                "with the dealer"
            )
        part = _part_path(self.party, self.job)
        left = [part] if part.exists() else []
        left += checkpoint_folder(self.party, self.job).glob("*.scores")
        if left and not self.restart:
            raise ModelError(
                f"{left[0]}: was trained on rows as they were aligned before, and "
                f"{self.alignments.path} is not there any more, or not for these ids: put the file "
                "or the rows back, or start again with --restart"
            )

    def _prepare(self, rows: ByColumn) -> Prepared:
        name, said, job = self.party.name, self.party.data, self.job
        with naming(said.where):
            params = job.hyper_parameters()
            prepared = prepare(name, rows, params, said.positive, said.class_weight)
            refuse_constrained_categories(prepared.encoders, job.monotone.get(name, {}))
        return prepared

    def _own(self, rows: ByColumn) -> Own:
        """Make ready what takes part, and check what is there of it."""
        party, job, restart = self.party, self.job, self.restart
        params, prepared = job.hyper_parameters(), self._prepare(rows)
        data = PartyData(prepared.columns, prepared.label, prepared.weight)
        ids = prepared.ids
        assert ids is not None
        digest = _data_digest(data, ids)
        folder = make_folder(party.folder)
        path = _part_path(party, job)
        make_way(path)
        scores, tables = checkpoint_bytes(rows.n_samples, params)
        part = part_bytes(job)
        largest = max(scores, tables, part)
        if largest > MAX_BYTES:
            raise ParameterError(
                f"tables: {params.tables} of depth {params.depth} with {rows.n_samples} samples "
                f"make files of {largest / 1e6:,.0f} MB, and {MAX_BYTES / 1e6:,.0f} MB are read at "
                "most"
            )
        check_room(folder, room_for_training(job, rows.n_samples))
        folder_of_job = checkpoint_folder(party, job)
        kept = STAGES + (params.patience or 0)
        checkpoints = Checkpoints(folder_of_job, job.digest, digest, kept, job.shards)
        model, stages, end = None, list[Stage](), None
        if not restart:
            model, stages = _earlier_model(path, job, digest), checkpoints.stages()
            end = _end(model, checkpoints, job)
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
            dealt = Dealt.find(
                party.dealt, folder, job, party.name, data.columns, going_on=bool(stages)
            )
        return Own(
            data=data,
            prepared=prepared,
            ids=ids,
            digest=digest,
            checkpoints=checkpoints,
            path=path,
            model=model,
            stages=stages,
            ended=end is not None,
            kept=folder / FOLDER,
            dealt=dealt,
        )


def _data_digest(data: PartyData, ids: Ids) -> str:
    """Return a digest of everything that a training takes from a participant, and of whose it is.

    With ids, because rows in another order may look the same to one participant, not to all.
    """
    digest = hashlib.sha256(ids.digest())
    digest.update("\0".join(data.columns.names).encode())
    for array in (*data.columns.buckets, data.columns.thresholds, data.label, data.weight):
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.hexdigest()


def _part_path(party: PartyFile, job: Job) -> Path:
    return Path(party.folder) / f"{job.name}.part"


def checkpoint_folder(party: PartyFile, job: Job) -> Path:
    """Return where the checkpoints of a job's training are."""
    return Path(party.folder) / f"{job.name}.checkpoints"


def _earlier_model(path: Path, job: Job, digest: str) -> PartFile | None:
    """Return the part that an earlier run of the same job left; refuse to replace another's."""
    if not path.exists():
        return None
    file = load_part(path)
    for how, ours, its in (
        ("by another job", job.digest, file.job.digest),
        ("on other data", digest, file.data),
    ):
        if ours != its:
            raise ModelError(
                f"{path}: was trained {how}; move it away, give the job another name, or replace "
                "it with --restart"
            )
    return file


def _end(model: PartFile | None, checkpoints: Checkpoints, job: Job) -> Stage | None:
    """Return where a training of this length ended, if one did: at a part, or just before."""
    if model is None:
        return None if job.explain is not None else checkpoints.ended(job.length)
    params = job.hyper_parameters()
    whole = model.part.n_tables == params.tables and params.patience is None
    return model.stage if whole or model.job.length == job.length else None


def _check_length(
    path: Path, model: PartFile | None, stages: list[Stage], end: Stage | None, params: Params
) -> None:
    """Raise unless a training that did not end could go on to as many tables as the job says."""
    left = max((done for done, _ in stages), default=0)
    kept = 0 if model is None else model.part.n_tables
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
