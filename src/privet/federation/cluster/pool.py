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
from privet.boosting.prediction import apply_splits
from privet.boosting.preparation import ExpectedIds, TableEncoding, prepare_shard, require_same_rows
from privet.boosting.sharding import BatchWorkers, select_shard, shut_down_workers, uses_shards
from privet.boosting.training import TrainingData
from privet.config.job import Job
from privet.config.members import parse_address
from privet.config.party import ClusterConfig, PartyConfig
from privet.config.table import TableSpec
from privet.data.encoding import encode_frame
from privet.data.frame import Frame
from privet.data.reader import read_selected_rows
from privet.errors import (
    PeerError,
    PeerLostError,
    PeerMisbehavedError,
    PrivetError,
    UnavailableError,
)
from privet.federation.cluster.executors import Executor, make_executor
from privet.federation.cluster.worker import (
    LoadRows,
    WorkerAddress,
    WorkerConfig,
    WorkerLaunch,
    create_temporary_identity,
    encode_label_unit,
    send_row_numbers,
)
from privet.federation.local_data import LocalState
from privet.federation.monitoring.events import Event, WaitReporter
from privet.federation.session.agreement import Agreement
from privet.federation.session.session import LocalMember, parse_message
from privet.protocols.protocol import AppliedSplits
from privet.runtime.accounting import Meter
from privet.runtime.run import COORDINATOR_NAME, make_worker_name
from privet.runtime.workers import HEARTBEAT_COMMAND, METER_COMMAND, Command, WorkerHandle
from privet.spec.plan import Plan, split_into_shards
from privet.spec.sampling import order_rows
from privet.storage.json_records import TableEncodingRecord
from privet.storage.model_part import load_part
from privet.transport import channel as messages
from privet.transport.channel import Channel
from privet.transport.handshake import SESSION_ID_BYTES
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.sockets import SocketChannel

_WAIT = 60.0
"""Seconds for workers to reach their head, and each other."""
_FAILURE_GRACE_SECONDS = 0.5
"""Seconds for a worker to say why it failed, when others have found that it did."""


@dataclass
class WorkerPool:
    """The workers of one role."""

    worker_handles: list[WorkerHandle]
    """Our end of the channel to each of them."""
    meters: list[Meter] = field(default_factory=list)
    """What each of them has metered, once they are dismissed."""
    peak_rss_mb: float | None = None
    """The most memory that a process of theirs took, then, if it is not ours."""


@contextlib.contextmanager
def start_pool(
    member: LocalMember,
    channel: SocketChannel,
    run: str,
    cluster: ClusterConfig,
    executor: Executor,
    load_local: LoadRows,
    make_config: Callable[[int, dict[str, WorkerAddress], str], WorkerConfig],
    get_rows: Callable[[int], IndexArray | None],
) -> Iterator[WorkerPool]:
    """Yield our workers, once they are told which groups they are in.

    `load_local` has the rows of workers in this process, `make_config` makes what a worker is told,
    of its shard, group and session, and `get_rows` says which rows of our table are those of a
    shard. When we are done workers are dismissed; after a failure, they find that we are gone.
    """
    tell_of_waiting = WaitReporter(member.emit)

    def report_waiting(text: str, missing: Sequence[str]) -> None:
        channel.raise_if_disconnected()  # another head may be gone meanwhile
        tell_of_waiting(text, missing)

    shards = range(member.job.shards)
    door = parse_address(cluster.door, lowest=0) if cluster.door else (member.host, 0)
    with (
        tempfile.TemporaryDirectory(prefix="privet-head-") as folder,
        listen(*door) as listener,
    ):
        ours, _, _ = create_temporary_identity(COORDINATOR_NAME, Path(folder))
        head = Member(COORDINATOR_NAME, door[0], listener.getsockname()[1], ours.fingerprint)
        session = _derive_session_id(run, member.name)
        summonses, members = list[WorkerLaunch](), [head]
        for shard in shards:
            made, key, certificate = create_temporary_identity(
                make_worker_name(shard), Path(folder)
            )
            members.append(Member(make_worker_name(shard), "", 0, made.fingerprint))
            summonses.append(
                WorkerLaunch(
                    shard=shard,
                    coordinator=head,
                    session_id=session,
                    key=key,
                    certificate=certificate,
                    host=member.host if cluster.scheduler is None else "0.0.0.0",  # noqa: S104
                    advertised_host=cluster.advertise or _get_advertised_host(member, cluster),
                    port_range=cluster.ports,
                    timeout=_WAIT,
                )
            )
        executor.submit(summonses, load_local)
        try:
            links = connect_members(
                COORDINATOR_NAME,
                members,
                listener,
                session_id=session,
                identity=ours,
                timeout=_WAIT,
                on_wait=report_waiting,
            )
        except PeerLostError as error:
            if error.peer not in channel.peers:
                error.display_name = f"our workers, in {executor.description}"
            raise
        listener.close()  # all are there
        with SocketChannel(COORDINATOR_NAME, links) as to_workers:
            to_workers.current_step = lambda: channel.current_step()
            to_workers.linked_channel = channel
            crew = WorkerPool(
                [WorkerHandle(to_workers, make_worker_name(shard), shard) for shard in shards]
            )
            with _raise_first_failure(crew.worker_handles, executor):
                groups = _exchange_addresses(
                    channel, member, _receive_addresses(crew.worker_handles, members[1:])
                )
                for shard in shards:
                    told = make_config(
                        shard, groups[shard], _derive_session_id(run, f"shard {shard}").hex()
                    )
                    content = told.model_dump_json().encode()
                    messages.send_message(to_workers, [make_worker_name(shard)], content)
                    send_row_numbers(to_workers, make_worker_name(shard), get_rows(shard))
                text = f"{len(shards)} workers, in {executor.description}"
                member.emit(
                    Event("workers", text, {"workers": len(shards), "where": executor.description})
                )
                yield crew
                shut_down_workers(crew.worker_handles)
                crew.meters = [worker.receive_meter() for worker in crew.worker_handles]
                if executor.is_remote:
                    crew.peak_rss_mb = max(worker.peak_rss_mb for worker in crew.worker_handles)


