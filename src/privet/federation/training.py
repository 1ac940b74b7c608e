"""One participant's training run, phase by phase, with its announcements."""

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
    """Say what may be wrong with our table, or with what is kept, though it does not stop us."""
    for warning in warnings:
        emit(Event("warning", f"warning: {warning}{advice}", {"warning": warning}))


def make_classes_event(classes: tuple[str, ...]) -> Event:
    """Return how the label's classes are numbered, for its holder."""
    if len(classes) > 2:
        text = f"the label's classes are {', '.join(map(repr, classes))}"
    else:
        text = " and ".join(f"{name!r} is {number}" for number, name in enumerate(classes))
        text = f"of the label, {text} (positive, in party.toml)"
    return Event("classes", text, {"classes": classes})


def announce_cut_counts(data: TrainingData, job: Job, emit: EventHandler) -> list[int] | None:
    """Return the numbers of cuts that we state, and say so before we do."""
    columns, cuts = data.columns, job.cut_disclosure
    told = disclose_cut_counts(columns.cut_counts, cuts, job.make_params().max_cut_count)
    if told is None:
        return None
    by_name = dict(zip(columns.names, told, strict=True))
    text = ", ".join(f"{name} {count}" for name, count in by_name.items()) or "none of ours"
    emit(Event("cuts", f"all are told our numbers of cuts, {cuts}: {text}", {"cuts": by_name}))
    return list(told)


