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

from privet.boosting.cost_estimate import (
    DEALER_PLACEMENTS,
    CostEstimate,
    TimeEstimate,
    estimate_cost,
    estimate_scratch_bytes,
    estimate_time,
)
from privet.config.job import Job
from privet.config.members import format_settings_digest, parse_address
from privet.config.party import ClusterConfig, EndpointConfig, PartyConfig
from privet.errors import ParameterError, PrivetError, UnavailableError
from privet.federation.alignment.alignment import estimate_id_comparison
from privet.federation.cluster.executors import (
    THREADS_DESCRIPTION,
    count_dask_workers,
    describe_processes,
)
from privet.federation.local_data import LocalTable
from privet.federation.offline import make_anonymous_features
from privet.federation.session.session import open_listener
from privet.filesystem import find_lock_holder, lock_job, make_folder
from privet.spec.plan import MonotoneConstraints, split_into_shards
from privet.storage.checkpoint import bound_checkpoint_bytes
from privet.storage.journal import AuditLog
from privet.storage.model_part import bound_training_bytes
from privet.transport.rendezvous import Member, is_member_running_at, listen
from privet.transport.tls import load_identity
from privet.version import __version__

CheckStatus = Literal["good", "doubtful", "bad"]
EXPIRY_WARNING_DAYS = 30
"""So many days before a certificate expires, it is time to renew it."""
_SPARE_BYTES = 100_000_000
"""Less than so many bytes beyond what a training takes is little: logs and records grow, too."""
_CODE = UnavailableError.exit_code


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at."""

    what: str
    verdict: CheckStatus
    text: str
    code: int = 0
    """The exit code of what is bad."""


def run_check(subject: str, check: Callable[[], str]) -> CheckResult:
    """Return what was seen, or what kept us from seeing it."""
    try:
        return CheckResult(subject, "good", check())
    except PrivetError as error:
        return CheckResult(subject, "bad", str(error), error.exit_code)


def check_expiry(subject: str, text: str, days: int, renewal: str) -> CheckResult:
    """Say of a certificate for how long it is valid: one that ends today will not last a run."""
    if days < 1:
        when = "has expired" if days < 0 else "expires within a day"
        return CheckResult(subject, "bad", f"{text} {when}: {renewal}", _CODE)
    text += f" expires in {days} {'day' if days == 1 else 'days'}"
    if days < EXPIRY_WARNING_DAYS:
        return CheckResult(subject, "doubtful", f"{text}: {renewal}")
    return CheckResult(subject, "good", text)


class FreeSpace(NamedTuple):
    """How many bytes were free, before we took some of them for a while."""

    models: int = 0
    temporary: int = 0

    @classmethod
    def measure(cls, folder: str | Path) -> FreeSpace:
        """Look at a folder of models, and at that for temporary files."""
        found = cls()
        with contextlib.suppress(OSError):  # whoever looks closer tells of it
            found = found._replace(models=shutil.disk_usage(folder).free)
        with contextlib.suppress(OSError):
            found = found._replace(temporary=shutil.disk_usage(tempfile.gettempdir()).free)
        return found


def check_disk(folder: str | Path, needed: int | None, free: int | None = None) -> CheckResult:
    """Say whether there is room for models; None: it is not known how much that takes."""
    try:
        found = _check_writable_folder(make_folder(folder))
        free = shutil.disk_usage(found).free if free is None else free
        return _compare_free_space("disk", found, free, needed, "choose another folder")
    except PrivetError as error:
        return CheckResult("disk", "bad", str(error), error.exit_code)


def check_temporary_folder(
    needed: int, folder: str | Path, model_bytes: int, free: int
) -> Iterator[CheckResult]:
    """Say where temporary files go and whether they fit there, beside models if need be."""
    what, wanted, advice = "temporary files", os.environ.get("TMPDIR"), "have TMPDIR name another"
    try:
        found = _check_writable_folder(Path(tempfile.gettempdir()))
    except OSError as error:
        yield CheckResult(what, "bad", f"{error.strerror}: {advice} folder", _CODE)
        return
    except PrivetError as error:
        yield CheckResult(what, "bad", str(error), error.exit_code)
        return
    if wanted and os.path.abspath(wanted) != str(found):
        text = f"TMPDIR is {wanted}, and no file can be made there: make that folder, or {advice}"
        yield CheckResult(what, "doubtful", f"{text}; until then they go to {found}")
    if needed and Path(folder).exists() and found.stat().st_dev == Path(folder).stat().st_dev:
        needed += model_bytes
    yield _compare_free_space(what, found, free, needed, advice)


def _check_writable_folder(folder: Path) -> Path:
    """Return a folder in which a file was written, which is gone again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise UnavailableError(
            f"{folder} cannot be written to: {error.strerror}: make room, or choose another place"
        ) from None
    return folder


