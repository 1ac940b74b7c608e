"""The common rows of a job, from a stored or a new alignment, and the comparison of ids.

A training run that resumes, that uses preprocessing files or cached indicators needs the same rows
in the same order as before. Participants therefore store the alignment of a training run, and reuse
it if all of them state the same one. A prediction makes a new alignment and stores nothing.
All participants reach the same verdict: too few common rows, too many alignments, or different
stored alignments.
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
    """The rows in common with all participants, and the report of their alignment."""

    alignment: Alignment
    report: AlignmentReport

    @property
    def rows(self) -> IndexArray:
        """Row numbers of the local table, in the order that all participants share."""
        return self.alignment.rows


def open_alignment_store(job: Job, ids: Ids, folder: str | Path) -> AlignmentStore:
    """Return the store that counts and keeps a job's alignments.

    Raise, before any peer is contacted, if the folder cannot be used, or if there are more rows
    than the protocol can align or than the job pads to.
    """
    if job.align:
        max_rows = min(job.ids.padded or MAX_ALIGNED_ROWS, MAX_ALIGNED_ROWS)
        if len(ids) > max_rows:
            padded = ", to which the job has all padded" if job.ids.padded else ""
            raise DataError(f"{len(ids):,} rows are more than {max_rows:,}{padded}: use fewer")
        make_folder(folder)
    return AlignmentStore(folder, job)


def is_alignment_reusable(channel: Channel, job: Job, plan: SessionPlan) -> bool:
    """Return whether all participants have stored the same alignment.

    Raise, at every member, if they have not and a new alignment is not possible.
    """
    stored = {name: proposal.alignment for name, proposal in plan.proposals.items()}
    if len(set(stored.values())) == 1 and None not in stored.values():
        return True
    comparison = {
        "alignment": {name: (stored_id or "none")[:16] for name, stored_id in stored.items()}
    }
    if job.aligning_dealer not in (*channel.peers, channel.name):
        advice = "the dealer is not there to make another: run `privet align` with it before"
        require_equal(channel, comparison, advice)
    if any(proposal.goes_on for proposal in plan.proposals.values()):
        advice = (
            "tables were trained on the rows of one: put the missing files back, or start again "
            "with --restart everywhere"
        )
        require_equal(channel, comparison, advice)
    maximum = job.ids.most_alignments
    exhausted = [
        name
        for name, proposal in plan.proposals.items()
        if maximum is not None and proposal.aligned >= maximum
    ]
    if exhausted:
        channel.close_best_effort()  # as all members do now
        raise ParameterError(
            f"ids.most_alignments: the job's rows may be aligned {maximum} times, and were at "
            f"{' and at '.join(exhausted)}: have all agree on more of them"
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
    """Align the rows with the other participants, or reuse the alignment that all have stored."""
    started = time.perf_counter()
    is_reused = is_alignment_reusable(channel, job, plan)
    if is_reused:
        assert saved_alignment is not None
        alignment, number = saved_alignment, store.read_count
    else:
        number = store.increment_count()
        alignment = Alignment(plan.run, intersect_ids(channel, job, ids))
        check_min_common_rows(job, ids, alignment.rows, channel)
    n_entries = 0 if is_reused else count_entries(max(len(ids), job.ids.padded or 0))
    report = AlignmentReport(
        name=alignment.alignment_id,
        number=number,
        used_again=is_reused,
        rows=len(ids),
        common=len(alignment.rows),
        seconds=time.perf_counter() - started,
        bytes_to_dealer=8 * n_entries,
        bytes_from_dealer=make_marks_layout(n_entries).nbytes,
        reveals=[] if is_reused else _list_disclosures(channel.name, job, len(ids)),
    )
    emit(Event("aligned", _format_alignment(report), report.model_dump()))
    return CommonRows(alignment, report)


def assist_alignment(channel: Channel, job: Job, plan: SessionPlan, emit: EventHandler) -> None:
    """Run a dealer's part of an alignment.

    If there are three dealers, the aligning dealer sends the count of common rows to the others.
    """
    if is_alignment_reusable(channel, job, plan):
        return
    channel.current_step = lambda: "alignment"
    if channel.name == job.aligning_dealer:
        n_common = mark_and_count_common(channel, job)
        send_message(channel, job.dealer_names[1:], str(n_common).encode())
    else:
        message = receive_message(channel, job.aligning_dealer)
        if not re.fullmatch(rb"[0-9]{1,12}", message):
            raise PeerMisbehavedError(job.aligning_dealer, "told what is no number of rows")
        n_common = int(message)
    emit(Event("aligned", f"{n_common:,} rows are common to all", {"common": n_common}))
    if n_common < job.ids.minimum:
        channel.close_best_effort()  # as all members do now
        raise DataError(f"ids: {_format_too_few(job, n_common)}")


def check_min_common_rows(
    job: Job, ids: Ids, rows: IndexArray, channel: Channel | None = None
) -> None:
    """Raise DataError if a new or a stored alignment has too few common rows."""
    if len(rows) >= job.ids.minimum:
        return
    if channel is not None:
        channel.close_best_effort()  # as all members do now
    left_out = np.setdiff1d(np.arange(len(ids)), rows, assume_unique=True)
    remainder = f"{len(left_out):,} are not among them"
    if len(left_out):
        remainder += (
            f", such as {ids.format_examples(left_out)}: see whether all write ids alike, or have "
            "the job normalise them"
        )
    raise DataError(f"ids: {_format_too_few(job, len(rows))}; of our {len(ids):,} rows {remainder}")


def _format_too_few(job: Job, n_common: int) -> str:
    subject = "row is" if n_common == 1 else "rows are"
    return f"{n_common:,} {subject} common to all, and the job's minimum is {job.ids.minimum:,}"


def _format_alignment(report: AlignmentReport) -> str:
    left_out = report.rows - report.common
    origin = (
        "rows as aligned before" if report.used_again else f"alignment {report.number} of this job"
    )
    return (
        f"{origin}: {report.common:,} of our {report.rows:,} rows are common to all, {left_out:,} "
        "are left out"
    )


def _list_disclosures(name: str, job: Job, n_rows: int) -> list[Reveal]:
    """Return the disclosures of an alignment that concern this participant."""
    n = len(job.party_names)
    disclosures = [
        Reveal(what="which of its rows all have", to=[name], count=n_rows),
        Reveal(
            what="number of rows that all have", to=[*job.party_names, *job.dealer_names], count=1
        ),
    ]
    if job.ids.padded is None:
        disclosures.append(Reveal(what="number of its rows", to=[job.aligning_dealer], count=1))
    if n > 2:  # one count for each subset of two or more participants, except all of them
        n_subsets = 2**n - n - 2
        disclosures.append(
            Reveal(what="number of rows that some have", to=[job.aligning_dealer], count=n_subsets)
        )
    return disclosures


_DIGEST_BITS = 47
"""Two different lists have the same digest with probability 2^-47, in one run and not the next."""
_RING = get_integer_ring(_DIGEST_BITS + 1)  # differences have a sign


def digest_ids(ids: Ids, run: str) -> RingArray:
    """Return the digest that a participant shares: of its ids, in order, keyed by the run."""
    content = ids.digest(run.encode())
    number = int.from_bytes(content[:8], "little") >> (64 - _DIGEST_BITS)
    return np.array(number, dtype=_RING.dtype)


def compare_ids_on_shares(runtime: Runtime, digest: RingArray | None) -> list[bool] | None:
    """Return which participants, from the second on, have the ids of the first; None at the dealer.

    No party sees a digest, not even the dealer, so no party can test guessed ids on one. The key of
    the digests is new in every run.

    1. Each participant j shares its digest [d_j].
    2. [d_j - d_1] and [d_1 - d_j] are compared with zero: both reach it if the digests are equal.

    Reveals: to all participants, how many of the two differences reach zero: two or one.
    """
    all_parties = list(range(runtime.n_parties))
    with runtime.step("ids"):
        local_digests = [digest if k == runtime.index else None for k in all_parties]
        digests = runtime.share_arrays(local_digests, all_parties, (), _RING)
        (differences,) = mask(runtime, digests[1:] - digests[:1])
        signed_differences = map_together(stack, differences, differences.map(lambda x: -x))
        n_reached = count_thresholds_reached(
            runtime, signed_differences, thresholds=(0,), width=_RING.bits
        )
        revealed = runtime.reveal(n_reached.sum(axis=0), all_parties, "whose ids are the same")
    return None if revealed is None else [count == 2 for count in revealed.tolist()]


def estimate_id_comparison(job: Job) -> Cost:
    """Return the cost of the comparison of ids before training: zero if rows are aligned."""
    counter = CostCounter(len(job.party_names), n_dealers=len(job.dealer_names))
    if not job.align:
        compare_ids_on_shares(counter, None)
    return counter.total


def require_same_ids(
    runtime: Runtime, party_names: Sequence[str], digest: RingArray | None, channel: Channel | None
) -> None:
    """Raise DisagreementError, at every member, unless all participants have the same ids.

    Dealers cannot see the result, so the first participant sends it to them. In an offline
    preprocessing run and in a cost count there is no channel, and nothing is raised.
    """
    matches = compare_ids_on_shares(runtime, digest)
    if channel is None:
        return
    if matches is None:
        mismatch = quote_untrusted(
            receive_message(channel, party_names[0]).decode(errors="replace"), 300
        )
    else:
        differing = [
            name
            for name, matches_first in zip(party_names[1:], matches, strict=True)
            if not matches_first
        ]
        mismatch = f"the samples of {party_names[0]} are not those of {' or of '.join(differing)}"
        mismatch = mismatch if differing else ""
        if channel.name == party_names[0]:
            send_message(
                channel,
                [peer for peer in channel.peers if peer not in party_names],
                mismatch.encode(),
            )
    if mismatch:
        # All members find the mismatch now, so each closes with a goodbye.
        channel.close_best_effort()
        raise DisagreementError(
            f"ids: {mismatch}, or in another order: sort all tables by id, and keep the ids that "
            "all have"
        )
