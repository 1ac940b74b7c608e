"""A worker: its launch spec, its configuration, and the commands that it carries out.

Of data it says where they are and how their owner reads them, never what they hold, but for
thresholds and names of categories: these are the participant's own, and the worker is, too.

It travels with the task that an engine places. All else comes over the channel to the head, which
both ends of prove to be who they are: by keys that the head made for this run, and for each worker.
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
    """Refuse what is no finite number in hexadecimal."""
    try:
        good = math.isfinite(float.fromhex(text))
    except OverflowError:
        good = False
    if not good:
        raise ValueError("no number of floating point")
    return text


_Number = Annotated[str, AfterValidator(_check_hex_float)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class WorkerAddress(StrictSchema):
    """Where a worker listens, and who it must prove to be."""

    host: str
    port: int
    fingerprint: str = ""


class WorkerConfig(StrictSchema):
    """What one worker is told."""

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
        """Refuse features of strangers, and more or less told of features than there are."""
        job = Job.parse(self.job)
        if self.name not in (*job.party_names, *job.dealer_names):
            raise ValueError(f"name: {self.name!r} has no part in the job")
        if any(owner not in job.party_names for _, owner in self.features):
            raise ValueError("features: one is of nobody in the job")
        for told in (self.cut_counts, self.monotone):
            if told is not None and len(told) != len(self.features):
                raise ValueError(f"features: there are {len(self.features)}, {len(told)} are told")
        return self

    @classmethod
    def for_member(cls, job: Job, agreement: Agreement, name: str, **values: Any) -> WorkerConfig:
        """Return what is the same for all workers of somebody."""
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
        """Return the label's unit; None, to all but its holder."""
        if not self.scale:
            return None
        start = tuple(float.fromhex(number) for number in self.start)
        return LabelUnit(start, float.fromhex(self.scale))

    def make_members(self) -> list[Member]:
        """Return the group, as connecting takes it."""
        return [Member(n, p.host, p.port, p.fingerprint) for n, p in self.group.items()]

    def make_training_plan(self) -> tuple[TrainingSpec, Plan]:
        """Return what is trained."""
        features = tuple(Feature(name, owner) for name, owner in self.features)
        counts = None if self.cut_counts is None else tuple(self.cut_counts)
        signs = None if self.monotone is None else tuple(self.monotone)
        federation = Job.parse(self.job).make_training_spec(features, counts, signs)
        return federation, federation.make_plan(self.samples)

    def make_prediction_query(self, shard: int) -> PredictionQuery:
        """Return what is predicted of the rows of a shard."""
        job = Job.parse(self.job)
        rows = split_into_shards(self.samples, 0, job.shards)[shard].n_rows
        return job.make_prediction_query(rows, self.model_tables)


def encode_label_unit(unit: LabelUnit | None) -> dict[str, Any]:
    """Return the fields of a brief that hold a label's unit."""
    if unit is None:
        return {}
    return {
        "start": [float(x).hex() for x in unit.initial_scores],
        "scale": float(unit.scale).hex(),
    }


def send_row_numbers(channel: Channel, worker: str, rows: IndexArray | None) -> None:
    """Tell a worker which rows of the table are its own, if it is to read them."""
    numbers = np.empty(0, dtype=np.uint64) if rows is None else rows.astype(np.uint64)
    channel.send(worker, np.array([len(numbers)], dtype=np.uint64))
    channel.send(worker, numbers)


def receive_row_numbers(channel: Channel, coordinator: str, max_rows: int) -> IndexArray:
    """Return which rows of the table are ours: at most so many."""
    (count,) = channel.receive(coordinator, Expected(np.dtype(np.uint64), (1,)))
    if count > max_rows:
        raise PeerMisbehavedError(coordinator, f"announced {count} rows of {max_rows}")
    rows = channel.receive(coordinator, Expected(np.dtype(np.uint64), (int(count),)))
    return rows.astype(np.intp)


