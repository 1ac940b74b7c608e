"""One participant's share in an alignment by itself, before a training that will use it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from privet.data.ids import Ids
from privet.errors import ModelError, ParameterError
from privet.federation.agreement import Statement, agree_on_purpose
from privet.federation.common_rows import alignments_of, find_common
from privet.federation.own import checkpoint_folder
from privet.federation.party_report import AlignmentReport
from privet.federation.session import Seat
from privet.files.atomic import write_atomically
from privet.files.party_file import PartyFile


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
