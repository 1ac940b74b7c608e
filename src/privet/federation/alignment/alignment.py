"""The common rows of a job, from a stored or a new alignment, and the comparison of ids.

A training that goes on, that was dealt ahead, or that uses kept indicators again needs the same
rows in the same order as before. So participants keep the alignment of a training, and use it again
if all of them state the same one. Predictions are aligned anew, and keep nothing.

All find the same: too few rows, an alignment too many, or that somebody has kept another one.

Each shares a digest of its ids, under a key that is new in every run. On shares, every digest is
compared with the first participant's, and what is revealed is whether they are equal. So nobody is
shown a digest to try ids on, the dealer included.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.arithmetic.rings import RingArray, get_integer_ring
from privet.arithmetic.shares import stack
from privet.arrays import IndexArray
from privet.config.job import MAX_ALIGNED_ROWS, Job
from privet.data.frame import Ids
from privet.errors import DataError, DisagreementError, ParameterError, PeerMisbehavedError
from privet.federation.alignment.psi import (
    count_entries,
    intersect_ids,
    make_marks_layout,
    mark_and_count_common,
)
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.monitoring.report import AlignmentReport, Reveal
from privet.federation.session.agreement import SessionPlan
from privet.federation.session.session import require_equal
from privet.filesystem import make_folder
from privet.gates.masked.comparison import count_thresholds_reached
from privet.gates.masked.value import map_together, mask
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.runtime import Runtime
from privet.schema import quote_untrusted
from privet.storage.alignment import Alignment, AlignmentStore
from privet.transport.channel import Channel, receive_message, send_message


@dataclass(frozen=True, eq=False, repr=False)
class CommonRows:
    """The rows that all have, as one participant finds them."""

    alignment: Alignment
    report: AlignmentReport

    @property
    def rows(self) -> IndexArray:
        """Our rows, in the order that all have agreed on."""
        return self.alignment.rows


def open_alignment_store(job: Job, ids: Ids, folder: str | Path) -> AlignmentStore:
    """Return where a job's alignments are counted and kept.

    Raise, before anybody is bothered, if they cannot be, or there are more rows than can be
    aligned or than the job has us show.
    """
    if job.align:
        most = min(job.ids.padded or MAX_ALIGNED_ROWS, MAX_ALIGNED_ROWS)
        if len(ids) > most:
            padded = ", to which the job has all padded" if job.ids.padded else ""
            raise DataError(f"{len(ids):,} rows are more than {most:,}{padded}: use fewer")
        make_folder(folder)
    return AlignmentStore(folder, job)


def is_alignment_reusable(channel: Channel, job: Job, plan: SessionPlan) -> bool:
    """Tell whether all have kept the same alignment; raise, at all, if no other can be made."""
    kept = {name: stated.alignment for name, stated in plan.proposals.items()}
    if len(set(kept.values())) == 1 and None not in kept.values():
        return True
    told = {"alignment": {name: (each or "none")[:16] for name, each in kept.items()}}
    if job.aligning_dealer not in (*channel.peers, channel.name):
        advice = "the dealer is not there to make another: run `privet align` with it before"
        require_equal(channel, told, advice)
    if any(stated.goes_on for stated in plan.proposals.values()):
        advice = (
            "tables were trained on the rows of one: put the missing files back, or start again "
            "with --restart everywhere"
        )
        require_equal(channel, told, advice)
    most = job.ids.most_alignments
    full = [n for n, s in plan.proposals.items() if most is not None and s.aligned >= most]
    if full:
        channel.close_best_effort()  # as everybody does now
        raise ParameterError(
            f"ids.most_alignments: the job's rows may be aligned {most} times, and were at "
            f"{' and at '.join(full)}: have all agree on more of them"
        )
    return False


def align_rows(
    channel: Channel,
    job: Job,
    plan: SessionPlan,
    ids: Ids,
    store: AlignmentStore,
    emit: EventHandler,
    saved_alignment: Alignment | None = None,
) -> CommonRows:
    """Find out with the others, or from what all have kept, which rows take part."""
    started = time.perf_counter()
    again = is_alignment_reusable(channel, job, plan)
    if again:
        assert saved_alignment is not None
        found, number = saved_alignment, store.read_count
    else:
        number = store.increment_count()
        found = Alignment(plan.run, intersect_ids(channel, job, ids))
        check_min_common_rows(job, ids, found.rows, channel)
    entries = 0 if again else count_entries(max(len(ids), job.ids.padded or 0))
    report = AlignmentReport(
        name=found.alignment_id,
        number=number,
        used_again=again,
        rows=len(ids),
        common=len(found.rows),
        seconds=time.perf_counter() - started,
        bytes_to_dealer=8 * entries,
        bytes_from_dealer=make_marks_layout(entries).nbytes,
        reveals=[] if again else _list_disclosures(channel.name, job, len(ids)),
    )
    emit(Event("aligned", _format_alignment(report), report.model_dump()))
    return CommonRows(found, report)


def assist_alignment(channel: Channel, job: Job, plan: SessionPlan, emit: EventHandler) -> None:
    """Do a dealer's part in finding out which rows take part; one of three tells the others."""
    if is_alignment_reusable(channel, job, plan):
        return
    channel.current_step = lambda: "alignment"
    if channel.name == job.aligning_dealer:
        common = mark_and_count_common(channel, job)
        send_message(channel, job.dealer_names[1:], str(common).encode())
    else:
        told = receive_message(channel, job.aligning_dealer)
        if not re.fullmatch(rb"[0-9]{1,12}", told):
            raise PeerMisbehavedError(job.aligning_dealer, "told what is no number of rows")
        common = int(told)
    emit(Event("aligned", f"{common:,} rows are common to all", {"common": common}))
    if common < job.ids.minimum:
        channel.close_best_effort()  # as everybody does now
        raise DataError(f"ids: {_format_too_few(job, common)}")


