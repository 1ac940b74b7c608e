"""Checks before a session, and a forecast of a training run's cost.

Nothing is told to anybody: at the addresses of others we only see whether a connection can be made.

These are where models and temporary files go, the audit log, and the files of the endpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import platform
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from privet.boosting.cost_estimate import DEALERS, Estimate, Time, estimate, scratch, time_of
from privet.config.job import Job
from privet.config.members import parse_address, read_out
from privet.config.party import Cluster, Endpoint, PartyFile
from privet.errors import ParameterError, PrivetError, UnavailableError
from privet.federation.alignment.alignment import cost_of_comparing
from privet.federation.cluster.executors import IN_THREADS, in_processes, look_for_workers
from privet.federation.local_data import Table
from privet.federation.offline import numbered_features
from privet.federation.session.session import listen_at
from privet.filesystem import holder, locked, make_folder
from privet.spec.plan import Monotone, cut_rows
from privet.storage.checkpoint import room_for_checkpoints
from privet.storage.journal import AuditLog
from privet.storage.model_part import room_for_training
from privet.transport.rendezvous import Member, answers_as, listen
from privet.transport.tls import load_identity
from privet.version import __version__

Verdict = Literal["good", "doubtful", "bad"]
EXPIRES_SOON = 30
"""So many days before a certificate expires, it is time to renew it."""
_SPARE = 100_000_000
"""Less than so many bytes beyond what a training takes is little: logs and records grow, too."""
_CODE = UnavailableError.exit_code


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    text: str
    code: int = 0
    """The exit code of what is bad."""


def attempt(what: str, look: Callable[[], str]) -> Finding:
    """Return what was seen, or what kept us from seeing it."""
    try:
        return Finding(what, "good", look())
    except PrivetError as error:
        return Finding(what, "bad", str(error), error.exit_code)


def of_expiry(what: str, text: str, days: int, renewal: str) -> Finding:
    """Say of a certificate for how long it is valid: one that ends today will not last a run."""
    if days < 1:
        when = "has expired" if days < 0 else "expires within a day"
        return Finding(what, "bad", f"{text} {when}: {renewal}", _CODE)
    text += f" expires in {days} {'day' if days == 1 else 'days'}"
    if days < EXPIRES_SOON:
        return Finding(what, "doubtful", f"{text}: {renewal}")
    return Finding(what, "good", text)


class Space(NamedTuple):
    """How many bytes were free, before we took some of them for a while."""

    models: int = 0
    temporary: int = 0

    @classmethod
    def now(cls, folder: str | Path) -> Space:
        """Look at a folder of models, and at that for temporary files."""
        found = cls()
        with contextlib.suppress(OSError):  # whoever looks closer tells of it
            found = found._replace(models=shutil.disk_usage(folder).free)
        with contextlib.suppress(OSError):
            found = found._replace(temporary=shutil.disk_usage(tempfile.gettempdir()).free)
        return found


def of_disk(folder: str | Path, needed: int | None, free: int | None = None) -> Finding:
    """Say whether there is room for models; None: it is not known how much that takes."""
    try:
        found = _written(make_folder(folder))
        free = shutil.disk_usage(found).free if free is None else free
        return _of_room("disk", found, free, needed, "choose another folder")
    except PrivetError as error:
        return Finding("disk", "bad", str(error), error.exit_code)


def of_temporary_files(
    needed: int, folder: str | Path, beside: int, free: int
) -> Iterator[Finding]:
    """Say where temporary files go and whether they fit there, beside models if need be."""
    what, wanted, advice = "temporary files", os.environ.get("TMPDIR"), "have TMPDIR name another"
    try:
        found = _written(Path(tempfile.gettempdir()))
    except OSError as error:
        yield Finding(what, "bad", f"{error.strerror}: {advice} folder", _CODE)
        return
    except PrivetError as error:
        yield Finding(what, "bad", str(error), error.exit_code)
        return
    if wanted and os.path.abspath(wanted) != str(found):
        text = f"TMPDIR is {wanted}, and no file can be made there: make that folder, or {advice}"
        yield Finding(what, "doubtful", f"{text}; until then they go to {found}")
    if needed and Path(folder).exists() and found.stat().st_dev == Path(folder).stat().st_dev:
        needed += beside
    yield _of_room(what, found, free, needed, advice)


def _written(folder: Path) -> Path:
    """Return a folder in which a file was written, which is gone again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise UnavailableError(
            f"{folder} cannot be written to: {error.strerror}: make room, or choose another place"
        ) from None
    return folder


