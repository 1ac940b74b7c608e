"""The worker pool of a coordinator, for a training run, a batch or a service.

Every coordinator, of a participant or a dealer, starts its own workers on its own infrastructure.
The coordinators exchange the addresses and fingerprints of their workers on the session's channel,
so that no foreign worker can enter a group.

Small batches use no workers, so they are as fast as without shards, and a service starts without
waiting for a cluster. Workers of a service have no rows and no model: for each batch, their
coordinator sends them the outcomes of the splits.
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

_CONNECT_SECONDS = 60.0
"""Seconds for workers to connect to their coordinator, and to each other."""
_FAILURE_GRACE_SECONDS = 0.5
"""Seconds to wait for a worker's own report of its failure, after a peer has detected it."""


@dataclass
class WorkerPool:
    """The workers of one member."""

    worker_handles: list[WorkerHandle]
    """The coordinator's handle of each worker."""
    meters: list[Meter] = field(default_factory=list)
    """Meter of each worker, after shutdown."""
    peak_rss_mb: float | None = None
    """Largest peak memory of a worker process, after shutdown; None for workers in this process."""


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
    """Start the local workers, and yield them once they have their configs and row numbers.

    `load_local` loads the rows of workers in this process, `make_config` makes the config of a
    worker from its shard, group and session, and `get_rows` returns the row numbers of a shard in
    the local table. At the end, the workers are shut down; after a failure, they detect that their
    coordinator has disconnected.
    """
    wait_reporter = WaitReporter(member.emit)

    def report_waiting(text: str, missing: Sequence[str]) -> None:
        channel.raise_if_disconnected()  # a peer can be lost meanwhile
        wait_reporter(text, missing)

    shards = range(member.job.shards)
    listen_address = parse_address(cluster.door, lowest=0) if cluster.door else (member.host, 0)
    with (
        tempfile.TemporaryDirectory(prefix="privet-head-") as folder,
        listen(*listen_address) as listener,
    ):
        identity, _, _ = create_temporary_identity(COORDINATOR_NAME, Path(folder))
        coordinator = Member(
            COORDINATOR_NAME, listen_address[0], listener.getsockname()[1], identity.fingerprint
        )
        session_id = _derive_session_id(run, member.name)
        launches, members = list[WorkerLaunch](), [coordinator]
        for shard in shards:
            worker_identity, key, certificate = create_temporary_identity(
                make_worker_name(shard), Path(folder)
            )
            members.append(Member(make_worker_name(shard), "", 0, worker_identity.fingerprint))
            launches.append(
                WorkerLaunch(
                    shard=shard,
                    coordinator=coordinator,
                    session_id=session_id,
                    key=key,
                    certificate=certificate,
                    host=member.host if cluster.scheduler is None else "0.0.0.0",  # noqa: S104
                    advertised_host=cluster.advertise or _get_advertised_host(member, cluster),
                    port_range=cluster.ports,
                    timeout=_CONNECT_SECONDS,
                )
            )
        executor.submit(launches, load_local)
        try:
            links = connect_members(
                COORDINATOR_NAME,
                members,
                listener,
                session_id=session_id,
                identity=identity,
                timeout=_CONNECT_SECONDS,
                on_wait=report_waiting,
            )
        except PeerLostError as error:
            if error.peer not in channel.peers:
                error.display_name = f"our workers, in {executor.description}"
            raise
        listener.close()  # all workers are connected
        with SocketChannel(COORDINATOR_NAME, links) as worker_channel:
            worker_channel.current_step = lambda: channel.current_step()
            worker_channel.linked_channel = channel
            pool = WorkerPool(
                [WorkerHandle(worker_channel, make_worker_name(shard), shard) for shard in shards]
            )
            with _raise_first_failure(pool.worker_handles, executor):
                groups = _exchange_addresses(
                    channel, member, _receive_addresses(pool.worker_handles, members[1:])
                )
                for shard in shards:
                    config = make_config(
                        shard, groups[shard], _derive_session_id(run, f"shard {shard}").hex()
                    )
                    content = config.model_dump_json().encode()
                    messages.send_message(worker_channel, [make_worker_name(shard)], content)
                    send_row_numbers(worker_channel, make_worker_name(shard), get_rows(shard))
                text = f"{len(shards)} workers, in {executor.description}"
                member.emit(
                    Event("workers", text, {"workers": len(shards), "where": executor.description})
                )
                yield pool
                shut_down_workers(pool.worker_handles)
                pool.meters = [worker.receive_meter() for worker in pool.worker_handles]
                if executor.is_remote:
                    pool.peak_rss_mb = max(worker.peak_rss_mb for worker in pool.worker_handles)


