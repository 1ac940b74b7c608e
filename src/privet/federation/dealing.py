"""The dealer of a job: follows what the participants agree to do, and sees no data."""

from __future__ import annotations

from privet.boosting.inference import predict, tell_unit
from privet.federation.agreement import Agreement, Statement, agree
from privet.federation.ahead import training_program
from privet.federation.events import Event
from privet.federation.ids import refuse_other_ids
from privet.federation.keeping import receive_seeds
from privet.federation.serving import DealerOfService
from privet.federation.session import Seat
from privet.files.job import Job
from privet.runtime.roles import Program, run_dealer
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel


def deal(seat: Seat) -> float:
    """Deal for one training or prediction; return the seconds of computing that it took."""
    job = seat.job
    with seat.meet() as channel:
        agreement = agree(channel, job, Statement.of(job))
        seat.tell(
            Event(
                "started",
                f"dealing for {agreement.command} with {agreement.samples:,} samples",
                {"command": agreement.command, "samples": agreement.samples},
            )
        )
        if agreement.command == "train" and agreement.stage[0] == job.hyper_parameters().tables:
            channel.close()  # nothing is left to train
            return 0.0
        return run_dealer(_program(job, agreement, channel), job.names, channel)


def _program(job: Job, agreement: Agreement, channel: Channel) -> Program:
    if agreement.command == "train":
        federation = job.federation(agreement.features, agreement.cut_counts)
        plan, keeping = federation.plan(agreement.samples), None
        if job.keep_indicators:
            plan, keeping = receive_seeds(channel, federation, agreement.samples)
        return training_program(federation, plan, agreement.stage[0], channel, keeping)
    query = job.query(agreement.samples)
    if agreement.command == "serve":
        return DealerOfService(job, channel)

    def prediction(runtime: Runtime, _: None) -> None:
        refuse_other_ids(runtime, job.names, None, channel)
        predict(runtime, query, job.names, None, None, tell_unit(runtime, query, None))

    return prediction