def _of_room(what: str, folder: Path, free: int, needed: int | None, advice: str) -> Finding:
    text = f"{_size(free)} are free in {folder}"
    if needed:
        text += f", and a training takes up to {_size(needed)} there"
    if free < (needed or 1):
        return Finding(what, "bad", f"{text}: make room, or {advice}", _CODE)
    if free < 2 * (needed or 0) + _SPARE:
        return Finding(what, "doubtful", f"{text}: that is little: make room, or {advice}")
    return Finding(what, "good", text)


def _size(nbytes: int) -> str:
    unit, name = next(
        (each for each in ((1e9, "GB"), (1e6, "MB")) if nbytes >= each[0]), (1e3, "kB")
    )
    return f"{nbytes / unit:,.1f} {name}"


def of_audit_log(path: str | Path) -> Finding:
    """Say whether sessions can be recorded: otherwise none takes place."""

    def look() -> str:
        AuditLog(path).check()
        return f"{path} can be added to"

    return attempt("audit log", look)


def of_endpoint(endpoint: Endpoint) -> Iterator[Finding]:
    """Look at the files that an endpoint names, if it names any."""
    what, named = "endpoint", [endpoint.token, endpoint.certificate, endpoint.key]
    days: int | None = None

    def look() -> str:
        nonlocal days
        endpoint.read_token()
        days = endpoint.days_left()
        return f"{', '.join(filter(None, named))}: can be used"

    if any(named):
        yield attempt(what, look)
    if days is not None:
        renewal = "put a new one in its place, as from whoever has issued it"
        yield of_expiry(what, str(endpoint.certificate), days, renewal)


def check_up_cluster(
    job: Job, name: str, listen_on: str | None, cluster: Cluster
) -> Iterator[Finding]:
    """Look at what our workers need, if the job has rows in shards."""
    host, _ = parse_address(listen_on or job.contact(name).address)
    if job.shards > 1:
        yield attempt("workers", lambda: _look(cluster, job.shards, host))
    elif cluster != Cluster():
        text = "[cluster] is for jobs with rows in shards, and this one has none"
        yield Finding("workers", "doubtful", text)


def _look(cluster: Cluster, shards: int, host: str) -> str:
    """Return where workers will be; raise UnavailableError if they could not, or not be reached.

    They listen on a host of ours, unless a scheduler places them elsewhere.
    """
    if cluster.advertise is not None:
        _resolve("advertise", cluster.advertise)
    if cluster.door is not None:
        try:
            listen(*parse_address(cluster.door, lowest=0)).close()
        except UnavailableError as error:
            raise UnavailableError(f"cluster.door: {error}: give another, or port 0") from None
    if cluster.scheduler is not None:
        count = look_for_workers(cluster)
        return f"{shards} shards, in {count} Dask workers of {cluster.scheduler}"
    if cluster.ports is not None:
        _count_ports(host, cluster.ports[0], cluster.ports[1], shards)
    if cluster.local is None:
        return f"{shards} shards, in {IN_THREADS}"
    return f"{shards} shards, in {in_processes(min(cluster.local, shards))}"


def _resolve(key: str, host: str) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(
            f"cluster.{key}: {host} is not known here: {error.strerror}: give a name or an address "
            "under which the others reach your workers"
        ) from None


def _count_ports(host: str, first: int, last: int, shards: int) -> None:
    """See that every worker finds a port."""
    free = 0
    for port in range(first, last + 1):
        with contextlib.suppress(UnavailableError):
            listen(host, port).close()
            free += 1
    if free < shards:
        raise UnavailableError(
            f"cluster.ports: {free} of {host} from {first} to {last} are free, and {shards} "
            "workers need one each: allow more"
        )


_CALL_SECONDS = 3.0
_OUT_OF_SYNC = 5  # what the system returns of a clock that no time server keeps


def check_up(party: PartyFile, job: Job) -> Iterator[Finding]:
    """Look at everything that a participant needs for a job, one thing after the other."""
    yield from check_up_member(job, party.name, party.key, party.certificate, party.listen)
    if (process := holder(party.folder, job.name, "serve")) is not None:
        text = f"process {process} serves this job, and needs the port to meet the others again"
        yield Finding("service", "doubtful", text)
    played = [dealer for dealer, player in job.played_by.items() if player == party.name]
    if played and party.dealer is not None:
        ours = party.dealer
        yield from _keys(f"keys of {played[0]}", ours.key, ours.certificate, job, played[0])
    yield from check_up_cluster(job, party.name, party.listen, party.cluster)
    if party.audit is not None:
        yield of_audit_log(party.audit)
    if party.name == job.names[job.recipient_index]:
        yield from of_endpoint(party.endpoint)
    yield from _data(party, job)