@dataclass(frozen=True)
class WorkerLaunch:
    """What one worker is called with."""

    shard: int
    coordinator: Member
    session_id: bytes
    key: bytes = field(repr=False)
    certificate: bytes
    host: str
    """What it listens on, for the other workers of its group."""
    advertised_host: str
    """The host under which they reach it; nothing: the name of the machine that it is on."""
    port_range: Sequence[int] | None
    """The first and the last port that it may listen on, if not all will do."""
    timeout: float

    @property
    def name(self) -> str:
        """What the worker is called."""
        return make_worker_name(self.shard)

    @contextlib.contextmanager
    def load_identity(self) -> Iterator[Identity]:
        """Yield the worker's identity, whose files are there for as long."""
        with tempfile.TemporaryDirectory(prefix="privet-worker-") as folder:
            files = Path(folder) / "worker.key", Path(folder) / "worker.crt"
            for path, content in zip(files, (self.key, self.certificate), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            yield load_identity(*files)


def create_temporary_identity(name: str, folder: Path) -> tuple[Identity, bytes, bytes]:
    """Return an identity that lasts for a run, and its key and certificate, to be sent."""
    made = create_identity(name, folder, valid_days=30)
    return made, made.key_file.read_bytes(), made.certificate_file.read_bytes()


WorkerRows = TrainingData | AppliedSplits
"""What a participant's worker has of its rows: to train on, or as a model's tests come out. In a
service it has none, and hears from its head what comes of tests."""
LoadRows = Callable[[WorkerConfig, int, IndexArray], WorkerRows]
"""Returns that, by a shard's number, and its rows of the table."""


def run_workers(launches: Sequence[WorkerLaunch], load_rows: LoadRows) -> None:
    """Work on several shards at once, in threads: what one task of an engine does."""
    threads = [
        threading.Thread(target=_run_worker_quietly, args=(each, load_rows), daemon=True)
        for each in launches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_worker_quietly(launch: WorkerLaunch, load_rows: LoadRows) -> None:
    """Work, and leave it to the head to say what went wrong: it is told."""
    with contextlib.suppress(Exception):
        run_worker(launch, load_rows)


def run_worker(launch: WorkerLaunch, load_rows: LoadRows) -> None:
    """Work on one shard, until the head has no more to do, or somebody is lost."""
    with launch.load_identity() as identity, _connect_coordinator(launch, identity) as link:
        orders = CommandLoop(link, COORDINATOR_NAME)
        where: list[Runtime] = []
        try:
            with _listen_in_range(launch.host, launch.port_range) as listener:
                port = listener.getsockname()[1]
                place = WorkerAddress(host=launch.advertised_host or socket.getfqdn(), port=port)
                orders.send_result()
                messages.send_message(link, [COORDINATOR_NAME], place.model_dump_json().encode())
                brief = parse_message(
                    WorkerConfig, COORDINATOR_NAME, messages.receive_message(link, COORDINATOR_NAME)
                )
                rows = receive_row_numbers(link, COORDINATOR_NAME, brief.samples)
                channel = _connect_group(brief, place, listener, identity, link, launch.timeout)
            # Reading takes as long as it takes, so it comes when the group is there: its channels
            # tell a slow worker from a lost one.
            read = partial(load_rows, brief, launch.shard, rows)
            meter = _run(brief, _make_program(brief, launch.shard, orders, where, read), channel)
        except BaseException as error:
            step = where[0].step_name if where else "start"
            orders.send_failure(error, step)
            link.close_best_effort()  # so that our head hears it, whatever it does now
            raise
        orders.send_meter(meter, measure_peak_rss_mb())


def _connect_group(
    worker_config: WorkerConfig,
    address: WorkerAddress,
    listener: socket.socket,
    identity: Identity,
    link: SocketChannel,
    timeout: float,
) -> SocketChannel:
    """Return the channel to our group, once all of it are there."""
    try:
        links = connect_members(
            worker_config.name,
            worker_config.make_members(),
            listener,
            session_id=bytes.fromhex(worker_config.session),
            identity=identity,
            timeout=timeout,
            on_wait=lambda _, __: link.raise_if_disconnected(),
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
    """Return the channel to our head."""
    us = Member(launch.name, "", 0, identity.fingerprint)
    with listen() as nobody_calls:
        links = connect_members(
            launch.name,
            [launch.coordinator, us],
            nobody_calls,
            session_id=launch.session_id,
            identity=identity,
            timeout=launch.timeout,
        )
    return SocketChannel(launch.name, links)


def _listen_in_range(host: str, ports: Sequence[int] | None) -> socket.socket:
    """Return a socket that listens on any port that we may use."""
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
    started: list[Runtime],
    load: Callable[[], WorkerRows],
) -> Program:
    """Return what we run in our shard's group; where we are in it is told there."""
    train = _make_training(worker_config, shard, command_loop)

    def program(runtime: Runtime, _: None) -> None:
        started.append(runtime)
        reads = isinstance(runtime, Party) and worker_config.command != "serve"
        rows = load() if reads else None
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
    scores = ShardScoreStore(Path(worker_config.folder), job.digest, worker_config.data, shard)

    def save_scores(tables: int, values: npt.NDArray[np.uint64]) -> None:
        scores.save(tables, worker_config.this_run, values)

    def run_training(runtime: Runtime, own: TrainingData | None) -> None:
        federation, plan = worker_config.make_training_plan()
        earlier = None
        if own is not None and worker_config.tables:
            earlier = scores.load(worker_config.tables, worker_config.run)
        run_training_worker(
            runtime,
            federation,
            plan,
            plan.split_into_shards()[shard],
            own,
            worker_config.make_label_unit(),
            command_loop,
            scores=earlier,
            on_scores=None if own is None else save_scores,
        )

    return run_training


def _run(worker_config: WorkerConfig, program: Program, channel: SocketChannel) -> Meter:
    """Run a program as a participant's worker, or a dealer's; return what was metered."""
    job = Job.parse(worker_config.job)
    names, dealers = job.party_names, job.dealer_names
    if worker_config.name in dealers:
        return run_dealer(program, names, channel, dealers).meter
    index = names.index(worker_config.name)
    return run_party(program, index, names, None, channel, dealers=dealers).meter
