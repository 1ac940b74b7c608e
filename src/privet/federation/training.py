"""A training run of one participant, with its events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model_part import LabelUnit
from privet.boosting.prediction import ValidationResult, reveal_validation_results
from privet.boosting.training import (
    IndicatorCacheConfig,
    TrainingData,
    TrainingOutput,
    TrainingState,
    resolve_label_unit,
    train,
)
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import PeerError, UnavailableError
from privet.federation.alignment.alignment import (
    digest_ids,
    estimate_id_comparison,
    require_same_ids,
)
from privet.federation.cluster.executors import make_executor
from privet.federation.cluster.pool import load_training_rows, start_training_pool
from privet.federation.keeping import Keeper
from privet.federation.local_data import LocalState, LocalTable
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.monitoring.progress import make_table_event, report_progress
from privet.federation.monitoring.report import (
    PartyReport,
    ValidationReport,
    make_party_report,
    make_validation_report,
)
from privet.federation.session.agreement import (
    Agreement,
    DataSummary,
    Proposal,
    exchange_proposals,
    exchange_summaries,
)
from privet.federation.session.session import LocalMember
from privet.runtime.accounting import DisclosureLedger, Meter
from privet.runtime.party import Party
from privet.runtime.run import PartyResult, measure_peak_rss_mb, run_party
from privet.runtime.workers import WorkerHandle
from privet.spec.plan import Plan, disclose_cut_counts
from privet.storage.model_part import ModelPartFile, save_part
from privet.transport.sockets import SocketChannel


def emit_warnings(warnings: Iterable[str], emit: EventHandler, advice: str = "") -> None:
    """Emit warnings about the local table or stored files that do not stop the run."""
    for warning in warnings:
        emit(Event("warning", f"warning: {warning}{advice}", {"warning": warning}))


def make_classes_event(classes: tuple[str, ...]) -> Event:
    """Return an event with the numbers of the label's classes, for the label holder."""
    if len(classes) > 2:
        text = f"the label's classes are {', '.join(map(repr, classes))}"
    else:
        text = " and ".join(f"{name!r} is {number}" for number, name in enumerate(classes))
        text = f"of the label, {text} (positive, in party.toml)"
    return Event("classes", text, {"classes": classes})


def announce_cut_counts(data: TrainingData, job: Job, emit: EventHandler) -> list[int] | None:
    """Return the cut counts that this participant discloses, and emit them before it does."""
    columns, disclosure = data.columns, job.cut_disclosure
    counts = disclose_cut_counts(columns.cut_counts, disclosure, job.make_params().max_cut_count)
    if counts is None:
        return None
    by_name = dict(zip(columns.names, counts, strict=True))
    text = ", ".join(f"{name} {count}" for name, count in by_name.items()) or "none of ours"
    emit(
        Event("cuts", f"all are told our numbers of cuts, {disclosure}: {text}", {"cuts": by_name})
    )
    return list(counts)


def make_estimate_event(plan: Plan, estimate: CostEstimate) -> Event:
    """Return the event with the size of a training run and its estimated cost."""
    unit = " a worker" if plan.shards > 1 else ""
    return Event(
        "started",
        f"{plan.n_samples:,} samples, {plan.n_features} features: "
        f"{estimate.rounds:,} rounds, {estimate.online_bytes / 1e6:,.0f} MB between the "
        f"participants, {estimate.offline_bytes / 1e6:,.0f} MB from the dealer, "
        f"about {estimate.memory_bytes / 1e6:,.0f} MB of memory{unit}, {estimate.masks} masks",
        {
            "samples": plan.n_samples,
            "features": plan.n_features,
            "tables": plan.params.tables,
            "rounds": estimate.rounds,
            "bytes_online": estimate.online_bytes,
            "bytes_offline": estimate.offline_bytes,
            "memory": estimate.memory_bytes,
            "masks": estimate.masks,
        },
    )


@contextlib.contextmanager
def report_interruption(
    tables: Callable[[], int], plan: Plan, emit: EventHandler
) -> Iterator[None]:
    """If training is interrupted, emit how many tables are saved and how to resume."""
    try:
        yield
    except (PeerError, UnavailableError, OSError, KeyboardInterrupt):
        n_saved = tables()
        text = "no table is kept yet: start the same commands again"
        if n_saved:
            verb = "is" if n_saved == 1 else "are"
            text = f"{n_saved} of {plan.params.tables} tables {verb} kept: start the same commands "
            text += "again, without --restart, and they go on from what all have"
        emit(Event("stopped", text, {"tables": n_saved}))
        raise


