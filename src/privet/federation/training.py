"""One participant's training run, phase by phase, with its announcements."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from privet.boosting.cost_estimate import Estimate, estimate
from privet.boosting.model_part import LabelUnit
from privet.boosting.prediction import Validated, validate
from privet.boosting.training import Keeping, PartyData, Trained, TrainingState, train, unit_of
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.errors import PeerError, UnavailableError
from privet.federation.alignment.alignment import cost_of_comparing, digest_of, refuse_other_ids
from privet.federation.cluster.executors import engine_of
from privet.federation.cluster.pool import crew_of_participant, read_rows
from privet.federation.keeping import Keeper
from privet.federation.local_data import Own, Table
from privet.federation.monitoring.events import Event, Tell
from privet.federation.monitoring.progress import of_table, watched
from privet.federation.monitoring.report import (
    PartyReport,
    ValidationReport,
    party_report,
    validation_report,
)
from privet.federation.session.agreement import (
    Agreement,
    Holding,
    Statement,
    agree_on_purpose,
    agree_on_rows,
)
from privet.federation.session.session import Seat
from privet.runtime.accounting import Ledger, Meter
from privet.runtime.party import Party
from privet.runtime.run import Record, peak_rss_mb, run_party
from privet.runtime.workers import Head
from privet.spec.plan import Plan, told_cuts
from privet.storage.model_part import PartFile, save_part
from privet.transport.sockets import SocketChannel


def warn_of(warnings: Iterable[str], tell: Tell, advice: str = "") -> None:
    """Say what may be wrong with our table, or with what is kept, though it does not stop us."""
    for warning in warnings:
        tell(Event("warning", f"warning: {warning}{advice}", {"warning": warning}))


def of_classes(classes: tuple[str, ...]) -> Event:
    """Return how the label's classes are numbered, for its holder."""
    if len(classes) > 2:
        text = f"the label's classes are {', '.join(map(repr, classes))}"
    else:
        text = " and ".join(f"{name!r} is {number}" for number, name in enumerate(classes))
        text = f"of the label, {text} (positive, in party.toml)"
    return Event("classes", text, {"classes": classes})


def told_of(data: PartyData, job: Job, tell: Tell) -> list[int] | None:
    """Return the numbers of cuts that we state, and say so before we do."""
    columns, cuts = data.columns, job.told_cuts
    told = told_cuts(columns.filled_cuts, cuts, job.hyper_parameters().candidates)
    if told is None:
        return None
    by_name = dict(zip(columns.names, told, strict=True))
    text = ", ".join(f"{name} {count}" for name, count in by_name.items()) or "none of ours"
    tell(Event("cuts", f"all are told our numbers of cuts, {cuts}: {text}", {"cuts": by_name}))
    return list(told)


def of_cost(plan: Plan, cost: Estimate) -> Event:
    """Return what is about to be trained, and what that will take."""
    whose = " a worker" if plan.shards > 1 else ""
    return Event(
        "started",
        f"{plan.n_samples:,} samples, {plan.n_features} features: "
        f"{cost.rounds:,} rounds, {cost.online / 1e6:,.0f} MB between the participants, "
        f"{cost.offline / 1e6:,.0f} MB from the dealer, "
        f"about {cost.memory / 1e6:,.0f} MB of memory{whose}, {cost.masks} masks",
        {
            "samples": plan.n_samples,
            "features": plan.n_features,
            "tables": plan.params.tables,
            "rounds": cost.rounds,
            "bytes_online": cost.online,
            "bytes_offline": cost.offline,
            "memory": cost.memory,
            "masks": cost.masks,
        },
    )


@contextlib.contextmanager
def what_is_kept(tables: Callable[[], int], plan: Plan, tell: Tell) -> Iterator[None]:
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
        tell(Event("stopped", text, {"tables": kept}))
        raise


