"""The work behind a participant's commands: opening a session, aligning, writing shards."""

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
    """Yield the party config and the local member of a job."""
    party_config = PartyConfig.load(party)
    with _open_command_session(
        party_config, Job.read(job_path), "train", timeout, event_bus, job_path
    ) as member:
        yield party_config, member


@contextlib.contextmanager
def open_prediction_session(
    party: Path, part_path: Path, job_path: Path | None, timeout: float, event_bus: EventBus
) -> Iterator[tuple[PartyConfig, LocalMember, ModelPartFile]]:
    """Yield the party config, the local member and the local model part.

    The job is the one at `job_path`, or the one in the model part. Without `job_path`, the peers
    are not known if the part cannot be read, so they receive no failure notice.
    """
    party_config = PartyConfig.load(party)
    if job_path is None:
        part_file = load_local_part(party_config, part_path, None)
        with _open_command_session(
            party_config, part_file.job, "predict", timeout, event_bus
        ) as member:
            yield party_config, member, part_file
        return
    with _open_command_session(
        party_config, Job.read(job_path), "predict", timeout, event_bus, job_path
    ) as member:
        yield party_config, member, load_local_part(party_config, part_path, member.job)


@contextlib.contextmanager
def lock_job_or_warn(
    party_config: PartyConfig, job: Job, purpose: LockPurpose, event_bus: EventBus
) -> Iterator[UnavailableError | None]:
    """Hold the local lock of a job; raise BusyError if another local process holds it.

    If the lock fails for another reason, a full disk for instance, a training session yields the
    error. Other commands do not require the lock, and only emit a warning.
    """
    with contextlib.ExitStack() as stack:
        lock_error: UnavailableError | None = None
        try:
            stack.enter_context(lock_job(party_config.folder, job.name, purpose))
        except BusyError:
            raise
        except UnavailableError as error:
            if purpose == "train":
                lock_error = error
            else:
                text = f"warning: nothing keeps another process from doing the same: {error}"
                event_bus(Event("warning", text))
        yield lock_error


@contextlib.contextmanager
def _open_command_session(
    party_config: PartyConfig,
    job: Job,
    purpose: LockPurpose,
    timeout: float,
    event_bus: EventBus,
    job_file: Path | None = None,
) -> Iterator[LocalMember]:
    """Yield the local member of a job, with the lock, the records and the dealer of the command.

    The lock comes first: a second local process for the same job must not record a session, start a
    dealer, listen, or send failure notices, because the first one represents the participant.
    """
    party_config.check_membership(job)
    keys = party_config.key, party_config.certificate, party_config.listen
    with (
        lock_job_or_warn(party_config, job, purpose, event_bus) as lock_error,
        record_run(
            party_config.folder, job, party_config.name, current_command.get(), event_bus, job_file
        ),
        audit_session(party_config.audit, job, party_config.name, current_command.get(), event_bus),
        own_dealer(party_config, job, timeout, event_bus),
        open_session(job, party_config.name, *keys, timeout=timeout, emit=event_bus) as member,
    ):
        if lock_error is not None:
            raise lock_error  # raised inside the session, which notifies the peers
        yield member


def run_alignment(party_config: PartyConfig, member: LocalMember) -> tuple[AlignmentReport, Ids]:
    """Align the local rows with all participants, and store the alignment for training.

    Return the report and the common ids, in the order that all participants share. The caller must
    have locked the folder, as for training.
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
        proposal = Proposal.for_job(job, command="align", aligned=alignments.read_count)
        plan = exchange_proposals(channel, job, proposal)
        common = align_rows(channel, job, plan, ids, alignments, member.emit)
        channel.close()
    alignments.save(common.alignment, ids.digest().hex(), len(ids))
    return common.report, ids.take(common.rows)


def write_ids(ids: Ids, path: str | Path) -> None:
    """Write ids as a CSV file that only the local user can read."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ids.names)
    writer.writerows(zip(*ids.to_columns(), strict=True))
    write_atomically(path, text.getvalue().encode(), private=True)


def write_party_shards(party_config: PartyConfig, job: Job, folder: Path, shards: int) -> TableSpec:
    """Write the training rows in the order that all participants share; return the new table spec.

    The ids are read first, so a duplicate or missing id is rejected before anything is written. A
    stored alignment is also stored for the new table.
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
        new_spec = write_sharded_table(party_config.data, folder, shards, alignment.rows)
        alignments.save_sharded(alignment, ids.take(alignment.rows).digest().hex())
        return new_spec


def diff_table_specs(old_spec: TableSpec, new_spec: TableSpec) -> tuple[list[str], list[str]]:
    """Return the lines of `[data]` to set or change, and the keys to remove."""
    lines, removed = list[str](), list[str]()
    for key, field in type(new_spec).model_fields.items():
        value = getattr(new_spec, key)
        if value == getattr(old_spec, key):
            continue
        if value == field.get_default(call_default_factory=True):
            removed.append(key)
        else:
            lines.append(f"{key} = {_format_toml_value(value)}")
    return lines, removed


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
