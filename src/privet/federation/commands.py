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

from privet.cli.app import COMMAND
from privet.cli.own_dealer import own_dealer
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.config.table import DataDescription
from privet.data.frame import Ids
from privet.data.sharded_table import rewrite_table
from privet.errors import BusyError, DataError, ModelError, ParameterError, UnavailableError
from privet.federation.alignment.alignment import alignments_of, find_common
from privet.federation.local_data import checkpoint_folder
from privet.federation.monitoring.events import Event, Teller, audited, recorded
from privet.federation.monitoring.report import AlignmentReport
from privet.federation.prediction.prediction import load_own_part
from privet.federation.session.agreement import Statement, agree_on_purpose
from privet.federation.session.session import Seat, seated
from privet.filesystem import Doing, locked, write_atomically
from privet.storage.alignment import Alignments
from privet.storage.model_part import PartFile


@contextlib.contextmanager
def training(party: Path, job: Path, wait: float, tell: Teller) -> Iterator[tuple[PartyFile, Seat]]:
    """Yield what is ours, and our seat in a job."""
    own = PartyFile.load(party)
    with _seated(own, Job.read(job), "train", wait, tell, job) as seat:
        yield own, seat


@contextlib.contextmanager
def predicting(
    party: Path, model: Path, job: Path | None, wait: float, tell: Teller
) -> Iterator[tuple[PartyFile, Seat, PartFile]]:
    """Yield what is ours, our seat in the model's job or the one given, and our part of the model.

    Unless a job is given, a part that cannot be read leaves nobody who could be told so.
    """
    own = PartyFile.load(party)
    if job is None:
        file = load_own_part(own, model, None)
        with _seated(own, file.job, "predict", wait, tell) as seat:
            yield own, seat, file
        return
    with _seated(own, Job.read(job), "predict", wait, tell, job) as seat:
        yield own, seat, load_own_part(own, model, seat.job)


@contextlib.contextmanager
def alone(
    own: PartyFile, job: Job, doing: Doing, tell: Teller
) -> Iterator[UnavailableError | None]:
    """Be the only process of ours that does something for a job; raise BusyError if one is.

    Yields what else keeps a training from having the folder to itself, a full disk for instance.
    Other commands, which may do without, warn of that.
    """
    with contextlib.ExitStack() as stack:
        trouble: UnavailableError | None = None
        try:
            stack.enter_context(locked(own.folder, job.name, doing))
        except BusyError:
            raise
        except UnavailableError as error:
            if doing == "train":
                trouble = error
            else:
                text = f"warning: nothing keeps another process from doing the same: {error}"
                tell(Event("warning", text))
        yield trouble


@contextlib.contextmanager
def _seated(
    own: PartyFile, job: Job, doing: Doing, wait: float, tell: Teller, file: Path | None = None
) -> Iterator[Seat]:
    own.check_seat(job)
    keys = own.key, own.certificate, own.listen
    with (
        alone(own, job, doing, tell) as trouble,
        recorded(own.folder, job, own.name, COMMAND.get(), tell, file),
        audited(own.audit, job, own.name, COMMAND.get(), tell),
        own_dealer(own, job, wait, tell),
        seated(job, own.name, *keys, wait=wait, tell=tell) as seat,
    ):
        if trouble is not None:
            raise trouble  # only here, where the others are told of it
        yield seat


def align_table(party: PartyFile, seat: Seat) -> tuple[AlignmentReport, Ids]:
    """Find out which of our rows all have, and keep it for a training.

    Returns what it took, and the ids of these rows, in the order that all have agreed on. Whoever
    calls this has the folder locked, as for a training.
    """
    job = seat.job
    if not job.align:
        raise ParameterError("align: the job does not say align = true, so nothing would use it")
    folder = checkpoint_folder(party, job)
    if any(folder.glob("*.scores")):
        raise ModelError(
            f"{folder}: holds tables of a training that can go on with the rows as they are "
            "aligned: finish it, or remove it before you align anew"
        )
    ids = party.read_ids(job)
    alignments = alignments_of(job, ids, party.folder)
    with seat.meet() as channel:
        statement = Statement.of(job, command="align", aligned=alignments.count)
        purpose = agree_on_purpose(channel, job, statement)
        common = find_common(channel, job, purpose, ids, alignments, seat.tell)
        channel.close()
    alignments.keep(common.alignment, ids.digest().hex(), len(ids))
    return common.report, ids.take(common.rows)


def write_ids(ids: Ids, path: str | Path) -> None:
    """Write ids as their owner has them, for it alone."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ids.names)
    writer.writerows(zip(*ids.cells(), strict=True))
    write_atomically(path, text.getvalue().encode(), private=True)


def shard_table(party: PartyFile, job: Job, folder: Path, shards: int) -> DataDescription:
    """Write our rows that take part, in the order that all share; return what is there.

    Ids are read first, so what no training would take (one twice, or none) is refused before
    anything is written. An alignment that was kept is kept for the new table, too.
    """
    party.check_seat(job)
    if not job.align:
        party.read_ids(job)
        return rewrite_table(party.data, folder, shards)
    with locked(party.folder, job.name):
        ids, alignments = party.read_ids(job), Alignments(party.folder, job)
        alignment = alignments.find(ids.digest().hex())
        if alignment is None:
            raise DataError(
                f"{party.data.where}: its rows are not aligned for the job {job.name!r}, so they "
                "have no order yet: run `privet align` first, with the others"
            )
        written = rewrite_table(party.data, folder, shards, alignment.rows)
        alignments.keep_sharded(alignment, ids.take(alignment.rows).digest().hex())
        return written


def changes(before: DataDescription, after: DataDescription) -> tuple[list[str], list[str]]:
    """Return the lines of `[data]` that become others, and the keys that are to be left out."""
    lines, gone = list[str](), list[str]()
    for key, field in type(after).model_fields.items():
        value = getattr(after, key)
        if value == getattr(before, key):
            continue
        if value == field.get_default(call_default_factory=True):
            gone.append(key)
        else:
            lines.append(f"{key} = {_toml(value)}")
    return lines, gone


def _toml(value: str | list[str] | dict[str, Any]) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(value[key])}" for key in value) + " }"
    return json.dumps(value, ensure_ascii=False)