def run_training(
    config: PartyConfig, member: LocalMember, *, restart: bool = False
) -> tuple[PartyReport, Path]:
    """Train a model with the other participants; return the report and the path of the local part.

    Training resumes after the last table that all participants have from an interrupted run; with
    `restart`, it starts from the first table. The caller must have locked the folder: two runs
    would overwrite each other's checkpoints.
    """
    job = member.job
    with contextlib.ExitStack() as stack:
        if job.shards > 1:
            executor = stack.enter_context(make_executor(config.cluster, load_training_rows))
        table = LocalTable.read(config, job, restart)
        emit_warnings(table.all_rows.row_data.warnings, member.emit)
        local_state = table.load_local_state()
        unaligned_table = table if job.align else None
        del table  # and its columns: without alignment, `local_state` has their buckets
        preprocessing, pool = None if local_state is None else local_state.preprocessing, None
        if preprocessing is not None:
            stack.callback(preprocessing.close)
        channel = stack.enter_context(member.connect(same_role_only=preprocessing is not None))
        started = time.perf_counter()
        randomness_id = None if preprocessing is None else preprocessing.randomness_id
        alignment_fields = (
            {} if unaligned_table is None else unaligned_table.make_proposal_fields(local_state)
        )
        proposal = Proposal.for_job(job, command="train", dealing=randomness_id, **alignment_fields)
        plan, common = exchange_proposals(channel, job, proposal), None
        if unaligned_table is not None:
            common, local_state = unaligned_table.align(channel, plan, member.emit, local_state)
            del unaligned_table
        assert local_state is not None
        advice = "; it is left out, and the one before it counts"
        emit_warnings(local_state.checkpoints.damaged.values(), member.emit, advice)
        if local_state.prepared.classes:
            member.emit(make_classes_event(local_state.prepared.classes))
        agreement = exchange_summaries(
            channel, job, plan, _make_summary(local_state, job, member.emit)
        )
        program = _TrainingProgram(job, agreement, local_state, member.emit, channel)
        stack.enter_context(
            report_interruption(lambda: program.n_saved_tables, program.plan, member.emit)
        )
        if not agreement.is_finished:
            if program.n_tables_left and job.keep_indicators:
                program.keep()
            source = (
                None if preprocessing is None else preprocessing.consume(channel, job, agreement)
            )
            if job.shards > 1:
                rows = None if common is None else common.rows
                pool_inputs = local_state, config, rows, program.plan, program.unit
                pool = stack.enter_context(
                    start_training_pool(member, channel, agreement, *pool_inputs, executor)
                )
                program.workers = pool.worker_handles
            party_result = run_party(
                program,
                job.party_names.index(member.name),
                job.party_names,
                local_state.data,
                channel,
                source,
                dealers=job.dealer_names,
            )
            party_result.result = program.finish(party_result.result)
        else:
            party_result = program.make_finished_result()
    if pool is not None:
        party_result.meter.add_parallel(pool.meters)
    # All participants have sent a goodbye, so each has saved its last checkpoint.
    prepared, result = local_state.prepared, party_result.result
    part, run = result.trained.part, result.run
    part_file = ModelPartFile(
        part, job, local_state.data_digest, run, prepared.encoders, prepared.classes
    )
    save_part(part_file, local_state.part_path)
    report = make_party_report(
        party_result,
        command="train",
        part_file=part_file,
        n_samples=agreement.n_samples,
        seconds=time.perf_counter() - started,
        n_resumed_tables=agreement.resume_from[0],
        validation=program.make_validation_report(result),
        is_preprocessed=preprocessing is not None,
        alignment=None if common is None else common.report,
        worker_peak_rss_mb=None if pool is None else pool.peak_rss_mb,
    )
    return report, local_state.part_path


def _make_summary(state: LocalState, job: Job, emit: EventHandler) -> DataSummary:
    """Return the data summary, and emit the cut counts that it discloses."""
    names = state.data.columns.names
    return DataSummary(
        samples=state.data.columns.n_samples,
        n_features=len(names),
        features=list(names),
        cuts=announce_cut_counts(state.data, job, emit),
        stages=state.checkpoint_keys,
        ended=state.is_finished,
    )


class TrainingResult(NamedTuple):
    """The result of a training run at one participant."""

    trained: TrainingOutput
    run: str
    """Id of the run that trained the last table."""
    validated: ValidationResult = ValidationResult()
    """Results on the validation rows, at the label holder."""


