"""The worker pool of a coordinator, for a training run, a batch or a service.

Every head, a participant's or a dealer's, calls its own workers, wherever it likes. The heads swap
on their own channel where workers listen and what they must prove to be: so nobody else's worker
gets into a group.

Nobody is called for small batches, which are most of them: so these are as fast as without workers,
and a service is up without waiting for a cluster. What workers of a service need to know comes from
their head, batch by batch: they have no rows, and no model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from privet.arrays import IndexArray
from privet.boosting.model_part import LabelUnit, ModelPart
from privet.boosting.prediction import applied
from privet.boosting.preparation import Learned, SameIds, prepare_rows, refuse_other_rows
from privet.boosting.sharding import Crowd, dismiss, in_shards, rows_of_shard
from privet.boosting.training import PartyData
from privet.config.job import Job
from privet.config.members import parse_address
from privet.config.party import Cluster, PartyFile
from privet.config.table import DataDescription
from privet.data.encoding import encode
from privet.data.frame import Frame
from privet.data.reader import read_some_rows
from privet.errors import (
    PeerError,
    PeerLostError,
    PeerMisbehavedError,
    PrivetError,
    UnavailableError,
)
from privet.federation.cluster.executors import Engine, engine_of
from privet.federation.cluster.worker import (
    Brief,
    Load,
    Place,
    Summons,
    make_identity,
    send_rows,
    unit_fields,
)
from privet.federation.local_data import Own
from privet.federation.monitoring.events import Event, Waiting
from privet.federation.session.agreement import Agreement
from privet.federation.session.session import Seat, parse
from privet.protocols.protocol import AppliedTests
from privet.runtime.accounting import Meter
from privet.runtime.run import HEAD, worker_name
from privet.runtime.workers import METER, PULSE, Head, Order
from privet.spec.plan import Plan, cut_rows
from privet.spec.sampling import rows_in_order
from privet.storage.json_records import LearnedRecord
from privet.storage.model_part import load_part
from privet.transport import channel as messages
from privet.transport.channel import Channel
from privet.transport.handshake import SESSION_BYTES
from privet.transport.rendezvous import Member, connect, listen
from privet.transport.sockets import SocketChannel

_WAIT = 60.0
"""Seconds for workers to reach their head, and each other."""
_SOON = 0.5
"""Seconds for a worker to say why it failed, when others have found that it did."""


@dataclass
class Crew:
    """The workers of one role."""

    workers: list[Head]
    """Our end of the channel to each of them."""
    meters: list[Meter] = field(default_factory=list)
    """What each of them has metered, once they are dismissed."""
    peak_rss_mb: float | None = None
    """The most memory that a process of theirs took, then, if it is not ours."""


@contextlib.contextmanager
def gathered(
    seat: Seat,
    channel: SocketChannel,
    run: str,
    cluster: Cluster,
    engine: Engine,
    here: Load,
    brief: Callable[[int, dict[str, Place], str], Brief],
    rows: Callable[[int], IndexArray | None],
) -> Iterator[Crew]:
    """Yield our workers, once they are told which groups they are in.

    `here` has the rows of workers in this process, `brief` makes what a worker is told, of its
    shard, group and session, and `rows` says which rows of our table are those of a shard. When we
    are done workers are dismissed; after a failure, they find that we are gone.
    """
    tell_of_waiting = Waiting(seat.tell)

    def waiting(text: str, missing: Sequence[str]) -> None:
        channel.refuse_lost()  # another head may be gone meanwhile
        tell_of_waiting(text, missing)

    shards = range(seat.job.shards)
    door = parse_address(cluster.door, lowest=0) if cluster.door else (seat.host, 0)
    with (
        tempfile.TemporaryDirectory(prefix="privet-head-") as folder,
        listen(*door) as listener,
    ):
        ours, _, _ = make_identity(HEAD, Path(folder))
        head = Member(HEAD, door[0], listener.getsockname()[1], ours.fingerprint)
        session = _session(run, seat.name)
        summonses, members = list[Summons](), [head]
        for shard in shards:
            made, key, certificate = make_identity(worker_name(shard), Path(folder))
            members.append(Member(worker_name(shard), "", 0, made.fingerprint))
            summonses.append(
                Summons(
                    shard=shard,
                    head=head,
                    session=session,
                    key=key,
                    certificate=certificate,
                    host=seat.host if cluster.scheduler is None else "0.0.0.0",  # noqa: S104
                    advertise=cluster.advertise or _advertised(seat, cluster),
                    ports=cluster.ports,
                    wait=_WAIT,
                )
            )
        engine.place(summonses, here)
        try:
            links = connect(
                HEAD,
                members,
                listener,
                session=session,
                identity=ours,
                timeout=_WAIT,
                on_wait=waiting,
            )
        except PeerLostError as error:
            if error.peer not in channel.peers:
                error.called = f"our workers, in {engine.where}"
            raise
        listener.close()  # all are there
        with SocketChannel(HEAD, links) as to_workers:
            to_workers.where = lambda: channel.where()
            to_workers.beside = channel
            crew = Crew([Head(to_workers, worker_name(shard), shard) for shard in shards])
            with _first_failure(crew.workers, engine):
                groups = _swap_places(channel, seat, _places(crew.workers, members[1:]))
                for shard in shards:
                    told = brief(shard, groups[shard], _session(run, f"shard {shard}").hex())
                    content = told.model_dump_json().encode()
                    messages.send(to_workers, [worker_name(shard)], content)
                    send_rows(to_workers, worker_name(shard), rows(shard))
                text = f"{len(shards)} workers, in {engine.where}"
                seat.tell(Event("workers", text, {"workers": len(shards), "where": engine.where}))
                yield crew
                dismiss(crew.workers)
                crew.meters = [worker.metered() for worker in crew.workers]
                if engine.apart:
                    crew.peak_rss_mb = max(worker.peak_rss_mb for worker in crew.workers)


@contextlib.contextmanager
def _first_failure(workers: list[Head], engine: Engine) -> Iterator[None]:
    """If somebody fails, raise what failed first, as far as that can be found out soon.

    When one worker is lost, its head ends, so all other workers and heads do: what we hear of that
    first need not be where it began.
    """
    try:
        yield
    except PeerError as error:
        first = _first(error, workers)
        for worker in workers:
            if first.peer == worker.name and isinstance(first, PeerError):
                if trouble := engine.trouble():
                    raise UnavailableError(f"cluster.scheduler: {trouble}: {first}") from None
                first.called = f"our worker for shard {worker.number}, in {engine.where}"
        raise first from None


def _first(error: PeerError, workers: list[Head]) -> PrivetError:
    """Return the failure that is the least likely to have followed from others.

    What a worker of ours has to say tells more than that it has gone.
    """
    heard: dict[str | None, PrivetError] = {}
    until = time.monotonic() + _SOON
    while len(heard) < len(workers) and time.monotonic() < until:
        for worker in workers:
            if worker.name not in heard and (failure := worker.failure()) is not None:
                heard[worker.name] = failure
        time.sleep(_SOON / 20)
    ours = {worker.name for worker in workers}

    def doubt(failure: PrivetError) -> int:
        if not isinstance(failure, PeerError):
            return -2  # it began at a worker of ours, which knows how
        return -1 if failure.peer in ours else failure.doubt

    return min([*([] if error.peer in heard else [error]), *heard.values()], key=doubt)


def _places(workers: list[Head], members: list[Member]) -> list[Place]:
    """Return where workers listen, and what they prove to be; raise it if one cannot listen."""
    found = []
    for worker, member in zip(workers, members, strict=True):
        worker.answer([])
        place = parse(Place, member.name, messages.receive(worker.channel, member.name))
        found.append(place.model_copy(update={"fingerprint": member.fingerprint}))
    return found


def _advertised(seat: Seat, cluster: Cluster) -> str:
    """Return the host under which workers are reached, if they are on this machine."""
    if cluster.scheduler is not None:
        return ""
    return parse_address(seat.job.contact(seat.name).address)[0]


def _swap_places(channel: Channel, seat: Seat, own: list[Place]) -> list[dict[str, Place]]:
    """Return the group of each shard, in the order of the job."""
    content = json.dumps([place.model_dump() for place in own]).encode()
    received = messages.swap(channel, dict.fromkeys(channel.peers, content))
    told = {seat.name: own}
    for peer, message in received.items():
        try:
            places = [Place.model_validate(each) for each in json.loads(message)]
        except (ValueError, TypeError, RecursionError):
            raise PeerMisbehavedError(peer, "stated workers that are none") from None
        if len(places) != len(own):
            raise PeerMisbehavedError(peer, f"stated {len(places)} workers for {len(own)} shards")
        told[peer] = places
    order = [member.name for member in seat.job.members()]
    return [{name: told[name][shard] for name in order} for shard in range(len(own))]


def _session(run: str, what: str) -> bytes:
    return hashlib.sha256(f"{run} {what}".encode()).digest()[:SESSION_BYTES]


def crew_of_participant(
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    own: Own,
    party: PartyFile,
    common: IndexArray | None,
    plan: Plan,
    unit: LabelUnit | None,
    engine: Engine,
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant, whose rows are all of its table, or those in common."""
    shards, cluster = plan.cut(), party.cluster
    in_order = rows_in_order(plan.n_rows, plan.params)
    in_table = in_order if common is None else common[in_order]
    learned = LearnedRecord.of(Learned.of(own.prepared)).model_dump(mode="json")
    described = party.data.model_dump(mode="json")

    def here(_: Brief, shard: int, __: IndexArray) -> PartyData:
        return rows_of_shard(own.data, plan, shards[shard])

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        ids = own.ids.take(shards[shard].positions(plan.n_samples))
        return Brief.of(
            seat.job,
            agreement,
            seat.name,
            group=group,
            session=session,
            folder=str(own.checkpoints.folder.resolve()),
            data=own.digest,
            learned=learned,
            described=described,
            ids=ids.digest().hex(),
            **unit_fields(unit),
        )

    def rows(shard: int) -> IndexArray:
        return in_table[shards[shard].positions(plan.n_samples)]

    return gathered(seat, channel, agreement.run, cluster, engine, here, brief, rows)