@contextlib.contextmanager
def _raise_first_failure(worker_handles: list[WorkerHandle], executor: Executor) -> Iterator[None]:
    """If somebody fails, raise what failed first, as far as that can be found out soon.

    When one worker is lost, its head ends, so all other workers and heads do: what we hear of that
    first need not be where it began.
    """
    try:
        yield
    except PeerError as error:
        first = _find_first_failure(error, worker_handles)
        for worker in worker_handles:
            if first.peer == worker.name and isinstance(first, PeerError):
                if trouble := executor.describe_failure():
                    raise UnavailableError(f"cluster.scheduler: {trouble}: {first}") from None
                first.display_name = (
                    f"our worker for shard {worker.shard_number}, in {executor.description}"
                )
        raise first from None


def _find_first_failure(error: PeerError, worker_handles: list[WorkerHandle]) -> PrivetError:
    """Return the failure that is the least likely to have followed from others.

    What a worker of ours has to say tells more than that it has gone.
    """
    heard: dict[str | None, PrivetError] = {}
    until = time.monotonic() + _FAILURE_GRACE_SECONDS
    while len(heard) < len(worker_handles) and time.monotonic() < until:
        for worker in worker_handles:
            if worker.name not in heard and (failure := worker.poll_failure()) is not None:
                heard[worker.name] = failure
        time.sleep(_FAILURE_GRACE_SECONDS / 20)
    ours = {worker.name for worker in worker_handles}

    def rank_failure(failure: PrivetError) -> int:
        if not isinstance(failure, PeerError):
            return -2  # it began at a worker of ours, which knows how
        return -1 if failure.peer in ours else failure.cause_rank

    return min([*([] if error.peer in heard else [error]), *heard.values()], key=rank_failure)


def _receive_addresses(
    worker_handles: list[WorkerHandle], members: list[Member]
) -> list[WorkerAddress]:
    """Return where workers listen, and what they prove to be; raise it if one cannot listen."""
    found = []
    for worker, member in zip(worker_handles, members, strict=True):
        worker.receive_response([])
        place = parse_message(
            WorkerAddress, member.name, messages.receive_message(worker.channel, member.name)
        )
        found.append(place.model_copy(update={"fingerprint": member.fingerprint}))
    return found


def _get_advertised_host(member: LocalMember, cluster: ClusterConfig) -> str:
    """Return the host under which workers are reached, if they are on this machine."""
    if cluster.scheduler is not None:
        return ""
    return parse_address(member.job.get_entry(member.name).address)[0]


def _exchange_addresses(
    channel: Channel, local_member: LocalMember, local_addresses: list[WorkerAddress]
) -> list[dict[str, WorkerAddress]]:
    """Return the group of each shard, in the order of the job."""
    content = json.dumps([place.model_dump() for place in local_addresses]).encode()
    received = messages.exchange_messages(channel, dict.fromkeys(channel.peers, content))
    told = {local_member.name: local_addresses}
    for peer, message in received.items():
        try:
            places = [WorkerAddress.model_validate(each) for each in json.loads(message)]
        except (ValueError, TypeError, RecursionError):
            raise PeerMisbehavedError(peer, "stated workers that are none") from None
        if len(places) != len(local_addresses):
            raise PeerMisbehavedError(
                peer, f"stated {len(places)} workers for {len(local_addresses)} shards"
            )
        told[peer] = places
    order = [member.name for member in local_member.job.make_members()]
    return [{name: told[name][shard] for name in order} for shard in range(len(local_addresses))]


