"""Checks before a session, and a forecast of a training run's cost.

The checks reveal nothing to the peers: they only try to open a TCP connection to their addresses.
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
"""Days before the expiry of a certificate at which a check warns."""
_SPARE_BYTES = 100_000_000
"""Bytes that must be free beyond twice the estimate, since logs and records grow, too."""
_CODE = UnavailableError.exit_code


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    what: str
    verdict: CheckStatus
    text: str
    code: int = 0
    """Exit code, if the verdict is bad."""


def run_check(subject: str, check: Callable[[], str]) -> CheckResult:
    """Return the text of a check as a good result, or its error as a bad one."""
    try:
        return CheckResult(subject, "good", check())
    except PrivetError as error:
        return CheckResult(subject, "bad", str(error), error.exit_code)


def check_expiry(subject: str, text: str, days: int, renewal: str) -> CheckResult:
    """Check the days until a certificate expires; less than one day is too short for a run."""
    if days < 1:
        state = "has expired" if days < 0 else "expires within a day"
        return CheckResult(subject, "bad", f"{text} {state}: {renewal}", _CODE)
    text += f" expires in {days} {'day' if days == 1 else 'days'}"
    if days < EXPIRY_WARNING_DAYS:
        return CheckResult(subject, "doubtful", f"{text}: {renewal}")
    return CheckResult(subject, "good", text)


class FreeSpace(NamedTuple):
    """Free bytes, measured before the checks write temporary files."""

    models: int = 0
    temporary: int = 0

    @classmethod
    def measure(cls, folder: str | Path) -> FreeSpace:
        """Measure the free bytes for a folder of models and for temporary files."""
        free = cls()
        with contextlib.suppress(OSError):  # a later check reports the error
            free = free._replace(models=shutil.disk_usage(folder).free)
        with contextlib.suppress(OSError):
            free = free._replace(temporary=shutil.disk_usage(tempfile.gettempdir()).free)
        return free


def check_disk(folder: str | Path, needed: int | None, free: int | None = None) -> CheckResult:
    """Check the free space for models; `needed` is None if the size is not known."""
    try:
        checked_folder = _check_writable_folder(make_folder(folder))
        free = shutil.disk_usage(checked_folder).free if free is None else free
        return _compare_free_space("disk", checked_folder, free, needed, "choose another folder")
    except PrivetError as error:
        return CheckResult("disk", "bad", str(error), error.exit_code)


def check_temporary_folder(
    needed: int, folder: str | Path, model_bytes: int, free: int
) -> Iterator[CheckResult]:
    """Check the free space for temporary files, and models if they share the file system."""
    subject, tmpdir, advice = (
        "temporary files",
        os.environ.get("TMPDIR"),
        "have TMPDIR name another",
    )
    try:
        checked_folder = _check_writable_folder(Path(tempfile.gettempdir()))
    except OSError as error:
        yield CheckResult(subject, "bad", f"{error.strerror}: {advice} folder", _CODE)
        return
    except PrivetError as error:
        yield CheckResult(subject, "bad", str(error), error.exit_code)
        return
    if tmpdir and os.path.abspath(tmpdir) != str(checked_folder):
        text = f"TMPDIR is {tmpdir}, and no file can be made there: make that folder, or {advice}"
        yield CheckResult(subject, "doubtful", f"{text}; until then they go to {checked_folder}")
    if (
        needed
        and Path(folder).exists()
        and checked_folder.stat().st_dev == Path(folder).stat().st_dev
    ):
        needed += model_bytes
    yield _compare_free_space(subject, checked_folder, free, needed, advice)


def _check_writable_folder(folder: Path) -> Path:
    """Return a folder after writing a temporary file to it."""
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
    """Check that the audit log is writable: without it, no session takes place."""

    def check_log() -> str:
        AuditLog(path).check_writable()
        return f"{path} can be added to"

    return run_check("audit log", check_log)


def check_endpoint(endpoint: EndpointConfig) -> Iterator[CheckResult]:
    """Check the files that an endpoint names, if it names any."""
    subject, files = "endpoint", [endpoint.token, endpoint.certificate, endpoint.key]
    days: int | None = None

    def check_files() -> str:
        nonlocal days
        endpoint.read_token()
        days = endpoint.count_days_left()
        return f"{', '.join(filter(None, files))}: can be used"

    if any(files):
        yield run_check(subject, check_files)
    if days is not None:
        renewal = "put a new one in its place, as from whoever has issued it"
        yield check_expiry(subject, str(endpoint.certificate), days, renewal)


def check_cluster(
    job: Job, name: str, listen_on: str | None, cluster: ClusterConfig
) -> Iterator[CheckResult]:
    """Check what local workers require, if the job has shards."""
    host, _ = parse_address(listen_on or job.get_entry(name).address)
    if job.shards > 1:
        yield run_check("workers", lambda: _describe_cluster(cluster, job.shards, host))
    elif cluster != ClusterConfig():
        text = "[cluster] is for jobs with rows in shards, and this one has none"
        yield CheckResult("workers", "doubtful", text)


def _describe_cluster(cluster: ClusterConfig, shards: int, host: str) -> str:
    """Return where workers will run; raise UnavailableError if they cannot run or be reached.

    Workers listen on the local host, unless a scheduler places them elsewhere.
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
        _check_free_ports(host, cluster.ports[0], cluster.ports[1], shards)
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