@contextlib.contextmanager
def _raise_first_failure(worker_handles: list[WorkerHandle], executor: Executor) -> Iterator[None]:
    """After a peer error, raise the first failure, as far as it can be found within a moment.

    When one worker is lost, its coordinator ends, and then all other workers and coordinators: the
    first error received need not be the cause.
    """
    try:
        yield
    except PeerError as error:
        first = _find_first_failure(error, worker_handles)
        for worker in worker_handles:
            if first.peer == worker.name and isinstance(first, PeerError):
                if executor_failure := executor.describe_failure():
                    raise UnavailableError(
                        f"cluster.scheduler: {executor_failure}: {first}"
                    ) from None
                first.display_name = (
                    f"our worker for shard {worker.shard_number}, in {executor.description}"
                )
        raise first from None


def _find_first_failure(error: PeerError, worker_handles: list[WorkerHandle]) -> PrivetError:
    """Return the failure that is the least likely to be a consequence of others.

    A local worker's own report of its failure has precedence over its disconnection.
    """
    failures: dict[str | None, PrivetError] = {}
    deadline = time.monotonic() + _FAILURE_GRACE_SECONDS
    while len(failures) < len(worker_handles) and time.monotonic() < deadline:
        for worker in worker_handles:
            if worker.name not in failures and (failure := worker.poll_failure()) is not None:
                failures[worker.name] = failure
        time.sleep(_FAILURE_GRACE_SECONDS / 20)
    worker_names = {worker.name for worker in worker_handles}

    def rank_failure(failure: PrivetError) -> int:
        if not isinstance(failure, PeerError):
            return -2  # the cause is in a local worker, which reports it
        return -1 if failure.peer in worker_names else failure.cause_rank

    return min([*([] if error.peer in failures else [error]), *failures.values()], key=rank_failure)


def _receive_addresses(
    worker_handles: list[WorkerHandle], members: list[Member]
) -> list[WorkerAddress]:
    """Return the addresses and fingerprints of workers; raise if a worker cannot listen."""
    addresses = []
    for worker, member in zip(worker_handles, members, strict=True):
        worker.receive_response([])
        address = parse_message(
            WorkerAddress, member.name, messages.receive_message(worker.channel, member.name)
        )
        addresses.append(address.model_copy(update={"fingerprint": member.fingerprint}))
    return addresses


def _get_advertised_host(member: LocalMember, cluster: ClusterConfig) -> str:
    """Return the host at which peers reach local workers; empty if a scheduler places them."""
    if cluster.scheduler is not None:
        return ""
    return parse_address(member.job.get_entry(member.name).address)[0]


def _exchange_addresses(
    channel: Channel, local_member: LocalMember, local_addresses: list[WorkerAddress]
) -> list[dict[str, WorkerAddress]]:
    """Exchange worker addresses with the peers; return the group of each shard, in job order."""
    content = json.dumps([address.model_dump() for address in local_addresses]).encode()
    received = messages.exchange_messages(channel, dict.fromkeys(channel.peers, content))
    addresses = {local_member.name: local_addresses}
    for peer, message in received.items():
        try:
            peer_addresses = [WorkerAddress.model_validate(each) for each in json.loads(message)]
        except (ValueError, TypeError, RecursionError):
            raise PeerMisbehavedError(peer, "stated workers that are none") from None
        if len(peer_addresses) != len(local_addresses):
            raise PeerMisbehavedError(
                peer, f"stated {len(peer_addresses)} workers for {len(local_addresses)} shards"
            )
        addresses[peer] = peer_addresses
    order = [member.name for member in local_member.job.make_members()]
    return [
        {name: addresses[name][shard] for name in order} for shard in range(len(local_addresses))
    ]


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
    """Start a participant's workers for training on all of its rows, or on the common rows."""
    shards, cluster = plan.split_into_shards(), config.cluster
    row_order = order_rows(plan.n_rows, plan.params)
    table_rows = row_order if common_rows is None else common_rows[row_order]
    encoding = TableEncodingRecord.from_encoding(
        TableEncoding.from_prepared(state.prepared)
    ).model_dump(mode="json")
    table_spec = config.data.model_dump(mode="json")

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
            learned=encoding,
            described=table_spec,
            ids=ids.digest().hex(),
            **encode_label_unit(unit),
        )

    def get_rows(shard: int) -> IndexArray:
        return table_rows[shards[shard].positions(plan.n_samples)]

    return start_pool(
        member, channel, agreement.run, cluster, executor, load_local, make_config, get_rows
    )