def check_up_member(
    job: Job, name: str, key: str, certificate: str, listen_on: str | None
) -> Iterator[Finding]:
    """Look at what anybody needs for a job, a dealer, too, who has no data."""
    yield _versions(job)
    yield _clock()
    yield from _keys("keys", key, certificate, job, name)
    yield _door(job, name, key, certificate, listen_on)
    members = job.members()
    order = [member.name for member in members]
    for member in members:
        if member.name != name:
            yield _way(member, we_call=order.index(member.name) < order.index(name))


def _versions(job: Job) -> Finding:
    text = (
        f"privet {__version__}, Python {platform.python_version()}, numpy {np.__version__}; the "
        f"job {job.name!r} is {read_out(job.terms())}: all others must see the same job and version"
    )
    return Finding("versions", "good", text)


def _clock() -> Finding:
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    except (AttributeError, OSError):
        return Finding("clock", "doubtful", f"{now}; this system does not say whether that is so")
    if state in (-1, _OUT_OF_SYNC):
        text = f"{now}; no time server keeps it: see that it is right, or certificates will not do"
        return Finding("clock", "doubtful", text)
    return Finding("clock", "good", f"{now}, kept by a time server")


def _keys(what: str, key: str, certificate: str, job: Job, name: str) -> Iterator[Finding]:
    def look() -> str:
        identity = load_identity(key, certificate)
        agreed = job.contact(name).fingerprint
        if identity.fingerprint != agreed:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{agreed} of {name}: use those keys, or have all change the job"
            )
        return f"{key} and {certificate} are those that the job names"

    found = attempt(what, look)
    yield found
    if found.verdict == "good":
        identity = load_identity(key, certificate)
        yield of_expiry(what, certificate, identity.days_left(), identity.renewal)
        if Path(key).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            text = f"{key} can be read by others than its owner: `chmod 600` it"
            yield Finding(what, "doubtful", text)


def _door(job: Job, name: str, key: str, certificate: str, listen_on: str | None) -> Finding:
    """See whether we could be called."""
    host, port = parse_address(listen_on or job.contact(name).address)
    what = f"port {port}"
    try:
        listen_at(host, port).close()
    except UnavailableError as error:
        try:
            ours = answers_as(name, (host, port), load_identity(key, certificate))
        except PrivetError:
            ours = False
        if ours:
            return Finding(what, "doubtful", f"{host}:{port}: a process of ours is there already")
        return Finding(what, "bad", str(error), error.exit_code)
    return Finding(what, "good", f"{host}:{port} is free")


