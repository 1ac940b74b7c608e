"""What could keep us from taking part in a job, found before anybody else is bothered with it.

Nothing is told to anybody: at the addresses of others we only see whether a connection can be made.
"""

from __future__ import annotations

import ctypes
import datetime
import platform
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from privet.boosting.estimate import scratch
from privet.errors import ParameterError, PrivetError, UnavailableError
from privet.federation.cluster_checkup import check_up_cluster
from privet.federation.findings import (
    Finding,
    Space,
    attempt,
    of_audit_log,
    of_disk,
    of_endpoint,
    of_expiry,
    of_temporary_files,
)
from privet.federation.own import Table
from privet.federation.session import listen_at
from privet.files.contacts import parse_address
from privet.files.job import Job
from privet.files.lock import holder, locked
from privet.files.part_file import room_for_training
from privet.files.party_file import PartyFile
from privet.files.seats import read_out
from privet.terms.shards import cut_rows
from privet.transport.farewell import answers_as
from privet.transport.identity import load_identity
from privet.transport.mesh import Member
from privet.version import __version__

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