def _compare_free_space(
    subject: str, folder: Path, free: int, needed: int | None, advice: str
) -> CheckResult:
    text = f"{_format_bytes(free)} are free in {folder}"
    if needed:
        text += f", and a training takes up to {_format_bytes(needed)} there"
    if free < (needed or 1):
        return CheckResult(subject, "bad", f"{text}: make room, or {advice}", _CODE)
    if free < 2 * (needed or 0) + _SPARE_BYTES:
        return CheckResult(subject, "doubtful", f"{text}: that is little: make room, or {advice}")
    return CheckResult(subject, "good", text)


def _format_bytes(nbytes: int) -> str:
    unit, name = next(
        (each for each in ((1e9, "GB"), (1e6, "MB")) if nbytes >= each[0]), (1e3, "kB")
    )
    return f"{nbytes / unit:,.1f} {name}"


def check_audit_log(path: str | Path) -> CheckResult:
    """Say whether sessions can be recorded: otherwise none takes place."""

    def check_log() -> str:
        AuditLog(path).check_writable()
        return f"{path} can be added to"

    return run_check("audit log", check_log)


def check_endpoint(endpoint: EndpointConfig) -> Iterator[CheckResult]:
    """Look at the files that an endpoint names, if it names any."""
    what, named = "endpoint", [endpoint.token, endpoint.certificate, endpoint.key]
    days: int | None = None

    def check_files() -> str:
        nonlocal days
        endpoint.read_token()
        days = endpoint.count_days_left()
        return f"{', '.join(filter(None, named))}: can be used"

    if any(named):
        yield run_check(what, check_files)
    if days is not None:
        renewal = "put a new one in its place, as from whoever has issued it"
        yield check_expiry(what, str(endpoint.certificate), days, renewal)


def check_cluster(
    job: Job, name: str, listen_on: str | None, cluster: ClusterConfig
) -> Iterator[CheckResult]:
    """Look at what our workers need, if the job has rows in shards."""
    host, _ = parse_address(listen_on or job.get_entry(name).address)
    if job.shards > 1:
        yield run_check("workers", lambda: _describe_cluster(cluster, job.shards, host))
    elif cluster != ClusterConfig():
        text = "[cluster] is for jobs with rows in shards, and this one has none"
        yield CheckResult("workers", "doubtful", text)


def _describe_cluster(cluster: ClusterConfig, shards: int, host: str) -> str:
    """Return where workers will be; raise UnavailableError if they could not, or not be reached.

    They listen on a host of ours, unless a scheduler places them elsewhere.
    """
    if cluster.advertise is not None:
        _check_resolvable("advertise", cluster.advertise)
    if cluster.door is not None:
        try:
            listen(*parse_address(cluster.door, lowest=0)).close()
        except UnavailableError as error:
            raise UnavailableError(f"cluster.door: {error}: give another, or port 0") from None
    if cluster.scheduler is not None:
        count = count_dask_workers(cluster)
        return f"{shards} shards, in {count} Dask workers of {cluster.scheduler}"
    if cluster.ports is not None:
        _count_ports(host, cluster.ports[0], cluster.ports[1], shards)
    if cluster.local is None:
        return f"{shards} shards, in {THREADS_DESCRIPTION}"
    return f"{shards} shards, in {describe_processes(min(cluster.local, shards))}"


def _check_resolvable(key: str, host: str) -> None:
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


_PROBE_SECONDS = 3.0
_CLOCK_UNSYNCHRONISED = 5  # what the system returns of a clock that no time server keeps


def check_party(party_config: PartyConfig, job: Job) -> Iterator[CheckResult]:
    """Look at everything that a participant needs for a job, one thing after the other."""
    yield from check_member(
        job, party_config.name, party_config.key, party_config.certificate, party_config.listen
    )
    if (process := find_lock_holder(party_config.folder, job.name, "serve")) is not None:
        text = f"process {process} serves this job, and needs the port to meet the others again"
        yield CheckResult("service", "doubtful", text)
    played = [
        dealer for dealer, player in job.dealer_operators.items() if player == party_config.name
    ]
    if played and party_config.dealer is not None:
        ours = party_config.dealer
        yield from _check_keys(f"keys of {played[0]}", ours.key, ours.certificate, job, played[0])
    yield from check_cluster(job, party_config.name, party_config.listen, party_config.cluster)
    if party_config.audit is not None:
        yield check_audit_log(party_config.audit)
    if party_config.name == job.party_names[job.recipient_index]:
        yield from check_endpoint(party_config.endpoint)
    yield from _check_data(party_config, job)


