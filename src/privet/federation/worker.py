"""What a worker does: it reaches its head, meets its group, and carries out orders."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privet.arrays import IndexArray
from privet.boosting.federation import SUITES, PartyData
from privet.boosting.shards import infer_shard, train_shard
from privet.errors import PeerLostError, UnavailableError
from privet.federation.brief import Brief, Place, receive_rows
from privet.federation.differences import parse
from privet.federation.summons import Summons
from privet.files.job import Job
from privet.files.shard_scores import ShardScores
from privet.runtime.meter import Meter
from privet.runtime.orders import Worker
from privet.runtime.party import Party
from privet.runtime.roles import HEAD, Program, peak_rss_mb, run_dealer, run_party
from privet.runtime.runtime import Runtime
from privet.suites.suite import AppliedTests
from privet.transport import messages
from privet.transport.identity import Identity
from privet.transport.link import Doubt, kin_of
from privet.transport.mesh import Member, connect, listen
from privet.transport.sockets import SocketChannel

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