def load_training_rows(worker_config: WorkerConfig, shard: int, rows: IndexArray) -> TrainingData:
    """Read a worker's rows, and prepare them with the encoding of its coordinator."""
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
    """The source of a batch, for workers that read their own rows."""

    table_spec: TableSpec
    part_path: Path
    """Path of the local part of the model to predict with."""
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
    """Start a participant's workers to predict all rows of a frame, in its order."""
    shards = split_into_shards(frame.n_samples, 0, member.job.shards)

    def load_local(worker_config: WorkerConfig, shard: int, _: IndexArray) -> AppliedSplits:
        columns = frame.columns[:, shards[shard].positions(frame.n_samples)]
        return apply_splits(
            worker_config.make_prediction_query(shard), member.job.party_names, part, columns
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
        positions = shards[shard].positions(frame.n_samples)
        return positions if common_rows is None else common_rows[positions]

    return start_pool(
        member, channel, agreement.run, batch.cluster, executor, load_local, make_config, get_rows
    )


def load_prediction_rows(
    worker_config: WorkerConfig, shard: int, rows: IndexArray
) -> AppliedSplits:
    """Read a worker's rows to predict, and apply its participant's splits to them."""
    job, part_file = Job.parse(worker_config.job), load_part(Path(worker_config.model))
    table_spec = TableSpec.parse(worker_config.described)
    table_spec = table_spec.model_copy(update={"label": None, "weight": None})
    ordered, positions = np.unique(rows, return_inverse=True)
    frame = read_selected_rows(
        table_spec, ordered, part_file.encoders, None, job.ids.rules_by_part
    ).collect()
    require_same_rows(
        table_spec.display_name, frame.ids, positions, bytes.fromhex(worker_config.ids)
    )
    columns = encode_frame(frame, part_file.encoders).columns[:, positions]
    return apply_splits(
        worker_config.make_prediction_query(shard), job.party_names, part_file.part, columns
    )


def start_dataless_pool(
    member: LocalMember,
    channel: SocketChannel,
    agreement: Agreement,
    cluster: ClusterConfig,
    executor: Executor,
) -> contextlib.AbstractContextManager[WorkerPool]:
    """Start workers without rows: those of a dealer, and those of any member of a service.

    A dealer's workers know no more than the dealer: no feature names, and no data.
    """

    def make_config(shard: int, group: dict[str, WorkerAddress], session: str) -> WorkerConfig:
        command = agreement.command
        return WorkerConfig.for_member(
            member.job, agreement, member.name, group=group, session=session, command=command
        )

    run, rows = agreement.run, lambda _: None
    return start_pool(member, channel, run, cluster, executor, load_no_rows, make_config, rows)


def load_no_rows(worker_config: WorkerConfig, shard: int, rows: IndexArray) -> TrainingData:
    """Raise AssertionError: dataless workers load no rows."""
    raise AssertionError(f"{worker_config.name} has no rows")


_HEARTBEAT_SECONDS = 1.0


class LazyPool:
    """The workers of one member in one session, started on first use."""

    def __init__(self, shards: int, start: Callable[[], WorkerPool]) -> None:
        """Hold one worker for each shard; all members start theirs at the same time."""
        self._shards = shards
        self._start = start
        self._pool: WorkerPool | None = None
        self._next_heartbeat = 0.0

    def get_batch_workers(self, rows: int) -> BatchWorkers | None:
        """Return the workers for a batch of `rows` rows; None if the coordinators predict it."""
        return (
            BatchWorkers(self._shards, self.get_workers())
            if uses_shards(self._shards, rows)
            else None
        )

    def get_workers(self) -> Sequence[WorkerHandle]:
        """Return all workers, and start them on the first call."""
        if self._pool is None:
            self._pool = self._start()
        return self._pool.worker_handles

    def check_workers(self) -> None:
        """Send heartbeats to the local workers; raise PeerLostError if one is known to be lost."""
        if self._pool is None or time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + _HEARTBEAT_SECONDS
        for worker in self._pool.worker_handles:
            worker.send_command(Command(HEARTBEAT_COMMAND))

    def collect_meters(self) -> list[Meter]:
        """Return the meter of each started worker."""
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
    """Return a lazy pool of dataless workers in a cluster, which run until the stack is closed.

    Without `executor`, one is started together with the workers.
    """

    def start() -> WorkerPool:
        pool_executor = executor or stack.enter_context(make_executor(cluster, load_no_rows))
        pool_context = start_dataless_pool(member, channel, agreement, cluster, pool_executor)
        return stack.enter_context(
            _ignore_late_failures(pool_context) if agreement.command == "serve" else pool_context
        )

    return LazyPool(member.job.shards, start)


@contextlib.contextmanager
def _ignore_late_failures(
    pool_context: contextlib.AbstractContextManager[WorkerPool],
) -> Iterator[WorkerPool]:
    """Ignore failures of workers after a service has ended.

    A service that has ended normally has ended for all members: an error would only make the
    caller try to reconnect.
    """
    ended_well = False
    try:
        with pool_context as pool:
            yield pool
            ended_well = True
    except PrivetError:
        if not ended_well:
            raise


def _raise_no_pool() -> WorkerPool:
    raise AssertionError("there are no shards")


NO_POOL = LazyPool(1, _raise_no_pool)
"""Stands for the pool of a member without workers."""