def check_member(
    job: Job, name: str, key: str, certificate: str, listen_on: str | None
) -> Iterator[CheckResult]:
    """Look at what anybody needs for a job, a dealer, too, who has no data."""
    yield _check_versions(job)
    yield _check_clock()
    yield from _check_keys("keys", key, certificate, job, name)
    yield _check_listen_address(job, name, key, certificate, listen_on)
    members = job.make_members()
    order = [member.name for member in members]
    for member in members:
        if member.name != name:
            yield _check_route(member, is_caller=order.index(member.name) < order.index(name))


def _check_versions(job: Job) -> CheckResult:
    text = (
        f"privet {__version__}, Python {platform.python_version()}, numpy {np.__version__}; the "
        f"job {job.name!r} is {format_settings_digest(job.list_agreed_settings())}: all others "
        "must see the same job and version"
    )
    return CheckResult("versions", "good", text)


def _check_clock() -> CheckResult:
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    except (AttributeError, OSError):
        return CheckResult(
            "clock", "doubtful", f"{now}; this system does not say whether that is so"
        )
    if state in (-1, _CLOCK_UNSYNCHRONISED):
        text = f"{now}; no time server keeps it: see that it is right, or certificates will not do"
        return CheckResult("clock", "doubtful", text)
    return CheckResult("clock", "good", f"{now}, kept by a time server")


def _check_keys(
    subject: str, key: str, certificate: str, job: Job, name: str
) -> Iterator[CheckResult]:
    def check_identity() -> str:
        identity = load_identity(key, certificate)
        agreed = job.get_entry(name).fingerprint
        if identity.fingerprint != agreed:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{agreed} of {name}: use those keys, or have all change the job"
            )
        return f"{key} and {certificate} are those that the job names"

    found = run_check(subject, check_identity)
    yield found
    if found.verdict == "good":
        identity = load_identity(key, certificate)
        yield check_expiry(
            subject, certificate, identity.count_days_left(), identity.renewal_advice
        )
        if Path(key).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            text = f"{key} can be read by others than its owner: `chmod 600` it"
            yield CheckResult(subject, "doubtful", text)


def _check_listen_address(
    job: Job, name: str, key: str, certificate: str, listen_on: str | None
) -> CheckResult:
    """See whether we could be called."""
    host, port = parse_address(listen_on or job.get_entry(name).address)
    what = f"port {port}"
    try:
        open_listener(host, port).close()
    except UnavailableError as error:
        try:
            ours = is_member_running_at(name, (host, port), load_identity(key, certificate))
        except PrivetError:
            ours = False
        if ours:
            return CheckResult(
                what, "doubtful", f"{host}:{port}: a process of ours is there already"
            )
        return CheckResult(what, "bad", str(error), error.exit_code)
    return CheckResult(what, "good", f"{host}:{port} is free")


