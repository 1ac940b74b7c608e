"""The dealer of a job: follows what the participants agree to do, and sees no data."""

from __future__ import annotations

import contextlib
import time

from privet.boosting.prediction import answer, tell_unit
from privet.config.job import Job
from privet.config.party import Cluster
from privet.federation.alignment.alignment import assist, refuse_other_ids
from privet.federation.cluster.executors import engine_of
from privet.federation.cluster.pool import OnCall, no_rows, workers_on_call
from privet.federation.keeping import receive_seeds
from privet.federation.monitoring.events import Event
from privet.federation.offline import training_program
from privet.federation.serving.service import DealerOfService
from privet.federation.session.agreement import (
    Agreement,
    Holding,
    Statement,
    agree_on_purpose,
    agree_on_rows,
)
from privet.federation.session.session import Seat
from privet.runtime.run import Program, run_dealer
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel


def deal(seat: Seat, cluster: Cluster | None = None) -> float:
    """Deal for one training or prediction, or align; return the seconds of computing it took.

    Where rows are in shards, a worker deals for each: wherever the dealer has them.
    """
    job, started, cluster = seat.job, time.thread_time(), cluster or Cluster()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(engine_of(cluster, no_rows)) if job.shards > 1 else None
        channel = stack.enter_context(seat.meet())
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
            on_call = workers_on_call(stack, seat, channel, agreement, cluster, engine)
            program = _program(job, agreement, channel, on_call)
            run_dealer(program, job.names, channel, job.dealer_names)
        return time.thread_time() - started


def _program(job: Job, agreement: Agreement, channel: Channel, on_call: OnCall) -> Program:
    if agreement.command == "train":
        federation = job.federation(agreement.features, agreement.cut_counts, agreement.monotone)
        plan, keeping = federation.plan(agreement.samples), None
        done = agreement.stage[0]
        if job.keep_indicators and done < plan.params.tables:
            dealers = len(job.dealer_names)
            plan, keeping = receive_seeds(channel, federation, agreement.samples, dealers)
        workers = on_call.called() if job.shards > 1 else ()
        return training_program(
            federation, plan, done, channel, keeping, aligned=job.align, workers=workers
        )
    if agreement.command == "serve":
        return DealerOfService(job, channel, len(agreement.features), agreement.tables, on_call)
    features = len(agreement.features) if agreement.explain else None
    query = job.query(agreement.samples, agreement.tables, features)
    crowd = on_call.crowd(agreement.samples)

    def prediction(runtime: Runtime, _: None) -> None:
        if not job.align:
            refuse_other_ids(runtime, job.names, None, channel)
        unit = tell_unit(runtime, query, None)
        answer(runtime, query, job.names, None, None, unit, crowd)

    return prediction