def _way(member: Member, *, we_call: bool) -> Finding:
    """See whether somebody's address is one, and whether there is a way to it."""
    place = f"{member.host}:{member.port}"
    code = UnavailableError.exit_code
    try:
        socket.getaddrinfo(member.host, member.port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = f"{place}: the name is not known here: {error.strerror}: correct the job or the DNS"
        return Finding(member.name, "bad" if we_call else "doubtful", text, code if we_call else 0)
    try:
        socket.create_connection((member.host, member.port), timeout=_CALL_SECONDS).close()
    except ConnectionRefusedError:
        return Finding(member.name, "good", f"{place}: reached; nobody listens there yet")
    except OSError as error:
        problem = f"{place}: not reached: {error.strerror or error}"
        if not we_call:
            return Finding(member.name, "good", f"{problem}; but it calls us, not we it")
        text = f"{problem}: open the way to it, or ask whether its machine is there"
        return Finding(member.name, "bad", text, code)
    return Finding(member.name, "good", f"{place}: somebody listens there")


def _data(party: PartyFile, job: Job) -> Iterator[Finding]:
    """Read the table as a training would, and what is left of earlier ones; see what fits."""
    disk, size, warnings = of_disk(party.folder, None), (0, 0), list[str]()
    free = Space.now(party.folder)

    def look() -> str:
        nonlocal disk, size
        if disk.verdict == "bad":  # which is one thing, and whether the table can be read another
            table = Table(party, job, party.read_rows(job), restart=False, keys="", alignment=None)
        else:
            table = Table.read(party, job, restart=False)
        rows = table.rows
        size = rows.n_samples, len(rows.columns)
        cut_rows(rows.n_samples, 0, job.shards)
        disk = of_disk(party.folder, room_for_training(job, size[0]), free.models)
        warnings.extend(rows.frame.warnings)
        text = f"{party.data.where}: {rows.n_samples:,} rows, each with an id of its own, "
        text += f"{len(rows.columns)} columns"
        text += "" if rows.frame.label is None else " and the label"
        if disk.verdict == "bad":
            table.prepare()
            return text
        with locked(party.folder, job.name):
            own = table.own()
        if own is None:
            return f"{text}; rows are not aligned yet"
        warnings.extend(own.checkpoints.damaged.values())
        done = max((done for done, _ in own.stages), default=0)
        return f"{text}; {done} tables are there from earlier" if done else text

    found = attempt("data", look)
    yield disk
    room = room_for_training(job, size[0])
    yield from of_temporary_files(scratch(*size, job.shards), party.folder, room, free.temporary)
    yield found
    for warning in warnings:
        yield Finding("data", "doubtful", warning)


@dataclass(frozen=True)
class Foreseen:
    """What a training will take, wherever it takes place."""

    cost: Estimate
    at_most: bool
    """Whether the numbers of cuts are not known yet, and are taken to be the most there can be."""
    checkpoints: int
    """Bytes in a participant's folder of models, at most, while it trains."""
    to_start_workers: int
    """Bytes that a participant tells its workers before they start: which rows are theirs."""

    @property
    def of_orders(self) -> int:
        """Bytes between a participant and its workers."""
        return self.to_start_workers + self.cost.orders

    def times(self, delay: float, rate: float) -> dict[str, Time]:
        """Return where the time goes at a delay in ms and a rate in Mbit/s, by who deals how."""
        link = delay / 1000, rate * 1e6 / 8
        return {dealer: time_of(self.cost, *link, dealer=dealer) for dealer in DEALERS}

    def figures(self, delay: float, rate: float) -> dict[str, Any]:
        """Return all of it as a program takes it."""
        times = self.times(delay, rate)
        time = times["ahead"]
        return {
            "at_most": self.at_most,
            "rounds": self.cost.rounds,
            "bytes_online": self.cost.online,
            "bytes_offline": self.cost.offline,
            "bytes_between_dealers": self.cost.between,
            "memory": self.cost.memory,
            "memory_of_head": self.cost.head_memory,
            "bytes_on_disk_for_a_while": self.cost.scratch,
            "bytes_of_checkpoints": self.checkpoints,
            "bytes_of_orders": self.of_orders,
            "masks": self.cost.masks,
            "seconds": time.total,
            "seconds_by_dealer": {dealer: found.total for dealer, found in times.items()},
            "seconds_of_delays": time.delays,
            "seconds_of_carrying": time.carrying,
            "seconds_of_computing": time.computing,
        }


def foresee(
    job: Job,
    samples: int,
    counts: Sequence[int],
    *,
    cut_counts: tuple[int, ...] | None = None,
    monotone: Monotone | None = None,
    kept: bool = False,
) -> Foreseen:
    """Count a training through: of so many rows, and so many columns of each participant.

    Where it is not known which columns are constrained, each participant's first ones are. `kept`
    tells whether all indicators are there from an earlier training.
    """
    signs = _first_constrained(job, counts) if monotone is None else monotone
    federation = job.federation(numbered_features(job, counts), cut_counts, signs)
    everybody = tuple(range(len(job.names))) if kept else None
    cost = estimate(
        federation,
        federation.plan(samples, everybody),
        dealers=len(job.dealer_names),
        before=cost_of_comparing(job),
    )
    return Foreseen(
        cost,
        at_most=job.told_cuts != "hidden" and cut_counts is None,
        checkpoints=room_for_checkpoints(samples, job.hyper_parameters()),
        to_start_workers=8 * samples if job.shards > 1 else 0,
    )


def _first_constrained(job: Job, counts: Sequence[int]) -> Monotone:
    """Return constraints as if those of each participant were on its first columns."""
    found: list[int] = []
    for name, count in zip(job.names, counts, strict=True):
        own = list(job.monotone.get(name, {}).values())
        if len(own) > count:
            raise ParameterError(
                f"features: {count} of {name}, and the job constrains {len(own)} of its columns"
            )
        found += [*own, *[0] * (count - len(own))]
    return tuple(found)
