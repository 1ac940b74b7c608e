"""The dealer of a job: follows what the participants agree to do, and sees no data."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from privet.boosting.inference import answer, tell_unit
from privet.federation.agreement import Agreement, Statement, agree_on_purpose, agree_on_rows
from privet.federation.common_rows import assist
from privet.federation.dealt_training import training_program
from privet.federation.events import Event
from privet.federation.holdings import Holding
from privet.federation.ids import refuse_other_ids
from privet.federation.keeping import receive_seeds
from privet.federation.service import DealerOfService
from privet.federation.session import Seat
from privet.federation.shard_rows import crew_of_dealer, in_shards
from privet.files.cluster import Cluster
from privet.files.job import Job
from privet.runtime.orders import Head
from privet.runtime.roles import Program, run_dealer
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel


def deal(seat: Seat, cluster: Cluster | None = None) -> float:
    """Deal for one training or prediction, or align; return the seconds of computing it took.

    Where rows are in shards, a worker deals for each: wherever the dealer has them.
    """
    job, started = seat.job, time.thread_time()
    with seat.meet() as channel:
        purpose = agree_on_purpose(channel, job, Statement.of(job))
        if job.align:
            assist(channel, job, purpose, seat.tell)
        if purpose.command == "align":
            channel.close()
            return time.thread_time() - started
        agreement = agree_on_rows(channel, job, purpose, Holding())
        seat.tell(
            Event(
                "started",
                f"dealing for {agreement.command} with {agreement.samples:,} samples",
                {"command": agreement.command, "samples": agreement.samples},
            )
        )
        seat.serving = agreement.command == "serve"
        if agreement.command == "train" and agreement.ended:
            channel.close()  # nothing is left to train
        else:
            with contextlib.ExitStack() as stack:
                workers: Sequence[Head] = ()
                if _has_workers(job, agreement):
                    crew = crew_of_dealer(seat, channel, agreement, cluster or Cluster())
                    workers = stack.enter_context(crew).workers
                program = _program(job, agreement, channel, workers)
                run_dealer(program, job.names, channel, job.dealer_names)
        return time.thread_time() - started


def _has_workers(job: Job, agreement: Agreement) -> bool:
    """Tell whether the rows of a command are worked on in shards."""
    if agreement.command == "train":
        return job.shards > 1
    return agreement.command == "predict" and in_shards(job, agreement)


def _program(job: Job, agreement: Agreement, channel: Channel, workers: Sequence[Head]) -> Program:
    if agreement.command == "train":
        federation = job.federation(agreement.features, agreement.cut_counts, agreement.monotone)
        plan, keeping = federation.plan(agreement.samples), None
        done = agreement.stage[0]
        if job.keep_indicators and done < plan.params.tables:
            dealers = len(job.dealer_names)
            plan, keeping = receive_seeds(channel, federation, agreement.samples, dealers)
        return training_program(
            federation, plan, done, channel, keeping, aligned=job.align, workers=workers
        )
    if agreement.command == "serve":
        return DealerOfService(job, channel, len(agreement.features), agreement.tables)
    features = len(agreement.features) if agreement.explain else None
    query = job.query(agreement.samples, agreement.tables, features)

    def prediction(runtime: Runtime, _: None) -> None:
        if not job.align:
            refuse_other_ids(runtime, job.names, None, channel)
        unit = tell_unit(runtime, query, None)
        answer(runtime, query, job.names, None, None, unit, workers)

    return prediction