class _TrainingProgram:
    """The program that a participant runs to train a model."""

    def __init__(
        self,
        job: Job,
        agreement: Agreement,
        local_state: LocalState,
        emit: EventHandler,
        channel: SocketChannel,
    ) -> None:
        self._channel = channel
        self._job = job
        self._training_spec = job.make_training_spec(agreement.features, agreement.cut_counts)
        self.plan = self._training_spec.make_plan(agreement.n_samples)
        self._keeping: IndicatorCacheConfig | None = None
        self._agreement = agreement
        self._local_state = local_state
        self._emit = emit
        self._n_trained = self.n_saved_tables = agreement.resume_from[0]
        self.workers: Sequence[WorkerHandle] = ()
        """Workers that train on the local rows, if the job has shards."""
        self.n_tables_left = self.plan.params.tables - self._n_trained
        """Number of tables left to train, without early stopping."""

    @cached_property
    def state(self) -> TrainingState | None:
        """State to resume from, if all participants have a checkpoint; read once."""
        return self._local_state.load_state(self._agreement.resume_from)

    @property
    def unit(self) -> LabelUnit | None:
        """The label's unit, at the label holder."""
        return resolve_label_unit(
            self._training_spec, self.plan, self._local_state.data, self.state
        )

    def __call__(self, runtime: Party, data: TrainingData) -> TrainingResult:
        """Train, with a checkpoint after every table."""
        if not self._job.align:
            digest = digest_ids(self._local_state.ids, self._agreement.run)
            require_same_ids(runtime, runtime.names, digest, self._channel)
        state = self.state
        self._emit_start_events()
        started = time.perf_counter()

        def on_state(state: TrainingState) -> None:
            self._local_state.checkpoints.save(state, self._agreement.run)
            self.n_saved_tables = state.part.n_tables
            rate = (state.part.n_tables - self._n_trained) / (time.perf_counter() - started)
            tables = self.plan.params.tables
            self._emit(make_table_event(runtime.meter, state, tables, rate, self.workers))

        with report_progress(runtime, self._channel, self._emit, self.workers):
            trained = train(
                runtime,
                self._training_spec,
                self.plan,
                data,
                n_trained_tables=self._n_trained,
                state=state,
                on_state=on_state,
                indicator_cache=self._keeping,
                workers=self.workers,
            )
            validated = reveal_validation_results(
                runtime, self._training_spec, self.plan, trained, data, self.workers
            )
        return TrainingResult(trained, "", validated)

    def finish(self, result: TrainingResult) -> TrainingResult:
        """Delete all but the last checkpoint, after all participants have sent a goodbye.

        By then, each of them has saved its last checkpoint.
        """
        run = self._local_state.checkpoints.finish(result.trained.n_tables, self._job.stopping_rule)
        return result._replace(run=run)

    def keep(self) -> None:
        """Agree with the others whose indicators are used again, and keep those that are not."""
        own = self._local_state
        if own.preprocessing is not None:
            text = "correlations are dealt ahead: no indicators are kept, or used again"
            self._emit(Event("kept", text, {"owners": []}))
            return
        dealers = {
            name: contact.fingerprint for name, contact in self._job.get_dealer_entries().items()
        }
        keeper = Keeper(str(own.kept), own.data.columns, own.ids, self._emit, dealers)
        found = keeper.agree(self._channel, self._training_spec, self._agreement.n_samples)
        self.plan, self._keeping = found

    def make_finished_result(self) -> PartyResult:
        """Return the result of a finished earlier run, after the goodbyes."""
        self._emit_start_events()
        tables, run = self._agreement.resume_from
        state = self.state
        assert state is not None
        self._channel.close()
        if self._local_state.checkpoints.list_keys():
            self._local_state.checkpoints.finish(tables, self._job.stopping_rule)
        result = TrainingResult(TrainingOutput(tables, state.part, state.losses), run)
        return PartyResult(result, Meter(), DisclosureLedger(), measure_peak_rss_mb())

    def make_validation_report(self, result: TrainingResult) -> ValidationReport | None:
        """Return the report on validation rows at the label holder; None at the others."""
        label = self._local_state.data.label
        if label is None or not result.trained.losses:
            return None
        rows = label[self.plan.n_samples :]
        return make_validation_report(
            self.plan.objective, result.trained.losses, rows, result.validated
        )

    def _emit_start_events(self) -> None:
        tables, n_trained = self.plan.params.tables, self._n_trained
        if n_trained:
            text = f"{n_trained} of {tables} tables are there from an earlier run"
            self._emit(Event("resumed", text, {"tables": n_trained}))
        if self._agreement.is_finished or (
            not self.n_tables_left and not self.plan.has_explanations
        ):
            return
        comparison_cost = estimate_id_comparison(self._job)
        estimate = estimate_cost(self._training_spec, self.plan, n_trained, before=comparison_cost)
        self._emit(make_estimate_event(self.plan, estimate))