def read_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Read a worker's rows where they are, and prepare them as its head has prepared all."""
    _, plan = brief.training()
    return prepare_rows(
        DataDescription.parse(brief.described),
        LearnedRecord.model_validate(brief.learned).learned(),
        rows,
        plan.cut()[shard].n_validation,
        SameIds(Job.parse(brief.job).ids.rules, bytes.fromhex(brief.ids)),
    )


@dataclass(frozen=True)
class Batch:
    """Where the rows of a batch are, for workers who read their own."""

    described: DataDescription
    model: Path
    """Our part of the model that is to predict."""
    cluster: Cluster


def crew_for_batch(
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    part: ModelPart,
    frame: Frame,
    common: IndexArray | None,
    batch: Batch,
    engine: Engine,
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant who predict rows: all of a frame, in its order."""
    shards = cut_rows(frame.n_samples, 0, seat.job.shards)

    def here(brief: Brief, shard: int, _: IndexArray) -> AppliedTests:
        columns = frame.columns[:, shards[shard].positions(frame.n_samples)]
        return applied(brief.query(shard), seat.job.names, part, columns)

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        assert frame.ids is not None
        ids = frame.ids.take(shards[shard].positions(frame.n_samples))
        return Brief.of(
            seat.job,
            agreement,
            seat.name,
            command="predict",
            group=group,
            session=session,
            model=str(batch.model.resolve()),
            described=batch.described.model_dump(mode="json"),
            ids=ids.digest().hex(),
        )

    def rows(shard: int) -> IndexArray:
        at = shards[shard].positions(frame.n_samples)
        return at if common is None else common[at]

    return gathered(seat, channel, agreement.run, batch.cluster, engine, here, brief, rows)


def read_batch(brief: Brief, shard: int, rows: IndexArray) -> AppliedTests:
    """Read a worker's rows to predict, and apply its participant's tests to them."""
    job, file = Job.parse(brief.job), load_part(Path(brief.model))
    described = DataDescription.parse(brief.described)
    described = described.model_copy(update={"label": None, "weight": None})
    ordered, place = np.unique(rows, return_inverse=True)
    frame = read_some_rows(described, ordered, file.encoders, None, job.ids.rules).together()
    refuse_other_rows(described.where, frame.ids, place, bytes.fromhex(brief.ids))
    columns = encode(frame, file.encoders).columns[:, place]
    return applied(brief.query(shard), job.names, file.part, columns)


def crew_without_rows(
    seat: Seat, channel: SocketChannel, agreement: Agreement, cluster: Cluster, engine: Engine
) -> contextlib.AbstractContextManager[Crew]:
    """Gather workers who have no rows: a dealer's, and anybody's in a service.

    Those of a dealer know what it knows: no names, and no data.
    """

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        command = agreement.command
        return Brief.of(
            seat.job, agreement, seat.name, group=group, session=session, command=command
        )

    run, rows = agreement.run, lambda _: None
    return gathered(seat, channel, run, cluster, engine, no_rows, brief, rows)


def no_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Load nothing."""
    raise AssertionError(f"{brief.name} has no rows")


_PULSE_SECONDS = 1.0


class OnCall:
    """The workers of one role in one session."""

    def __init__(self, shards: int, gather: Callable[[], Crew]) -> None:
        """Have as many as there are shards; all roles gather theirs at the same time."""
        self._shards = shards
        self._gather = gather
        self._crew: Crew | None = None
        self._next_pulse = 0.0

    def crowd(self, rows: int) -> Crowd | None:
        """Return who predicts a batch of so many rows; None, if the heads do."""
        return Crowd(self._shards, self.called()) if in_shards(self._shards, rows) else None

    def called(self) -> Sequence[Head]:
        """Return all workers, once they are there."""
        if self._crew is None:
            self._crew = self._gather()
        return self._crew.workers

    def look(self) -> None:
        """Raise PeerLostError if one of our workers is gone, as far as that shows by now."""
        if self._crew is None or time.monotonic() < self._next_pulse:
            return
        self._next_pulse = time.monotonic() + _PULSE_SECONDS
        for worker in self._crew.workers:
            worker.give(Order(PULSE))

    def metered(self) -> list[Meter]:
        """Return what each of them, if they were called, has metered since then."""
        workers = [] if self._crew is None else self._crew.workers
        for worker in workers:
            worker.give(Order(METER))
        return [worker.metered() for worker in workers]


def workers_on_call(
    stack: contextlib.ExitStack,
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    cluster: Cluster,
    engine: Engine | None = None,
) -> OnCall:
    """Return workers in a cluster, who stay until the stack is left.

    Without an engine that is there already, one is started for them when they are called.
    """

    def gather() -> Crew:
        placed_by = engine or stack.enter_context(engine_of(cluster, no_rows))
        crew = crew_without_rows(seat, channel, agreement, cluster, placed_by)
        return stack.enter_context(_forgiven(crew) if agreement.command == "serve" else crew)

    return OnCall(seat.job.shards, gather)


@contextlib.contextmanager
def _forgiven(gathered: contextlib.AbstractContextManager[Crew]) -> Iterator[Crew]:
    """Let a worker be lost that nobody needs any more.

    A service that has ended well has ended for all, and would be waited for in vain.
    """
    ended_well = False
    try:
        with gathered as crew:
            yield crew
            ended_well = True
    except PrivetError:
        if not ended_well:
            raise


def _nobody() -> Crew:
    raise AssertionError("there are no shards")


NOBODY = OnCall(1, _nobody)
"""For whoever has no workers."""