def _derive_session_id(run: str, purpose: str) -> bytes:
    return hashlib.sha256(f"{run} {purpose}".encode()).digest()[:SESSION_ID_BYTES]


def start_training_pool(
    member: LocalMember,
    channel: SocketChannel,
    agreement: Agreement,
    state: LocalState,
    config: PartyConfig,
    common_rows: IndexArray | None,
    plan: Plan,
    unit: LabelUnit | None,
    executor: Executor,
) -> contextlib.AbstractContextManager[WorkerPool]:
    """Gather the workers of a participant, whose rows are all of its table, or those in common."""
    shards, cluster = plan.split_into_shards(), config.cluster
    in_order = order_rows(plan.n_rows, plan.params)
    in_table = in_order if common_rows is None else common_rows[in_order]
    learned = TableEncodingRecord.from_encoding(
        TableEncoding.from_prepared(state.prepared)
    ).model_dump(mode="json")
    described = config.data.model_dump(mode="json")

    def load_local(_: WorkerConfig, shard: int, __: IndexArray) -> TrainingData:
        return select_shard(state.data, plan, shards[shard])

    def make_config(shard: int, group: dict[str, WorkerAddress], session: str) -> WorkerConfig:
        ids = state.ids.take(shards[shard].positions(plan.n_samples))
        return WorkerConfig.for_member(
            member.job,
            agreement,
            member.name,
            group=group,
            session=session,
            folder=str(state.checkpoints.folder.resolve()),
            data=state.data_digest,
            learned=learned,
            described=described,
            ids=ids.digest().hex(),
            **encode_label_unit(unit),
        )

    def get_rows(shard: int) -> IndexArray:
        return in_table[shards[shard].positions(plan.n_samples)]

    return start_pool(
        member, channel, agreement.run, cluster, executor, load_local, make_config, get_rows
    )


def load_training_rows(worker_config: WorkerConfig, shard: int, rows: IndexArray) -> TrainingData:
    """Read a worker's rows where they are, and prepare them as its head has prepared all."""
    _, plan = worker_config.make_training_plan()
    return prepare_shard(
        TableSpec.parse(worker_config.described),
        TableEncodingRecord.model_validate(worker_config.learned).to_encoding(),
        rows,
        plan.split_into_shards()[shard].n_validation,
        ExpectedIds(
            Job.parse(worker_config.job).ids.rules_by_part, bytes.fromhex(worker_config.ids)
        ),
    )


@dataclass(frozen=True)
class BatchSource:
    """Where the rows of a batch are, for workers who read their own."""

    table_spec: TableSpec
    part_path: Path
    """Our part of the model that is to predict."""
    cluster: ClusterConfig


def start_prediction_pool(
    member: LocalMember,
    channel: SocketChannel,
    agreement: Agreement,
    part: ModelPart,
    frame: Frame,
    common_rows: IndexArray | None,
    batch: BatchSource,
    executor: Executor,
) -> contextlib.AbstractContextManager[WorkerPool]:
    """Gather the workers of a participant who predict rows: all of a frame, in its order."""
    shards = split_into_shards(frame.n_samples, 0, member.job.shards)

    def load_local(brief: WorkerConfig, shard: int, _: IndexArray) -> AppliedSplits:
        columns = frame.columns[:, shards[shard].positions(frame.n_samples)]
        return apply_splits(
            brief.make_prediction_query(shard), member.job.party_names, part, columns
        )

    def make_config(shard: int, group: dict[str, WorkerAddress], session: str) -> WorkerConfig:
        assert frame.ids is not None
        ids = frame.ids.take(shards[shard].positions(frame.n_samples))
        return WorkerConfig.for_member(
            member.job,
            agreement,
            member.name,
            command="predict",
            group=group,
            session=session,
            model=str(batch.part_path.resolve()),
            described=batch.table_spec.model_dump(mode="json"),
            ids=ids.digest().hex(),
        )

    def get_rows(shard: int) -> IndexArray:
        at = shards[shard].positions(frame.n_samples)
        return at if common_rows is None else common_rows[at]

    return start_pool(
        member, channel, agreement.run, batch.cluster, executor, load_local, make_config, get_rows
    )


