"""Which rows take part where a job aligns them: those of a kept alignment, or of a new one.

A training that goes on, that was dealt ahead, or that uses kept indicators again needs the same
rows in the same order as before. So participants keep the alignment of a training, and use it again
if all of them state the same one. Predictions are aligned anew, and keep nothing.

All find the same: too few rows, an alignment too many, or that somebody has kept another one.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.arrays import IndexArray
from privet.data.ids import Ids
from privet.errors import DataError, ParameterError, PeerMisbehavedError
from privet.federation.agreement import Purpose
from privet.federation.alignment import align
from privet.federation.differences import refuse_differences
from privet.federation.events import Event, Tell
from privet.federation.intersection import entries_of, intersect, marks_of
from privet.federation.party_report import AlignmentReport, Reveal
from privet.files.alignments import Alignment, Alignments
from privet.files.atomic import make_folder
from privet.files.id_terms import MOST_ROWS
from privet.files.job import Job
from privet.transport.channel import Channel
from privet.transport.messages import receive, send


@dataclass(frozen=True, eq=False, repr=False)
class Common:
    """The rows that all have, as one participant finds them."""

    alignment: Alignment
    report: AlignmentReport

    @property
    def rows(self) -> IndexArray:
        """Our rows, in the order that all have agreed on."""
        return self.alignment.rows


def alignments_of(job: Job, ids: Ids, folder: str | Path) -> Alignments:
    """Return where a job's alignments are counted and kept.

    Raise, before anybody is bothered, if they cannot be, or there are more rows than can be
    aligned or than the job has us show.
    """
    if job.align:
        most = min(job.ids.padded or MOST_ROWS, MOST_ROWS)
        if len(ids) > most:
            padded = ", to which the job has all padded" if job.ids.padded else ""
            raise DataError(f"{len(ids):,} rows are more than {most:,}{padded}: use fewer")
        make_folder(folder)
    return Alignments(folder, job)


def is_kept(channel: Channel, job: Job, purpose: Purpose) -> bool:
    """Tell whether all have kept the same alignment; raise, at all, if no other can be made."""
    kept = {name: stated.alignment for name, stated in purpose.statements.items()}
    if len(set(kept.values())) == 1 and None not in kept.values():
        return True
    told = {"alignment": {name: (each or "none")[:16] for name, each in kept.items()}}
    if job.aligner not in (*channel.peers, channel.name):
        advice = "the dealer is not there to make another: run `privet align` with it before"
        refuse_differences(channel, told, advice)
    if any(stated.goes_on for stated in purpose.statements.values()):
        advice = (
            "tables were trained on the rows of one: put the missing files back, or start again "
            "with --restart everywhere"
        )
        refuse_differences(channel, told, advice)
    most = job.ids.most_alignments
    full = [n for n, s in purpose.statements.items() if most is not None and s.aligned >= most]
    if full:
        channel.leave()  # as everybody does now
        raise ParameterError(
            f"ids.most_alignments: the job's rows may be aligned {most} times, and were at "
            f"{' and at '.join(full)}: have all agree on more of them"
        )
    return False


def find_common(
    channel: Channel,
    job: Job,
    purpose: Purpose,
    ids: Ids,
    alignments: Alignments,
    tell: Tell,
    kept: Alignment | None = None,
) -> Common:
    """Find out with the others, or from what all have kept, which rows take part."""
    started = time.perf_counter()
    again = is_kept(channel, job, purpose)
    if again:
        assert kept is not None
        found, number = kept, alignments.count
    else:
        number = alignments.add()
        found = Alignment(purpose.run, align(channel, job, ids))
        refuse_few(job, ids, found.rows, channel)
    entries = 0 if again else entries_of(max(len(ids), job.ids.padded or 0))
    report = AlignmentReport(
        name=found.name,
        number=number,
        used_again=again,
        rows=len(ids),
        common=len(found.rows),
        seconds=time.perf_counter() - started,
        bytes_to_dealer=8 * entries,
        bytes_from_dealer=marks_of(entries).nbytes,
        reveals=[] if again else _reveals(channel.name, job, len(ids)),
    )
    tell(Event("aligned", _in_words(report), report.model_dump()))
    return Common(found, report)


def assist(channel: Channel, job: Job, purpose: Purpose, tell: Tell) -> None:
    """Do a dealer's part in finding out which rows take part; one of three tells the others."""
    if is_kept(channel, job, purpose):
        return
    channel.where = lambda: "alignment"
    if channel.name == job.aligner:
        common = intersect(channel, job)
        send(channel, job.dealer_names[1:], str(common).encode())
    else:
        told = receive(channel, job.aligner)
        if not re.fullmatch(rb"[0-9]{1,12}", told):
            raise PeerMisbehavedError(job.aligner, "told what is no number of rows")
        common = int(told)
    tell(Event("aligned", f"{common:,} rows are common to all", {"common": common}))
    if common < job.ids.minimum:
        channel.leave()  # as everybody does now
        raise DataError(f"ids: {_too_few(job, common)}")


def refuse_few(job: Job, ids: Ids, rows: IndexArray, channel: Channel | None = None) -> None:
    """Raise DataError if too few rows are common to all: now, or in an alignment that was kept."""
    if len(rows) >= job.ids.minimum:
        return
    if channel is not None:
        channel.leave()  # as everybody does now
    others = np.setdiff1d(np.arange(len(ids)), rows, assume_unique=True)
    apart = f"{len(others):,} are not among them"
    if len(others):
        apart += (
            f", such as {ids.examples(others)}: see whether all write ids alike, or have the job "
            "normalise them"
        )
    raise DataError(f"ids: {_too_few(job, len(rows))}; of our {len(ids):,} rows {apart}")


def _too_few(job: Job, common: int) -> str:
    what = "row is" if common == 1 else "rows are"
    return f"{common:,} {what} common to all, and the job's minimum is {job.ids.minimum:,}"


def _in_words(report: AlignmentReport) -> str:
    left_out = report.rows - report.common
    what = (
        "rows as aligned before" if report.used_again else f"alignment {report.number} of this job"
    )
    return (
        f"{what}: {report.common:,} of our {report.rows:,} rows are common to all, {left_out:,} "
        "are left out"
    )


def _reveals(name: str, job: Job, n_rows: int) -> list[Reveal]:
    """Return what an alignment reveals, as far as we take part in it."""
    n = len(job.names)
    found = [
        Reveal(what="which of its rows all have", to=[name], count=n_rows),
        Reveal(what="number of rows that all have", to=[*job.names, *job.dealer_names], count=1),
    ]
    if job.ids.padded is None:
        found.append(Reveal(what="number of its rows", to=[job.aligner], count=1))
    if n > 2:  # of every two or more, but for all
        some = 2**n - n - 2
        found.append(Reveal(what="number of rows that some have", to=[job.aligner], count=some))
    return found
