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
from privet.boosting.prediction import Query
from privet.boosting.sharding import infer_shard, train_shard
from privet.boosting.training import SUITES, Federation, PartyData
from privet.config.job import Job
from privet.errors import PeerLostError, PeerMisbehavedError, UnavailableError
from privet.federation.session.agreement import Agreement
from privet.federation.session.session import parse
from privet.protocols.protocol import AppliedTests
from privet.runtime.accounting import Meter
from privet.runtime.party import Party
from privet.runtime.run import HEAD, Program, peak_rss_mb, run_dealer, run_party, worker_name
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Worker
from privet.schema import Checked
from privet.spec.plan import Plan, cut_rows
from privet.storage.checkpoint import ShardScores
from privet.transport import channel as messages
from privet.transport.channel import Channel, Expected
from privet.transport.connection import Doubt, kin_of
from privet.transport.rendezvous import Member, connect, listen
from privet.transport.sockets import SocketChannel
from privet.transport.tls import Identity, create_identity, load_identity


def _number(text: str) -> str:
    """Refuse what is no finite number in hexadecimal."""
    try:
        good = math.isfinite(float.fromhex(text))
    except OverflowError:
        good = False
    if not good:
        raise ValueError("no number of floating point")
    return text


_Number = Annotated[str, AfterValidator(_number)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class Place(Checked):
    """Where a worker listens, and who it must prove to be."""

    host: str
    port: int
    fingerprint: str = ""


class Brief(Checked):
    """What one worker is told."""

    job: dict[str, Any]
    name: str
    """Whose worker it is: a participant's, or a dealer's."""
    group: dict[str, Place]
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
    def _fits(self) -> Self:
        """Refuse features of strangers, and more or less told of features than there are."""
        job = Job.parse(self.job)
        if self.name not in (*job.names, *job.dealer_names):
            raise ValueError(f"name: {self.name!r} has no part in the job")
        if any(owner not in job.names for _, owner in self.features):
            raise ValueError("features: one is of nobody in the job")
        for told in (self.cut_counts, self.monotone):
            if told is not None and len(told) != len(self.features):
                raise ValueError(f"features: there are {len(self.features)}, {len(told)} are told")
        return self

    @classmethod
    def of(cls, job: Job, agreement: Agreement, name: str, **values: Any) -> Brief:
        """Return what is the same for all workers of somebody."""
        tables, run = agreement.stage
        counts, signs = agreement.cut_counts, agreement.monotone
        return cls(
            job=job.model_dump(mode="json"),
            name=name,
            samples=agreement.samples,
            features=[(feature.name, feature.owner) for feature in agreement.features],
            cut_counts=None if counts is None else list(counts),
            monotone=None if signs is None else list(signs),
            tables=tables,
            run=run,
            this_run=agreement.run,
            model_tables=agreement.tables,
            **values,
        )

    def unit(self) -> LabelUnit | None:
        """Return the label's unit; None, to all but its holder."""
        if not self.scale:
            return None
        start = tuple(float.fromhex(number) for number in self.start)
        return LabelUnit(start, float.fromhex(self.scale))

    def members(self) -> list[Member]:
        """Return the group, as connecting takes it."""
        return [Member(n, p.host, p.port, p.fingerprint) for n, p in self.group.items()]

    def training(self) -> tuple[Federation, Plan]:
        """Return what is trained."""
        features = tuple(Feature(name, owner) for name, owner in self.features)
        counts = None if self.cut_counts is None else tuple(self.cut_counts)
        signs = None if self.monotone is None else tuple(self.monotone)
        federation = Job.parse(self.job).federation(features, counts, signs)
        return federation, federation.plan(self.samples)

    def query(self, shard: int) -> Query:
        """Return what is predicted of the rows of a shard."""
        job = Job.parse(self.job)
        rows = cut_rows(self.samples, 0, job.shards)[shard].n_rows
        return job.query(rows, self.model_tables)


def unit_fields(unit: LabelUnit | None) -> dict[str, Any]:
    """Return the fields of a brief that hold a label's unit."""
    if unit is None:
        return {}
    return {"start": [float(x).hex() for x in unit.start], "scale": float(unit.scale).hex()}


def send_rows(channel: Channel, worker: str, rows: IndexArray | None) -> None:
    """Tell a worker which rows of the table are its own, if it is to read them."""
    numbers = np.empty(0, dtype=np.uint64) if rows is None else rows.astype(np.uint64)
    channel.send(worker, np.array([len(numbers)], dtype=np.uint64))
    channel.send(worker, numbers)


def receive_rows(channel: Channel, head: str, most: int) -> IndexArray:
    """Return which rows of the table are ours: at most so many."""
    (count,) = channel.receive(head, Expected(np.dtype(np.uint64), (1,)))
    if count > most:
        raise PeerMisbehavedError(head, f"announced {count} rows of {most}")
    rows = channel.receive(head, Expected(np.dtype(np.uint64), (int(count),)))
    return rows.astype(np.intp)


@dataclass(frozen=True)
class Summons:
    """What one worker is called with."""

    shard: int
    head: Member
    session: bytes
    key: bytes = field(repr=False)
    certificate: bytes
    host: str
    """What it listens on, for the other workers of its group."""
    advertise: str
    """The host under which they reach it; nothing: the name of the machine that it is on."""
    ports: Sequence[int] | None
    """The first and the last port that it may listen on, if not all will do."""
    wait: float

    @property
    def name(self) -> str:
        """What the worker is called."""
        return worker_name(self.shard)

    @contextlib.contextmanager
    def identity(self) -> Iterator[Identity]:
        """Yield the worker's identity, whose files are there for as long."""
        with tempfile.TemporaryDirectory(prefix="privet-worker-") as folder:
            files = Path(folder) / "worker.key", Path(folder) / "worker.crt"
            for path, content in zip(files, (self.key, self.certificate), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            yield load_identity(*files)


def make_identity(name: str, folder: Path) -> tuple[Identity, bytes, bytes]:
    """Return an identity that lasts for a run, and its key and certificate, to be sent."""
    made = create_identity(name, folder, valid_days=30)
    return made, made.key_file.read_bytes(), made.certificate_file.read_bytes()


Rows = PartyData | AppliedTests
"""What a participant's worker has of its rows: to train on, or as a model's tests come out. In a
service it has none, and hears from its head what comes of tests."""
Load = Callable[[Brief, int, IndexArray], Rows]
"""Returns that, by a shard's number, and its rows of the table."""


def work_on_all(summonses: Sequence[Summons], load: Load) -> None:
    """Work on several shards at once, in threads: what one task of an engine does."""
    threads = [
        threading.Thread(target=_quietly, args=(each, load), daemon=True) for each in summonses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _quietly(summons: Summons, load: Load) -> None:
    """Work, and leave it to the head to say what went wrong: it is told."""
    with contextlib.suppress(Exception):
        work(summons, load)


def work(summons: Summons, load: Load) -> None:
    """Work on one shard, until the head has no more to do, or somebody is lost."""
    with summons.identity() as identity, _link(summons, identity) as link:
        orders = Worker(link, HEAD)
        where: list[Runtime] = []
        try:
            with _listening(summons.host, summons.ports) as listener:
                port = listener.getsockname()[1]
                place = Place(host=summons.advertise or socket.getfqdn(), port=port)
                orders.done()
                messages.send(link, [HEAD], place.model_dump_json().encode())
                brief = parse(Brief, HEAD, messages.receive(link, HEAD))
                rows = receive_rows(link, HEAD, brief.samples)
                channel = _meet(brief, place, listener, identity, link, summons.wait)
            # Reading takes as long as it takes, so it comes when the group is there: its channels
            # tell a slow worker from a lost one.
            read = partial(load, brief, summons.shard, rows)
            meter = _run(brief, _program(brief, summons.shard, orders, where, read), channel)
        except BaseException as error:
            step = where[0].step_name if where else "start"
            orders.failed(error, step)
            link.leave()  # so that our head hears it, whatever it does now
            raise
        orders.metered(meter, peak_rss_mb())


def _meet(
    brief: Brief,
    place: Place,
    listener: socket.socket,
    identity: Identity,
    link: SocketChannel,
    wait: float,
) -> SocketChannel:
    """Return the channel to our group, once all of it are there."""
    try:
        links = connect(
            brief.name,
            brief.members(),
            listener,
            session=bytes.fromhex(brief.session),
            identity=identity,
            timeout=wait,
            on_wait=lambda _, __: link.refuse_lost(),
            kin=kin_of([HEAD], Doubt.BLAMES),
        )
    except PeerLostError as error:
        if error.peer in brief.group:
            error.problem += f"; they call ours at {place.host}:{place.port}: can they reach that?"
        raise
    return SocketChannel(brief.name, links)


def _link(summons: Summons, identity: Identity) -> SocketChannel:
    """Return the channel to our head."""
    us = Member(summons.name, "", 0, identity.fingerprint)
    with listen() as nobody_calls:
        links = connect(
            summons.name,
            [summons.head, us],
            nobody_calls,
            session=summons.session,
            identity=identity,
            timeout=summons.wait,
        )
    return SocketChannel(summons.name, links)


def _listening(host: str, ports: Sequence[int] | None) -> socket.socket:
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


def _program(
    brief: Brief, shard: int, orders: Worker, where: list[Runtime], read: Callable[[], Rows]
) -> Program:
    """Return what we run in our shard's group; where we are in it is told there."""
    train = _training(brief, shard, orders)

    def program(runtime: Runtime, _: None) -> None:
        where.append(runtime)
        reads = isinstance(runtime, Party) and brief.command != "serve"
        rows = read() if reads else None
        if brief.command == "train":
            assert not isinstance(rows, AppliedTests)
            train(runtime, rows)
        else:
            assert not isinstance(rows, PartyData)
            if brief.command == "predict":
                rows = rows or AppliedTests(brief.query(shard).shape, None, None)
            infer_shard(runtime, SUITES[Job.parse(brief.job).protocol], rows, orders)

    return program


def _training(
    brief: Brief, shard: int, orders: Worker
) -> Callable[[Runtime, PartyData | None], None]:
    job = Job.parse(brief.job)
    scores = ShardScores(Path(brief.folder), job.digest, brief.data, shard)

    def keep(tables: int, values: npt.NDArray[np.uint64]) -> None:
        scores.save(tables, brief.this_run, values)

    def training(runtime: Runtime, own: PartyData | None) -> None:
        federation, plan = brief.training()
        earlier = None
        if own is not None and brief.tables:
            earlier = scores.load(brief.tables, brief.run)
        train_shard(
            runtime,
            federation,
            plan,
            plan.cut()[shard],
            own,
            brief.unit(),
            orders,
            scores=earlier,
            keep=None if own is None else keep,
        )

    return training


def _run(brief: Brief, program: Program, channel: SocketChannel) -> Meter:
    """Run a program as a participant's worker, or a dealer's; return what was metered."""
    job = Job.parse(brief.job)
    names, dealers = job.names, job.dealer_names
    if brief.name in dealers:
        return run_dealer(program, names, channel, dealers).meter
    index = names.index(brief.name)
    return run_party(program, index, names, None, channel, dealers=dealers).meter