def _check_free_ports(host: str, first: int, last: int, shards: int) -> None:
    """Raise UnavailableError unless every worker can listen on a free port."""
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
_CLOCK_UNSYNCHRONISED = 5  # adjtimex: the clock is not synchronised (TIME_ERROR)


def check_party(party_config: PartyConfig, job: Job) -> Iterator[CheckResult]:
    """Run all checks that a participant needs for a job, one after the other."""
    yield from check_member(
        job, party_config.name, party_config.key, party_config.certificate, party_config.listen
    )
    if (process := find_lock_holder(party_config.folder, job.name, "serve")) is not None:
        text = f"process {process} serves this job, and needs the port to meet the others again"
        yield CheckResult("service", "doubtful", text)
    operated_dealers = [
        dealer for dealer, operator in job.dealer_operators.items() if operator == party_config.name
    ]
    if operated_dealers and party_config.dealer is not None:
        dealer_keys = party_config.dealer
        yield from _check_keys(
            f"keys of {operated_dealers[0]}",
            dealer_keys.key,
            dealer_keys.certificate,
            job,
            operated_dealers[0],
        )
    yield from check_cluster(job, party_config.name, party_config.listen, party_config.cluster)
    if party_config.audit is not None:
        yield check_audit_log(party_config.audit)
    if party_config.name == job.party_names[job.recipient_index]:
        yield from check_endpoint(party_config.endpoint)
    yield from _check_data(party_config, job)


def check_member(
    job: Job, name: str, key: str, certificate: str, listen_on: str | None
) -> Iterator[CheckResult]:
    """Run the checks that every member needs for a job: participants and dealers."""
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
        expected = job.get_entry(name).fingerprint
        if identity.fingerprint != expected:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{expected} of {name}: use those keys, or have all change the job"
            )
        return f"{key} and {certificate} are those that the job names"

    result = run_check(subject, check_identity)
    yield result
    if result.verdict == "good":
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
    """Check that the listen address is free."""
    host, port = parse_address(listen_on or job.get_entry(name).address)
    subject = f"port {port}"
    try:
        open_listener(host, port).close()
    except UnavailableError as error:
        try:
            is_running_here = is_member_running_at(
                name, (host, port), load_identity(key, certificate)
            )
        except PrivetError:
            is_running_here = False
        if is_running_here:
            return CheckResult(
                subject, "doubtful", f"{host}:{port}: a process of ours is there already"
            )
        return CheckResult(subject, "bad", str(error), error.exit_code)
    return CheckResult(subject, "good", f"{host}:{port} is free")


