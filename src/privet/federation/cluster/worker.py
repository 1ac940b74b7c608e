"""A worker: its launch spec, its configuration, and the commands that it carries out.

The executor's task carries only the launch spec. The configuration and all commands come over the
channel to the coordinator, on which both ends authenticate with keys that the coordinator has
created for this run and each worker.

The configuration describes where the data is and how its owner reads it. It contains no data except
thresholds and category names, which belong to the same participant as the worker.
"""

from __future__ import annotations

import contextlib
import math
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from privet.arrays import IndexArray
from privet.boosting.model import Feature
from privet.boosting.model_part import LabelUnit
from privet.boosting.prediction import PredictionQuery
from privet.boosting.sharding import run_inference_worker, run_training_worker
from privet.boosting.training import PROTOCOL_TYPES, TrainingData, TrainingSpec
from privet.config.job import Job
from privet.errors import PeerLostError, PeerMisbehavedError, UnavailableError
from privet.federation.session.agreement import Agreement
from privet.federation.session.session import parse_message
from privet.protocols.protocol import AppliedSplits
from privet.runtime.accounting import Meter
from privet.runtime.party import Party
from privet.runtime.run import (
    COORDINATOR_NAME,
    Program,
    make_worker_name,
    measure_peak_rss_mb,
    run_dealer,
    run_party,
)
from privet.runtime.runtime import Runtime
from privet.runtime.workers import CommandLoop
from privet.schema import StrictSchema
from privet.spec.plan import Plan, split_into_shards
from privet.storage.checkpoint import ShardScoreStore
from privet.transport import channel as messages
from privet.transport.channel import Channel, Expected
from privet.transport.connection import CauseRank, map_relatives
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.sockets import SocketChannel
from privet.transport.tls import Identity, create_identity, load_identity


def _check_hex_float(text: str) -> str:
    """Raise ValueError unless a text is a finite number in hexadecimal."""
    try:
        is_finite = math.isfinite(float.fromhex(text))
    except OverflowError:
        is_finite = False
    if not is_finite:
        raise ValueError("no number of floating point")
    return text