def train_part(party: PartyFile, seat: Seat, *, restart: bool = False) -> tuple[PartyReport, Path]:
    """Take part in a training; return what it took, and where our part of the model is.

    Where an earlier run was cut short, go on after the last table that all participants have;
    with `restart`, from the first, whatever is there. Whoever calls this has the folder locked: two
    runs would overwrite each other's checkpoints.
    """
    job = seat.job
    with contextlib.ExitStack() as stack:
        if job.shards > 1:
            engine = stack.enter_context(engine_of(party.cluster, read_rows))
        table = Table.read(party, job, restart)
        warn_of(table.rows.frame.warnings, seat.tell)
        own = table.own()
        to_align = table if job.align else None
        del table  # with its columns: where all rows take part, of these there are buckets now
        dealt, crew = None if own is None else own.dealt, None
        if dealt is not None:
            stack.callback(dealt.close)
        channel = stack.enter_context(seat.meet(ahead=dealt is not None))
        started = time.perf_counter()
        dealing = None if dealt is None else dealt.dealing
        states = {} if to_align is None else to_align.states(own)
        stated = Statement.of(job, command="train", dealing=dealing, **states)
        purpose, common = agree_on_purpose(channel, job, stated), None
        if to_align is not None:
            common, own = to_align.find_common(channel, purpose, seat.tell, own)
            del to_align
        assert own is not None
        left_out = "; it is left out, and the one before it counts"
        warn_of(own.checkpoints.damaged.values(), seat.tell, left_out)
        if own.prepared.classes:
            seat.tell(of_classes(own.prepared.classes))
        agreement = agree_on_rows(channel, job, purpose, _holding(own, job, seat.tell))
        program = _Training(job, agreement, own, seat.tell, channel)
        stack.enter_context(what_is_kept(lambda: program.kept, program.plan, seat.tell))
        if not agreement.ended:
            if program.left and job.keep_indicators:
                program.keep()
            source = None if dealt is None else dealt.take(channel, job, agreement)
            if job.shards > 1:
                rows = None if common is None else common.rows
                of = own, party, rows, program.plan, program.unit
                crew = stack.enter_context(
                    crew_of_participant(seat, channel, agreement, *of, engine)
                )
                program.workers = crew.workers
            record = run_party(
                program,
                job.names.index(seat.name),
                job.names,
                own.data,
                channel,
                source,
                dealers=job.dealer_names,
            )
            record.result = program.end(record.result)
        else:
            record = program.nothing_left()
    if crew is not None:
        record.meter.add_group(crew.meters)
    # Everybody has said goodbye, so everybody has its last checkpoint.
    ready, result = own.prepared, record.result
    part, run = result.trained.part, result.run
    file = PartFile(part, job, own.digest, run, ready.encoders, ready.classes)
    save_part(file, own.path)
    report = party_report(
        record,
        command="train",
        file=file,
        samples=agreement.samples,
        seconds=time.perf_counter() - started,
        resumed=agreement.stage[0],
        validation=program.validated(result),
        ahead=dealt is not None,
        alignment=None if common is None else common.report,
        worker_peak_rss_mb=None if crew is None else crew.peak_rss_mb,
    )
    return report, own.path


def _holding(own: Own, job: Job, tell: Tell) -> Holding:
    """Return what we bring along, as the others are told."""
    names = own.data.columns.names
    return Holding(
        samples=own.data.columns.n_samples,
        n_features=len(names),
        features=list(names),
        cuts=told_of(own.data, job, tell),
        stages=own.stages,
        ended=own.ended,
    )


class Ended(NamedTuple):
    """What a participant has at the end of a training."""

    trained: Trained
    run: str
    """The run in which its last table was trained."""
    validated: Validated = Validated()
    """What the label's holder learned of validation rows then."""


