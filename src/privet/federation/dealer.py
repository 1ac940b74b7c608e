"""The dealer in a session: it runs the command that the participants agree on, without data."""

from __future__ import annotations

import contextlib
import time

from privet.boosting.prediction import answer_query, reveal_label_unit
from privet.config.job import Job
from privet.config.party import ClusterConfig
from privet.federation.alignment.alignment import assist_alignment, require_same_ids
from privet.federation.cluster.executors import make_executor
from privet.federation.cluster.pool import LazyPool, load_no_rows, make_lazy_pool
from privet.federation.keeping import receive_seeds
from privet.federation.monitoring.events import Event
from privet.federation.offline import make_dealer_training_program
from privet.federation.serving.service import DealerService
from privet.federation.session.agreement import (
    Agreement,
    DataSummary,
    Proposal,
    exchange_proposals,
    exchange_summaries,
)
from privet.federation.session.session import LocalMember
from privet.runtime.run import Program, run_dealer
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel


def run_dealer_session(member: LocalMember, cluster: ClusterConfig | None = None) -> float:
    """Run the dealer's part of one session; return its seconds of CPU time.

    If the job has shards, one dealer worker generates correlated randomness for each of them.
    """
    job, started, cluster = member.job, time.thread_time(), cluster or ClusterConfig()
    with contextlib.ExitStack() as stack:
        executor = (
            stack.enter_context(make_executor(cluster, load_no_rows)) if job.shards > 1 else None
        )
        channel = stack.enter_context(member.connect())
        plan = exchange_proposals(channel, job, Proposal.for_job(job))
        if job.align:
            assist_alignment(channel, job, plan, member.emit)
        if plan.command == "align":
            channel.close()
            return time.thread_time() - started
        agreement = exchange_summaries(channel, job, plan, DataSummary())
        member.emit(
            Event(
                "started",
                f"dealing for {agreement.command} with {agreement.n_samples:,} samples",
                {"command": agreement.command, "samples": agreement.n_samples},
            )
        )
        member.was_serving = agreement.command == "serve"
        if agreement.command == "train" and agreement.is_finished:
            channel.close()  # no table is left to train
        else:
            lazy_pool = make_lazy_pool(stack, member, channel, agreement, cluster, executor)
            program = _make_dealer_program(job, agreement, channel, lazy_pool)
            run_dealer(program, job.party_names, channel, job.dealer_names)
        return time.thread_time() - started


def _make_dealer_program(
    job: Job, agreement: Agreement, channel: Channel, lazy_pool: LazyPool
) -> Program:
    if agreement.command == "train":
        training_spec = job.make_training_spec(
            agreement.features, agreement.cut_counts, agreement.monotone
        )
        plan, keeping = training_spec.make_plan(agreement.n_samples), None
        n_trained = agreement.resume_from[0]
        if job.keep_indicators and n_trained < plan.params.tables:
            dealers = len(job.dealer_names)
            plan, keeping = receive_seeds(channel, training_spec, agreement.n_samples, dealers)
        workers = lazy_pool.get_workers() if job.shards > 1 else ()
        return make_dealer_training_program(
            training_spec,
            plan,
            n_trained,
            channel,
            keeping,
            rows_are_aligned=job.align,
            worker_handles=workers,
        )
    if agreement.command == "serve":
        return DealerService(
            job, channel, len(agreement.features), agreement.n_model_tables, lazy_pool
        )
    features = len(agreement.features) if agreement.explain else None
    query = job.make_prediction_query(agreement.n_samples, agreement.n_model_tables, features)
    batch_workers = lazy_pool.get_batch_workers(agreement.n_samples)

    def run_prediction(runtime: Runtime, _: None) -> None:
        if not job.align:
            require_same_ids(runtime, job.party_names, None, channel)
        unit = reveal_label_unit(runtime, query, None)
        answer_query(runtime, query, job.party_names, None, None, unit, batch_workers)

    return run_prediction