_Number = Annotated[str, AfterValidator(_check_hex_float)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class WorkerAddress(StrictSchema):
    """The address of a worker, and the fingerprint of its certificate."""

    host: str
    port: int
    fingerprint: str = ""


class WorkerConfig(StrictSchema):
    """The configuration of one worker."""

    job: dict[str, Any]
    name: str
    """Whose worker it is: a participant's, or a dealer's."""
    group: dict[str, WorkerAddress]
    """The workers of the same shard, by whose they are, in the order of the job."""
    session: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    samples: _Count
    features: list[tuple[str, str]]
    """Names and owners; a dealer's worker knows no names."""
    cut_counts: list[Annotated[int, Field(ge=0, le=255)]] | None
    monotone: list[Annotated[int, Field(ge=-1, le=1)]] | None
    tables: _Count
    """How many are trained already."""
    run: str
    """In which run they were, or this run's name."""
    this_run: str
    folder: str = ""
    """Where checkpoints are kept."""
    data: str = ""
    """The digest of the participant's whole data."""
    start: list[_Number] = Field(default_factory=list)
    scale: _Number | Literal[""] = ""
    """The label's unit, at its holder: floating-point numbers in hexadecimal, so that none is
    rounded."""
    learned: dict[str, Any] = Field(default_factory=dict)
    """What a participant has learned of its whole table, for a worker that reads its own rows."""
    described: dict[str, Any] = Field(default_factory=dict)
    """How the participant describes its table."""
    ids: str = ""
    """The digest of the ids of the worker's rows."""
    command: Literal["train", "predict", "serve"] = "train"
    model: str = ""
    """Where the participant's part of a model is that is to predict."""
    model_tables: _Count = 0
    """How many tables that has."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        """Reject unknown owners of features, and lists that do not match the features."""
        job = Job.parse(self.job)
        if self.name not in (*job.party_names, *job.dealer_names):
            raise ValueError(f"name: {self.name!r} has no part in the job")
        if any(owner not in job.party_names for _, owner in self.features):
            raise ValueError("features: one is of nobody in the job")
        for values in (self.cut_counts, self.monotone):
            if values is not None and len(values) != len(self.features):
                raise ValueError(
                    f"features: there are {len(self.features)}, {len(values)} are told"
                )
        return self

    @classmethod
    def for_member(cls, job: Job, agreement: Agreement, name: str, **values: Any) -> WorkerConfig:
        """Return a config with the values that are the same for all workers of a member."""
        tables, run = agreement.resume_from
        counts, signs = agreement.cut_counts, agreement.monotone
        return cls(
            job=job.model_dump(mode="json"),
            name=name,
            samples=agreement.n_samples,
            features=[(feature.name, feature.owner) for feature in agreement.features],
            cut_counts=None if counts is None else list(counts),
            monotone=None if signs is None else list(signs),
            tables=tables,
            run=run,
            this_run=agreement.run,
            model_tables=agreement.n_model_tables,
            **values,
        )

    def make_label_unit(self) -> LabelUnit | None:
        """Return the label's unit at workers of the label holder; None at the others."""
        if not self.scale:
            return None
        start = tuple(float.fromhex(number) for number in self.start)
        return LabelUnit(start, float.fromhex(self.scale))

    def make_members(self) -> list[Member]:
        """Return the group as members to connect."""
        return [Member(n, p.host, p.port, p.fingerprint) for n, p in self.group.items()]

    def make_training_plan(self) -> tuple[TrainingSpec, Plan]:
        """Return the training spec and the plan."""
        features = tuple(Feature(name, owner) for name, owner in self.features)
        counts = None if self.cut_counts is None else tuple(self.cut_counts)
        signs = None if self.monotone is None else tuple(self.monotone)
        training_spec = Job.parse(self.job).make_training_spec(features, counts, signs)
        return training_spec, training_spec.make_plan(self.samples)

    def make_prediction_query(self, shard: int) -> PredictionQuery:
        """Return the prediction query for the rows of a shard."""
        job = Job.parse(self.job)
        rows = split_into_shards(self.samples, 0, job.shards)[shard].n_rows
        return job.make_prediction_query(rows, self.model_tables)


def encode_label_unit(unit: LabelUnit | None) -> dict[str, Any]:
    """Return the fields of a worker config that contain a label's unit."""
    if unit is None:
        return {}
    return {
        "start": [float(x).hex() for x in unit.initial_scores],
        "scale": float(unit.scale).hex(),
    }


def send_row_numbers(channel: Channel, worker: str, rows: IndexArray | None) -> None:
    """Send a worker the row numbers of its shard; none if it reads no rows."""
    numbers = np.empty(0, dtype=np.uint64) if rows is None else rows.astype(np.uint64)
    channel.send(worker, np.array([len(numbers)], dtype=np.uint64))
    channel.send(worker, numbers)


def receive_row_numbers(channel: Channel, coordinator: str, max_rows: int) -> IndexArray:
    """Receive the row numbers of this worker's shard, at most `max_rows`."""
    (count,) = channel.receive(coordinator, Expected(np.dtype(np.uint64), (1,)))
    if count > max_rows:
        raise PeerMisbehavedError(coordinator, f"announced {count} rows of {max_rows}")
    rows = channel.receive(coordinator, Expected(np.dtype(np.uint64), (int(count),)))
    return rows.astype(np.intp)


@dataclass(frozen=True)
class WorkerLaunch:
    """The launch spec of one worker."""

    shard: int
    coordinator: Member
    session_id: bytes
    key: bytes = field(repr=False)
    certificate: bytes
    host: str
    """Host on which the worker listens for the other workers of its group."""
    advertised_host: str
    """Host at which they reach it; if empty, the name of its machine."""
    port_range: Sequence[int] | None
    """First and last port that it can listen on; None for any port."""
    timeout: float

    @property
    def name(self) -> str:
        """Name of the worker."""
        return make_worker_name(self.shard)

    @contextlib.contextmanager
    def load_identity(self) -> Iterator[Identity]:
        """Yield the worker's identity; its files exist until the context ends."""
        with tempfile.TemporaryDirectory(prefix="privet-worker-") as folder:
            files = Path(folder) / "worker.key", Path(folder) / "worker.crt"
            for path, content in zip(files, (self.key, self.certificate), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            yield load_identity(*files)


def create_temporary_identity(name: str, folder: Path) -> tuple[Identity, bytes, bytes]:
    """Return a new identity for one run, with its key and certificate as bytes to send."""
    identity = create_identity(name, folder, valid_days=30)
    return identity, identity.key_file.read_bytes(), identity.certificate_file.read_bytes()


WorkerRows = TrainingData | AppliedSplits
"""The rows of a participant's worker: data to train on, or the outcomes of a model's splits. In a
service, a worker has no rows, and its coordinator sends the outcomes."""
LoadRows = Callable[[WorkerConfig, int, IndexArray], WorkerRows]
"""Returns the rows of a worker, from its config, shard and row numbers."""


def run_workers(launches: Sequence[WorkerLaunch], load_rows: LoadRows) -> None:
    """Run several workers in threads, as one task of an executor."""
    threads = [
        threading.Thread(target=_run_worker_quietly, args=(launch, load_rows), daemon=True)
        for launch in launches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_worker_quietly(launch: WorkerLaunch, load_rows: LoadRows) -> None:
    """Run a worker without raising: it reports its failure to the coordinator."""
    with contextlib.suppress(Exception):
        run_worker(launch, load_rows)


def run_worker(launch: WorkerLaunch, load_rows: LoadRows) -> None:
    """Run the worker of one shard, until its coordinator shuts it down or a peer is lost."""
    with (
        launch.load_identity() as identity,
        _connect_coordinator(launch, identity) as coordinator_channel,
    ):
        command_loop = CommandLoop(coordinator_channel, COORDINATOR_NAME)
        runtimes: list[Runtime] = []
        try:
            with _listen_in_range(launch.host, launch.port_range) as listener:
                port = listener.getsockname()[1]
                address = WorkerAddress(host=launch.advertised_host or socket.getfqdn(), port=port)
                command_loop.send_result()
                messages.send_message(
                    coordinator_channel, [COORDINATOR_NAME], address.model_dump_json().encode()
                )
                worker_config = parse_message(
                    WorkerConfig,
                    COORDINATOR_NAME,
                    messages.receive_message(coordinator_channel, COORDINATOR_NAME),
                )
                rows = receive_row_numbers(
                    coordinator_channel, COORDINATOR_NAME, worker_config.samples
                )
                channel = _connect_group(
                    worker_config, address, listener, identity, coordinator_channel, launch.timeout
                )
            # Reading can take long, so it starts when the group is connected: the heartbeats of its
            # channels distinguish a slow worker from a lost one.
            load = partial(load_rows, worker_config, launch.shard, rows)
            meter = _run(
                worker_config,
                _make_program(worker_config, launch.shard, command_loop, runtimes, load),
                channel,
            )
        except BaseException as error:
            step = runtimes[0].step_name if runtimes else "start"
            command_loop.send_failure(error, step)
            coordinator_channel.close_best_effort()  # so that the failure is received in any case
            raise
        command_loop.send_meter(meter, measure_peak_rss_mb())


def _connect_group(
    worker_config: WorkerConfig,
    address: WorkerAddress,
    listener: socket.socket,
    identity: Identity,
    coordinator_channel: SocketChannel,
    timeout: float,
) -> SocketChannel:
    """Return the channel to the worker's group, once all of its workers are connected."""
    try:
        links = connect_members(
            worker_config.name,
            worker_config.make_members(),
            listener,
            session_id=bytes.fromhex(worker_config.session),
            identity=identity,
            timeout=timeout,
            on_wait=lambda _, __: coordinator_channel.raise_if_disconnected(),
            relatives=map_relatives([COORDINATOR_NAME], CauseRank.BLAMES_OTHER),
        )
    except PeerLostError as error:
        if error.peer in worker_config.group:
            error.problem += (
                f"; they call ours at {address.host}:{address.port}: can they reach that?"
            )
        raise
    return SocketChannel(worker_config.name, links)


def _connect_coordinator(launch: WorkerLaunch, identity: Identity) -> SocketChannel:
    """Return the channel to the coordinator."""
    local_member = Member(launch.name, "", 0, identity.fingerprint)
    with listen() as listener:
        links = connect_members(
            launch.name,
            [launch.coordinator, local_member],
            listener,
            session_id=launch.session_id,
            identity=identity,
            timeout=launch.timeout,
        )
    return SocketChannel(launch.name, links)


def _listen_in_range(host: str, ports: Sequence[int] | None) -> socket.socket:
    """Return a socket that listens on the first free port of a range, or on any port."""
    if ports is None:
        return listen(host)
    for port in range(ports[0], ports[1] + 1):
        with contextlib.suppress(UnavailableError):
            return listen(host, port)
    raise UnavailableError(
        f"cluster.ports: no port of {host} from {ports[0]} to {ports[1]} is free: every worker "
        "needs one of its own, so allow more"
    )


def _make_program(
    worker_config: WorkerConfig,
    shard: int,
    command_loop: CommandLoop,
    runtimes: list[Runtime],
    load: Callable[[], WorkerRows],
) -> Program:
    """Return the program of the shard's group; it appends its runtime to `runtimes`."""
    train = _make_training(worker_config, shard, command_loop)

    def program(runtime: Runtime, _: None) -> None:
        runtimes.append(runtime)
        has_rows = isinstance(runtime, Party) and worker_config.command != "serve"
        rows = load() if has_rows else None
        if worker_config.command == "train":
            assert not isinstance(rows, AppliedSplits)
            train(runtime, rows)
        else:
            assert not isinstance(rows, TrainingData)
            if worker_config.command == "predict":
                rows = rows or AppliedSplits(
                    worker_config.make_prediction_query(shard).shape, None, None
                )
            run_inference_worker(
                runtime, PROTOCOL_TYPES[Job.parse(worker_config.job).protocol], rows, command_loop
            )

    return program


def _make_training(
    worker_config: WorkerConfig, shard: int, command_loop: CommandLoop
) -> Callable[[Runtime, TrainingData | None], None]:
    job = Job.parse(worker_config.job)
    score_store = ShardScoreStore(Path(worker_config.folder), job.digest, worker_config.data, shard)

    def save_scores(tables: int, values: npt.NDArray[np.uint64]) -> None:
        score_store.save(tables, worker_config.this_run, values)

    def run_training(runtime: Runtime, data: TrainingData | None) -> None:
        training_spec, plan = worker_config.make_training_plan()
        initial_scores = None
        if data is not None and worker_config.tables:
            initial_scores = score_store.load(worker_config.tables, worker_config.run)
        run_training_worker(
            runtime,
            training_spec,
            plan,
            plan.split_into_shards()[shard],
            data,
            worker_config.make_label_unit(),
            command_loop,
            scores=initial_scores,
            on_scores=None if data is None else save_scores,
        )

    return run_training


def _run(worker_config: WorkerConfig, program: Program, channel: SocketChannel) -> Meter:
    """Run a program as the worker of a participant or a dealer; return its meter."""
    job = Job.parse(worker_config.job)
    names, dealers = job.party_names, job.dealer_names
    if worker_config.name in dealers:
        return run_dealer(program, names, channel, dealers).meter
    index = names.index(worker_config.name)
    return run_party(program, index, names, None, channel, dealers=dealers).meter