class _Training:
    """The program that a participant runs."""

    def __init__(
        self, job: Job, agreement: Agreement, own: Own, tell: Tell, channel: SocketChannel
    ) -> None:
        self._channel = channel
        self._job = job
        self._federation = job.federation(agreement.features, agreement.cut_counts)
        self.plan = self._federation.plan(agreement.samples)
        self._keeping: Keeping | None = None
        self._agreement = agreement
        self._own = own
        self._tell = tell
        self._done = self.kept = agreement.stage[0]
        self.workers: Sequence[Head] = ()
        """Who works on our rows, if they are in shards."""
        self.left = self.plan.params.tables - self._done
        """How many tables there are to train, unless it is stopped early."""

    @cached_property
    def state(self) -> TrainingState | None:
        """What we go on from, if all have something: read once."""
        return self._own.state(self._agreement.stage)

    @property
    def unit(self) -> LabelUnit | None:
        """The label's unit, if we hold the label."""
        return unit_of(self._federation, self.plan, self._own.data, self.state)

    def __call__(self, runtime: Party, data: PartyData) -> Ended:
        """Train, with a checkpoint after every table."""
        if not self._job.align:
            digest = digest_of(self._own.ids, self._agreement.run)
            refuse_other_ids(runtime, runtime.names, digest, self._channel)
        state = self.state
        self._announce()
        started = time.perf_counter()

        def on_state(state: TrainingState) -> None:
            self._own.checkpoints.save(state, self._agreement.run)
            self.kept = state.part.n_tables
            rate = (state.part.n_tables - self._done) / (time.perf_counter() - started)
            tables = self.plan.params.tables
            self._tell(of_table(runtime.meter, state, tables, rate, self.workers))

        with watched(runtime, self._channel, self._tell, self.workers):
            trained = train(
                runtime,
                self._federation,
                self.plan,
                data,
                done=self._done,
                state=state,
                on_state=on_state,
                keeping=self._keeping,
                workers=self.workers,
            )
            validated = validate(runtime, self._federation, self.plan, trained, data, self.workers)
        return Ended(trained, "", validated)

    def end(self, ended: Ended) -> Ended:
        """Keep the last checkpoint alone, once everybody has said goodbye, and so has its own."""
        run = self._own.checkpoints.end(ended.trained.tables, self._job.length)
        return ended._replace(run=run)

    def keep(self) -> None:
        """Agree with the others whose indicators are used again, and keep those that are not."""
        own = self._own
        if own.dealt is not None:
            text = "correlations are dealt ahead: no indicators are kept, or used again"
            self._tell(Event("kept", text, {"owners": []}))
            return
        dealers = {name: contact.fingerprint for name, contact in self._job.dealing().items()}
        keeper = Keeper(str(own.kept), own.data.columns, own.ids, self._tell, dealers)
        found = keeper.agree(self._channel, self._federation, self._agreement.samples)
        self.plan, self._keeping = found

    def nothing_left(self) -> Record:
        """Return what an earlier run has trained to its end, when all have said goodbye."""
        self._announce()
        tables, run = self._agreement.stage
        state = self.state
        assert state is not None
        self._channel.close()
        if self._own.checkpoints.stages():
            self._own.checkpoints.end(tables, self._job.length)
        ended = Ended(Trained(tables, state.part, state.losses), run)
        return Record(ended, Meter(), Ledger(), peak_rss_mb())

    def validated(self, ended: Ended) -> ValidationReport | None:
        """Return what the label's holder learned of validation rows; None, to all others."""
        label = self._own.data.label
        if label is None or not ended.trained.losses:
            return None
        rows = label[self.plan.n_samples :]
        return validation_report(self.plan.objective, ended.trained.losses, rows, ended.validated)

    def _announce(self) -> None:
        tables, done = self.plan.params.tables, self._done
        if done:
            text = f"{done} of {tables} tables are there from an earlier run"
            self._tell(Event("resumed", text, {"tables": done}))
        if self._agreement.ended or (not self.left and not self.plan.explains):
            return
        before = cost_of_comparing(self._job)
        cost = estimate(self._federation, self.plan, done, before=before)
        self._tell(of_cost(self.plan, cost))
