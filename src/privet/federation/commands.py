"""The work behind a participant's commands: opening a session, aligning, writing shards.

Whatever fails from then on, before all have met, is told to the others of the job. But first of all
we see whether another process of ours is at it already: it speaks for us, so one that comes second
is recorded nowhere, starts no dealer, never listens, and tells nobody.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privet.cli.app import current_command
from privet.cli.own_dealer import own_dealer
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.config.table import TableSpec
from privet.data.frame import Ids
from privet.data.sharded_table import write_sharded_table
from privet.errors import BusyError, DataError, ModelError, ParameterError, UnavailableError
from privet.federation.alignment.alignment import align_rows, open_alignment_store
from privet.federation.local_data import make_checkpoint_path
from privet.federation.monitoring.events import Event, EventBus, audit_session, record_run
from privet.federation.monitoring.report import AlignmentReport
from privet.federation.prediction.prediction import load_local_part
from privet.federation.session.agreement import Proposal, exchange_proposals
from privet.federation.session.session import LocalMember, open_session
from privet.filesystem import LockPurpose, lock_job, write_atomically
from privet.storage.alignment import AlignmentStore
from privet.storage.model_part import ModelPartFile


@contextlib.contextmanager
def open_training_session(
    party: Path, job_path: Path, timeout: float, event_bus: EventBus
) -> Iterator[tuple[PartyConfig, LocalMember]]:
    """Yield what is ours, and our seat in a job."""
    own = PartyConfig.load(party)
    with _open_command_session(
        own, Job.read(job_path), "train", timeout, event_bus, job_path
    ) as seat:
        yield own, seat


@contextlib.contextmanager
def open_prediction_session(
    party: Path, part_path: Path, job_path: Path | None, timeout: float, event_bus: EventBus
) -> Iterator[tuple[PartyConfig, LocalMember, ModelPartFile]]:
    """Yield what is ours, our seat in the model's job or the one given, and our part of the model.

    Unless a job is given, a part that cannot be read leaves nobody who could be told so.
    """
    own = PartyConfig.load(party)
    if job_path is None:
        file = load_local_part(own, part_path, None)
        with _open_command_session(own, file.job, "predict", timeout, event_bus) as seat:
            yield own, seat, file
        return
    with _open_command_session(
        own, Job.read(job_path), "predict", timeout, event_bus, job_path
    ) as seat:
        yield own, seat, load_local_part(own, part_path, seat.job)


@contextlib.contextmanager
def lock_job_or_warn(
    party_config: PartyConfig, job: Job, purpose: LockPurpose, event_bus: EventBus
) -> Iterator[UnavailableError | None]:
    """Be the only process of ours that does something for a job; raise BusyError if one is.

    Yields what else keeps a training from having the folder to itself, a full disk for instance.
    Other commands, which may do without, warn of that.
    """
    with contextlib.ExitStack() as stack:
        trouble: UnavailableError | None = None
        try:
            stack.enter_context(lock_job(party_config.folder, job.name, purpose))
        except BusyError:
            raise
        except UnavailableError as error:
            if purpose == "train":
                trouble = error
            else:
                text = f"warning: nothing keeps another process from doing the same: {error}"
                event_bus(Event("warning", text))
        yield trouble


@contextlib.contextmanager
def _open_command_session(
    party_config: PartyConfig,
    job: Job,
    purpose: LockPurpose,
    timeout: float,
    event_bus: EventBus,
    job_file: Path | None = None,
) -> Iterator[LocalMember]:
    party_config.check_membership(job)
    keys = party_config.key, party_config.certificate, party_config.listen
    with (
        lock_job_or_warn(party_config, job, purpose, event_bus) as trouble,
        record_run(
            party_config.folder, job, party_config.name, current_command.get(), event_bus, job_file
        ),
        audit_session(party_config.audit, job, party_config.name, current_command.get(), event_bus),
        own_dealer(party_config, job, timeout, event_bus),
        open_session(job, party_config.name, *keys, timeout=timeout, emit=event_bus) as seat,
    ):
        if trouble is not None:
            raise trouble  # only here, where the others are told of it
        yield seat


def run_alignment(party_config: PartyConfig, member: LocalMember) -> tuple[AlignmentReport, Ids]:
    """Find out which of our rows all have, and keep it for a training.

    Returns what it took, and the ids of these rows, in the order that all have agreed on. Whoever
    calls this has the folder locked, as for a training.
    """
    job = member.job
    if not job.align:
        raise ParameterError("align: the job does not say align = true, so nothing would use it")
    folder = make_checkpoint_path(party_config, job)
    if any(folder.glob("*.scores")):
        raise ModelError(
            f"{folder}: holds tables of a training that can go on with the rows as they are "
            "aligned: finish it, or remove it before you align anew"
        )
    ids = party_config.read_ids(job)
    alignments = open_alignment_store(job, ids, party_config.folder)
    with member.connect() as channel:
        statement = Proposal.for_job(job, command="align", aligned=alignments.read_count)
        purpose = exchange_proposals(channel, job, statement)
        common = align_rows(channel, job, purpose, ids, alignments, member.emit)
        channel.close()
    alignments.save(common.alignment, ids.digest().hex(), len(ids))
    return common.report, ids.take(common.rows)


def write_ids(ids: Ids, path: str | Path) -> None:
    """Write ids as their owner has them, for it alone."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ids.names)
    writer.writerows(zip(*ids.to_columns(), strict=True))
    write_atomically(path, text.getvalue().encode(), private=True)


def write_party_shards(party_config: PartyConfig, job: Job, folder: Path, shards: int) -> TableSpec:
    """Write our rows that take part, in the order that all share; return what is there.

    Ids are read first, so what no training would take (one twice, or none) is refused before
    anything is written. An alignment that was kept is kept for the new table, too.
    """
    party_config.check_membership(job)
    if not job.align:
        party_config.read_ids(job)
        return write_sharded_table(party_config.data, folder, shards)
    with lock_job(party_config.folder, job.name):
        ids, alignments = party_config.read_ids(job), AlignmentStore(party_config.folder, job)
        alignment = alignments.find(ids.digest().hex())
        if alignment is None:
            raise DataError(
                f"{party_config.data.display_name}: its rows are not aligned for the job "
                f"{job.name!r}, so they "
                "have no order yet: run `privet align` first, with the others"
            )
        written = write_sharded_table(party_config.data, folder, shards, alignment.rows)
        alignments.save_sharded(alignment, ids.take(alignment.rows).digest().hex())
        return written


def diff_table_specs(old_spec: TableSpec, new_spec: TableSpec) -> tuple[list[str], list[str]]:
    """Return the lines of `[data]` that become others, and the keys that are to be left out."""
    lines, gone = list[str](), list[str]()
    for key, field in type(new_spec).model_fields.items():
        value = getattr(new_spec, key)
        if value == getattr(old_spec, key):
            continue
        if value == field.get_default(call_default_factory=True):
            gone.append(key)
        else:
            lines.append(f"{key} = {_format_toml_value(value)}")
    return lines, gone


def _format_toml_value(value: str | list[str] | dict[str, Any]) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(
                f"{_format_toml_value(key)} = {_format_toml_value(value[key])}" for key in value
            )
            + " }"
        )
    return json.dumps(value, ensure_ascii=False)