def check_min_common_rows(
    job: Job, ids: Ids, rows: IndexArray, channel: Channel | None = None
) -> None:
    """Raise DataError if too few rows are common to all: now, or in an alignment that was kept."""
    if len(rows) >= job.ids.minimum:
        return
    if channel is not None:
        channel.close_best_effort()  # as everybody does now
    others = np.setdiff1d(np.arange(len(ids)), rows, assume_unique=True)
    apart = f"{len(others):,} are not among them"
    if len(others):
        apart += (
            f", such as {ids.format_examples(others)}: see whether all write ids alike, or have "
            "the job normalise them"
        )
    raise DataError(f"ids: {_format_too_few(job, len(rows))}; of our {len(ids):,} rows {apart}")


def _format_too_few(job: Job, n_common: int) -> str:
    what = "row is" if n_common == 1 else "rows are"
    return f"{n_common:,} {what} common to all, and the job's minimum is {job.ids.minimum:,}"


def _format_alignment(report: AlignmentReport) -> str:
    left_out = report.rows - report.common
    what = (
        "rows as aligned before" if report.used_again else f"alignment {report.number} of this job"
    )
    return (
        f"{what}: {report.common:,} of our {report.rows:,} rows are common to all, {left_out:,} "
        "are left out"
    )


def _list_disclosures(name: str, job: Job, n_rows: int) -> list[Reveal]:
    """Return what an alignment reveals, as far as we take part in it."""
    n = len(job.party_names)
    found = [
        Reveal(what="which of its rows all have", to=[name], count=n_rows),
        Reveal(
            what="number of rows that all have", to=[*job.party_names, *job.dealer_names], count=1
        ),
    ]
    if job.ids.padded is None:
        found.append(Reveal(what="number of its rows", to=[job.aligning_dealer], count=1))
    if n > 2:  # of every two or more, but for all
        some = 2**n - n - 2
        found.append(
            Reveal(what="number of rows that some have", to=[job.aligning_dealer], count=some)
        )
    return found


_DIGEST_BITS = 47
"""Two different lists have the same digest with probability 2^-47, in one run and not the next."""
_RING = get_integer_ring(_DIGEST_BITS + 1)  # differences have a sign


def digest_ids(ids: Ids, run: str) -> RingArray:
    """Return what a participant shares: a digest of its ids, in order, under a run's name."""
    content = ids.digest(run.encode())
    number = int.from_bytes(content[:8], "little") >> (64 - _DIGEST_BITS)
    return np.array(number, dtype=_RING.dtype)


def compare_ids_on_shares(runtime: Runtime, digest: RingArray | None) -> list[bool] | None:
    """Tell participants who, of all but the first, has the first one's ids; None to the dealer.

    1. Every participant shares its digest.
    2. d_j - d_1 and d_1 - d_j are compared with zero, which both reach if the two are equal.

    Reveals: to all, how many of the two reach zero: two or one.
    """
    everybody = list(range(runtime.n_parties))
    with runtime.step("ids"):
        own = [digest if k == runtime.index else None for k in everybody]
        digests = runtime.share_arrays(own, everybody, (), _RING)
        (apart,) = mask(runtime, digests[1:] - digests[:1])
        both = map_together(stack, apart, apart.map(lambda x: -x))
        reached = count_thresholds_reached(runtime, both, thresholds=(0,), width=_RING.bits)
        revealed = runtime.reveal(reached.sum(axis=0), everybody, "whose ids are the same")
    return None if revealed is None else [count == 2 for count in revealed.tolist()]


def estimate_id_comparison(job: Job) -> Cost:
    """Return what a training's participants do to compare ids: nothing, if rows were aligned."""
    counter = CostCounter(len(job.party_names), n_dealers=len(job.dealer_names))
    if not job.align:
        compare_ids_on_shares(counter, None)
    return counter.total


def require_same_ids(
    runtime: Runtime, party_names: Sequence[str], digest: RingArray | None, channel: Channel | None
) -> None:
    """Raise DisagreementError, at everybody, unless all participants have the same ids.

    Dealers, who cannot see it, are told by the first participant; one that deals ahead, and
    whoever counts, has no channel to be told by.
    """
    same = compare_ids_on_shares(runtime, digest)
    if channel is None:
        return
    if same is None:
        told = quote_untrusted(
            receive_message(channel, party_names[0]).decode(errors="replace"), 300
        )
    else:
        others = [name for name, alike in zip(party_names[1:], same, strict=True) if not alike]
        told = f"the samples of {party_names[0]} are not those of {' or of '.join(others)}"
        told = told if others else ""
        if channel.name == party_names[0]:
            send_message(
                channel, [peer for peer in channel.peers if peer not in party_names], told.encode()
            )
    if told:
        # Everybody finds it now, and says goodbye: nobody just hangs up.
        channel.close_best_effort()
        raise DisagreementError(
            f"ids: {told}, or in another order: sort all tables by id, and keep the ids that all "
            "have"
        )
