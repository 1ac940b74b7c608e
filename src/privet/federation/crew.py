"""A head's workers: called, met, vouched for, and told what to do.

Every head, a participant's or a dealer's, calls its own workers, wherever it likes. The heads swap
on their own channel where workers listen and what they must prove to be: so nobody else's worker
gets into a group.
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

from privet.arrays import IndexArray
from privet.boosting.shards import dismiss
from privet.errors import (
    PeerError,
    PeerLostError,
    PeerMisbehavedError,
    PrivetError,
    UnavailableError,
)
from privet.federation.brief import Brief, Place, send_rows
from privet.federation.differences import parse
from privet.federation.engines import Engine
from privet.federation.events import Event, Waiting
from privet.federation.session import Seat
from privet.federation.summons import Summons, make_identity
from privet.federation.worker import Load
from privet.files.cluster import Cluster
from privet.files.contacts import parse_address
from privet.runtime.meter import Meter
from privet.runtime.orders import Head
from privet.runtime.roles import HEAD, worker_name
from privet.transport import messages
from privet.transport.channel import Channel
from privet.transport.greeting import SESSION_BYTES
from privet.transport.mesh import Member, connect, listen
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