def _check_route(member: Member, *, is_caller: bool) -> CheckResult:
    """Check that a peer's address can be resolved and reached."""
    address = f"{member.host}:{member.port}"
    code = UnavailableError.exit_code
    try:
        socket.getaddrinfo(member.host, member.port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = (
            f"{address}: the name is not known here: {error.strerror}: correct the job or the DNS"
        )
        return CheckResult(
            member.name, "bad" if is_caller else "doubtful", text, code if is_caller else 0
        )
    try:
        socket.create_connection((member.host, member.port), timeout=_PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return CheckResult(member.name, "good", f"{address}: reached; nobody listens there yet")
    except OSError as error:
        problem = f"{address}: not reached: {error.strerror or error}"
        if not is_caller:
            return CheckResult(member.name, "good", f"{problem}; but it calls us, not we it")
        text = f"{problem}: open the way to it, or ask whether its machine is there"
        return CheckResult(member.name, "bad", text, code)
    return CheckResult(member.name, "good", f"{address}: somebody listens there")


def _check_data(party_config: PartyConfig, job: Job) -> Iterator[CheckResult]:
    """Check the table, the state from earlier runs, and the free space, as training would."""
    disk, size, warnings = check_disk(party_config.folder, None), (0, 0), list[str]()
    free = FreeSpace.measure(party_config.folder)

    def read_table() -> str:
        nonlocal disk, size
        if disk.verdict == "bad":  # still check that the table can be read
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
            local_state = table.load_local_state()
        if local_state is None:
            return f"{text}; rows are not aligned yet"
        warnings.extend(local_state.checkpoints.damaged.values())
        done = max((done for done, _ in local_state.checkpoint_keys), default=0)
        return f"{text}; {done} tables are there from earlier" if done else text

    result = run_check("data", read_table)
    yield disk
    model_bytes = bound_training_bytes(job, size[0])
    yield from check_temporary_folder(
        estimate_scratch_bytes(*size, job.shards), party_config.folder, model_bytes, free.temporary
    )
    yield result
    for warning in warnings:
        yield CheckResult("data", "doubtful", warning)


@dataclass(frozen=True)
class TrainingForecast:
    """The estimated cost of a training run, on any machine and network."""

    estimate: CostEstimate
    is_upper_bound: bool
    """Whether the cut counts are not known yet, so that the maximum is assumed."""
    checkpoint_bytes: int
    """Maximum bytes in a participant's folder of models during training."""
    worker_startup_bytes: int
    """Bytes of the row numbers that a participant sends to its workers before they start."""

    @property
    def worker_command_bytes(self) -> int:
        """Bytes between a participant and its workers."""
        return self.worker_startup_bytes + self.estimate.worker_bytes

    def estimate_times(self, delay: float, rate: float) -> dict[str, TimeEstimate]:
        """Return the time at a delay in ms and a rate in Mbit/s, for each dealer placement."""
        link = delay / 1000, rate * 1e6 / 8
        return {
            dealer: estimate_time(self.estimate, *link, dealer=dealer)
            for dealer in DEALER_PLACEMENTS
        }

    def to_dict(self, delay: float, rate: float) -> dict[str, Any]:
        """Return the forecast as a JSON object."""
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
    """Estimate the cost of a training run from its rows and each participant's column count.

    Without `monotone`, each participant's first columns are assumed to be the constrained ones.
    `kept` is set if all indicators are cached from an earlier training run.
    """
    signs = _assume_constraints_first(job, counts) if monotone is None else monotone
    training_spec = job.make_training_spec(make_anonymous_features(job, counts), cut_counts, signs)
    cached_owners = tuple(range(len(job.party_names))) if kept else None
    estimate = estimate_cost(
        training_spec,
        training_spec.make_plan(n_samples, cached_owners),
        dealers=len(job.dealer_names),
        before=estimate_id_comparison(job),
    )
    return TrainingForecast(
        estimate,
        is_upper_bound=job.cut_disclosure != "hidden" and cut_counts is None,
        checkpoint_bytes=bound_checkpoint_bytes(n_samples, job.make_params()),
        worker_startup_bytes=8 * n_samples if job.shards > 1 else 0,
    )


def _assume_constraints_first(job: Job, counts: Sequence[int]) -> MonotoneConstraints:
    """Return constraints that assign those of each participant to its first columns."""
    signs: list[int] = []
    for name, count in zip(job.party_names, counts, strict=True):
        nonzero = list(job.monotone.get(name, {}).values())
        if len(nonzero) > count:
            raise ParameterError(
                f"features: {count} of {name}, and the job constrains {len(nonzero)} of its columns"
            )
        signs += [*nonzero, *[0] * (count - len(nonzero))]
    return tuple(signs)