def make_estimate_event(plan: Plan, estimate: CostEstimate) -> Event:
    """Return what is about to be trained, and what that will take."""
    whose = " a worker" if plan.shards > 1 else ""
    return Event(
        "started",
        f"{plan.n_samples:,} samples, {plan.n_features} features: "
        f"{estimate.rounds:,} rounds, {estimate.online_bytes / 1e6:,.0f} MB between the "
        f"participants, {estimate.offline_bytes / 1e6:,.0f} MB from the dealer, "
        f"about {estimate.memory_bytes / 1e6:,.0f} MB of memory{whose}, {estimate.masks} masks",
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
    """Say how many tables are kept of a training that is cut short, and how it goes on."""
    try:
        yield
    except (PeerError, UnavailableError, OSError, KeyboardInterrupt):
        kept = tables()
        text = "no table is kept yet: start the same commands again"
        if kept:
            are = "is" if kept == 1 else "are"
            text = f"{kept} of {plan.params.tables} tables {are} kept: start the same commands "
            text += "again, without --restart, and they go on from what all have"
        emit(Event("stopped", text, {"tables": kept}))
        raise


def run_training(
    config: PartyConfig, member: LocalMember, *, restart: bool = False
) -> tuple[PartyReport, Path]:
    """Take part in a training; return what it took, and where our part of the model is.

    Where an earlier run was cut short, go on after the last table that all participants have;
    with `restart`, from the first, whatever is there. Whoever calls this has the folder locked: two
    runs would overwrite each other's checkpoints.
    """
    job = member.job
    with contextlib.ExitStack() as stack:
        if job.shards > 1:
            engine = stack.enter_context(make_executor(config.cluster, load_training_rows))
        table = LocalTable.read(config, job, restart)
        emit_warnings(table.all_rows.row_data.warnings, member.emit)
        own = table.load_local_state()
        to_align = table if job.align else None
        del table  # with its columns: where all rows take part, of these there are buckets now
        dealt, crew = None if own is None else own.preprocessing, None
        if dealt is not None:
            stack.callback(dealt.close)
        channel = stack.enter_context(member.connect(same_role_only=dealt is not None))
        started = time.perf_counter()
        dealing = None if dealt is None else dealt.randomness_id
        states = {} if to_align is None else to_align.make_proposal_fields(own)
        stated = Proposal.for_job(job, command="train", dealing=dealing, **states)
        purpose, common = exchange_proposals(channel, job, stated), None
        if to_align is not None:
            common, own = to_align.align(channel, purpose, member.emit, own)
            del to_align
        assert own is not None
        left_out = "; it is left out, and the one before it counts"
        emit_warnings(own.checkpoints.damaged.values(), member.emit, left_out)
        if own.prepared.classes:
            member.emit(make_classes_event(own.prepared.classes))
        agreement = exchange_summaries(channel, job, purpose, _make_summary(own, job, member.emit))
        program = _TrainingProgram(job, agreement, own, member.emit, channel)
        stack.enter_context(
            report_interruption(lambda: program.n_saved_tables, program.plan, member.emit)
        )
        if not agreement.is_finished:
            if program.left and job.keep_indicators:
                program.keep()
            source = None if dealt is None else dealt.consume(channel, job, agreement)
            if job.shards > 1:
                rows = None if common is None else common.rows
                of = own, config, rows, program.plan, program.unit
                crew = stack.enter_context(
                    start_training_pool(member, channel, agreement, *of, engine)
                )
                program.workers = crew.worker_handles
            record = run_party(
                program,
                job.party_names.index(member.name),
                job.party_names,
                own.data,
                channel,
                source,
                dealers=job.dealer_names,
            )
            record.result = program.finish(record.result)
        else:
            record = program.make_finished_record()
    if crew is not None:
        record.meter.add_parallel(crew.meters)
    # Everybody has said goodbye, so everybody has its last checkpoint.
    ready, result = own.prepared, record.result
    part, run = result.trained.part, result.run
    file = ModelPartFile(part, job, own.data_digest, run, ready.encoders, ready.classes)
    save_part(file, own.part_path)
    report = make_party_report(
        record,
        command="train",
        part_file=file,
        n_samples=agreement.n_samples,
        seconds=time.perf_counter() - started,
        n_resumed_tables=agreement.resume_from[0],
        validation=program.make_validation_report(result),
        is_preprocessed=dealt is not None,
        alignment=None if common is None else common.report,
        worker_peak_rss_mb=None if crew is None else crew.peak_rss_mb,
    )
    return report, own.part_path


def _make_summary(state: LocalState, job: Job, emit: EventHandler) -> DataSummary:
    """Return what we bring along, as the others are told."""
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
    """What a participant has at the end of a training."""

    trained: TrainingOutput
    run: str
    """The run in which its last table was trained."""
    validated: ValidationResult = ValidationResult()
    """What the label's holder learned of validation rows then."""


class _TrainingProgram:
    """The program that a participant runs."""

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
        self._done = self.n_saved_tables = agreement.resume_from[0]
        self.workers: Sequence[WorkerHandle] = ()
        """Who works on our rows, if they are in shards."""
        self.left = self.plan.params.tables - self._done
        """How many tables there are to train, unless it is stopped early."""

    @cached_property
    def state(self) -> TrainingState | None:
        """What we go on from, if all have something: read once."""
        return self._local_state.load_state(self._agreement.resume_from)

    @property
    def unit(self) -> LabelUnit | None:
        """The label's unit, if we hold the label."""
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
            rate = (state.part.n_tables - self._done) / (time.perf_counter() - started)
            tables = self.plan.params.tables
            self._emit(make_table_event(runtime.meter, state, tables, rate, self.workers))

        with report_progress(runtime, self._channel, self._emit, self.workers):
            trained = train(
                runtime,
                self._training_spec,
                self.plan,
                data,
                n_trained_tables=self._done,
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
        """Keep the last checkpoint alone, once everybody has said goodbye, and so has its own."""
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

    def make_finished_record(self) -> PartyResult:
        """Return what an earlier run has trained to its end, when all have said goodbye."""
        self._emit_start_events()
        tables, run = self._agreement.resume_from
        state = self.state
        assert state is not None
        self._channel.close()
        if self._local_state.checkpoints.list_keys():
            self._local_state.checkpoints.finish(tables, self._job.stopping_rule)
        ended = TrainingResult(TrainingOutput(tables, state.part, state.losses), run)
        return PartyResult(ended, Meter(), DisclosureLedger(), measure_peak_rss_mb())

    def make_validation_report(self, result: TrainingResult) -> ValidationReport | None:
        """Return what the label's holder learned of validation rows; None, to all others."""
        label = self._local_state.data.label
        if label is None or not result.trained.losses:
            return None
        rows = label[self.plan.n_samples :]
        return make_validation_report(
            self.plan.objective, result.trained.losses, rows, result.validated
        )

    def _emit_start_events(self) -> None:
        tables, done = self.plan.params.tables, self._done
        if done:
            text = f"{done} of {tables} tables are there from an earlier run"
            self._emit(Event("resumed", text, {"tables": done}))
        if self._agreement.is_finished or (not self.left and not self.plan.has_explanations):
            return
        before = estimate_id_comparison(self._job)
        cost = estimate_cost(self._training_spec, self.plan, done, before=before)
        self._emit(make_estimate_event(self.plan, cost))