def _check_route(member: Member, *, is_caller: bool) -> CheckResult:
    """See whether somebody's address is one, and whether there is a way to it."""
    place = f"{member.host}:{member.port}"
    code = UnavailableError.exit_code
    try:
        socket.getaddrinfo(member.host, member.port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = f"{place}: the name is not known here: {error.strerror}: correct the job or the DNS"
        return CheckResult(
            member.name, "bad" if is_caller else "doubtful", text, code if is_caller else 0
        )
    try:
        socket.create_connection((member.host, member.port), timeout=_PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return CheckResult(member.name, "good", f"{place}: reached; nobody listens there yet")
    except OSError as error:
        problem = f"{place}: not reached: {error.strerror or error}"
        if not is_caller:
            return CheckResult(member.name, "good", f"{problem}; but it calls us, not we it")
        text = f"{problem}: open the way to it, or ask whether its machine is there"
        return CheckResult(member.name, "bad", text, code)
    return CheckResult(member.name, "good", f"{place}: somebody listens there")


def _check_data(party_config: PartyConfig, job: Job) -> Iterator[CheckResult]:
    """Read the table as a training would, and what is left of earlier ones; see what fits."""
    disk, size, warnings = check_disk(party_config.folder, None), (0, 0), list[str]()
    free = FreeSpace.measure(party_config.folder)

    def read_table() -> str:
        nonlocal disk, size
        if disk.verdict == "bad":  # which is one thing, and whether the table can be read another
            table = LocalTable(
                party_config,
                job,
                party_config.read_rows(job),
                restart=False,
                keys_digest="",
                saved_alignment=None,
            )
        else:
            table = LocalTable.read(party_config, job, restart=False)
        rows = table.all_rows
        size = rows.n_samples, len(rows.columns)
        split_into_shards(rows.n_samples, 0, job.shards)
        disk = check_disk(party_config.folder, bound_training_bytes(job, size[0]), free.models)
        warnings.extend(rows.row_data.warnings)
        text = (
            f"{party_config.data.display_name}: {rows.n_samples:,} rows, each with an id of its "
            "own, "
        )
        text += f"{len(rows.columns)} columns"
        text += "" if rows.row_data.label is None else " and the label"
        if disk.verdict == "bad":
            table.prepare_rows()
            return text
        with lock_job(party_config.folder, job.name):
            own = table.load_local_state()
        if own is None:
            return f"{text}; rows are not aligned yet"
        warnings.extend(own.checkpoints.damaged.values())
        done = max((done for done, _ in own.checkpoint_keys), default=0)
        return f"{text}; {done} tables are there from earlier" if done else text

    found = run_check("data", read_table)
    yield disk
    room = bound_training_bytes(job, size[0])
    yield from check_temporary_folder(
        estimate_scratch_bytes(*size, job.shards), party_config.folder, room, free.temporary
    )
    yield found
    for warning in warnings:
        yield CheckResult("data", "doubtful", warning)


@dataclass(frozen=True)
class TrainingForecast:
    """What a training will take, wherever it takes place."""

    estimate: CostEstimate
    is_upper_bound: bool
    """Whether the numbers of cuts are not known yet, and are taken to be the most there can be."""
    checkpoint_bytes: int
    """Bytes in a participant's folder of models, at most, while it trains."""
    worker_startup_bytes: int
    """Bytes that a participant tells its workers before they start: which rows are theirs."""

    @property
    def worker_command_bytes(self) -> int:
        """Bytes between a participant and its workers."""
        return self.worker_startup_bytes + self.estimate.worker_bytes

    def estimate_times(self, delay: float, rate: float) -> dict[str, TimeEstimate]:
        """Return where the time goes at a delay in ms and a rate in Mbit/s, by who deals how."""
        link = delay / 1000, rate * 1e6 / 8
        return {
            dealer: estimate_time(self.estimate, *link, dealer=dealer)
            for dealer in DEALER_PLACEMENTS
        }

    def to_dict(self, delay: float, rate: float) -> dict[str, Any]:
        """Return all of it as a program takes it."""
        times = self.estimate_times(delay, rate)
        time = times["ahead"]
        return {
            "at_most": self.is_upper_bound,
            "rounds": self.estimate.rounds,
            "bytes_online": self.estimate.online_bytes,
            "bytes_offline": self.estimate.offline_bytes,
            "bytes_between_dealers": self.estimate.dealer_bytes,
            "memory": self.estimate.memory_bytes,
            "memory_of_head": self.estimate.coordinator_memory_bytes,
            "bytes_on_disk_for_a_while": self.estimate.scratch_bytes,
            "bytes_of_checkpoints": self.checkpoint_bytes,
            "bytes_of_orders": self.worker_command_bytes,
            "masks": self.estimate.masks,
            "seconds": time.total,
            "seconds_by_dealer": {dealer: found.total for dealer, found in times.items()},
            "seconds_of_delays": time.delays,
            "seconds_of_carrying": time.transfer_seconds,
            "seconds_of_computing": time.compute_seconds,
        }


def forecast_training(
    job: Job,
    n_samples: int,
    counts: Sequence[int],
    *,
    cut_counts: tuple[int, ...] | None = None,
    monotone: MonotoneConstraints | None = None,
    kept: bool = False,
) -> TrainingForecast:
    """Count a training through: of so many rows, and so many columns of each participant.

    Where it is not known which columns are constrained, each participant's first ones are. `kept`
    tells whether all indicators are there from an earlier training.
    """
    signs = _assume_constraints_first(job, counts) if monotone is None else monotone
    federation = job.make_training_spec(make_anonymous_features(job, counts), cut_counts, signs)
    everybody = tuple(range(len(job.party_names))) if kept else None
    cost = estimate_cost(
        federation,
        federation.make_plan(n_samples, everybody),
        dealers=len(job.dealer_names),
        before=estimate_id_comparison(job),
    )
    return TrainingForecast(
        cost,
        is_upper_bound=job.cut_disclosure != "hidden" and cut_counts is None,
        checkpoint_bytes=bound_checkpoint_bytes(n_samples, job.make_params()),
        worker_startup_bytes=8 * n_samples if job.shards > 1 else 0,
    )


def _assume_constraints_first(job: Job, counts: Sequence[int]) -> MonotoneConstraints:
    """Return constraints as if those of each participant were on its first columns."""
    found: list[int] = []
    for name, count in zip(job.party_names, counts, strict=True):
        own = list(job.monotone.get(name, {}).values())
        if len(own) > count:
            raise ParameterError(
                f"features: {count} of {name}, and the job constrains {len(own)} of its columns"
            )
        found += [*own, *[0] * (count - len(own))]
    return tuple(found)