def load_prediction_rows(
    worker_config: WorkerConfig, shard: int, rows: IndexArray
) -> AppliedSplits:
    """Read a worker's rows to predict, and apply its participant's tests to them."""
    job, file = Job.parse(worker_config.job), load_part(Path(worker_config.model))
    described = TableSpec.parse(worker_config.described)
    described = described.model_copy(update={"label": None, "weight": None})
    ordered, place = np.unique(rows, return_inverse=True)
    frame = read_selected_rows(
        described, ordered, file.encoders, None, job.ids.rules_by_part
    ).collect()
    require_same_rows(described.display_name, frame.ids, place, bytes.fromhex(worker_config.ids))
    columns = encode_frame(frame, file.encoders).columns[:, place]
    return apply_splits(
        worker_config.make_prediction_query(shard), job.party_names, file.part, columns
    )


def start_dataless_pool(
    member: LocalMember,
    channel: SocketChannel,
    agreement: Agreement,
    cluster: ClusterConfig,
    executor: Executor,
) -> contextlib.AbstractContextManager[WorkerPool]:
    """Gather workers who have no rows: a dealer's, and anybody's in a service.

    Those of a dealer know what it knows: no names, and no data.
    """

    def make_config(shard: int, group: dict[str, WorkerAddress], session: str) -> WorkerConfig:
        command = agreement.command
        return WorkerConfig.for_member(
            member.job, agreement, member.name, group=group, session=session, command=command
        )

    run, rows = agreement.run, lambda _: None
    return start_pool(member, channel, run, cluster, executor, load_no_rows, make_config, rows)


def load_no_rows(worker_config: WorkerConfig, shard: int, rows: IndexArray) -> TrainingData:
    """Load nothing."""
    raise AssertionError(f"{worker_config.name} has no rows")


_HEARTBEAT_SECONDS = 1.0


class LazyPool:
    """The workers of one role in one session."""

    def __init__(self, shards: int, start: Callable[[], WorkerPool]) -> None:
        """Have as many as there are shards; all roles gather theirs at the same time."""
        self._shards = shards
        self._start = start
        self._pool: WorkerPool | None = None
        self._next_heartbeat = 0.0

    def get_batch_workers(self, rows: int) -> BatchWorkers | None:
        """Return who predicts a batch of so many rows; None, if the heads do."""
        return (
            BatchWorkers(self._shards, self.get_workers())
            if uses_shards(self._shards, rows)
            else None
        )

    def get_workers(self) -> Sequence[WorkerHandle]:
        """Return all workers, once they are there."""
        if self._pool is None:
            self._pool = self._start()
        return self._pool.worker_handles

    def check_workers(self) -> None:
        """Raise PeerLostError if one of our workers is gone, as far as that shows by now."""
        if self._pool is None or time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + _HEARTBEAT_SECONDS
        for worker in self._pool.worker_handles:
            worker.send_command(Command(HEARTBEAT_COMMAND))

    def collect_meters(self) -> list[Meter]:
        """Return what each of them, if they were called, has metered since then."""
        workers = [] if self._pool is None else self._pool.worker_handles
        for worker in workers:
            worker.send_command(Command(METER_COMMAND))
        return [worker.receive_meter() for worker in workers]


def make_lazy_pool(
    stack: contextlib.ExitStack,
    member: LocalMember,
    channel: SocketChannel,
    agreement: Agreement,
    cluster: ClusterConfig,
    executor: Executor | None = None,
) -> LazyPool:
    """Return workers in a cluster, who stay until the stack is left.

    Without an engine that is there already, one is started for them when they are called.
    """

    def start() -> WorkerPool:
        placed_by = executor or stack.enter_context(make_executor(cluster, load_no_rows))
        crew = start_dataless_pool(member, channel, agreement, cluster, placed_by)
        return stack.enter_context(
            _ignore_late_failures(crew) if agreement.command == "serve" else crew
        )

    return LazyPool(member.job.shards, start)


@contextlib.contextmanager
def _ignore_late_failures(
    pool_context: contextlib.AbstractContextManager[WorkerPool],
) -> Iterator[WorkerPool]:
    """Let a worker be lost that nobody needs any more.

    A service that has ended well has ended for all, and would be waited for in vain.
    """
    ended_well = False
    try:
        with pool_context as crew:
            yield crew
            ended_well = True
    except PrivetError:
        if not ended_well:
            raise


def _raise_no_pool() -> WorkerPool:
    raise AssertionError("there are no shards")


NO_POOL = LazyPool(1, _raise_no_pool)
"""For whoever has no workers."""
