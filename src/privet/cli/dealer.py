"""`privet dealer`: correlated randomness for a job's participants, online or preprocessed."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from privet.boosting.training import TrainingSpec
from privet.cli.console import LogFormat, open_event_bus
from privet.cli.options import (
    JobOption,
    WaitOption,
    parse_constraint_list,
    parse_cut_counts,
    parse_feature_counts,
)
from privet.config.job import Job
from privet.config.party import ClusterConfig
from privet.errors import DataError, ParameterError, UnavailableError
from privet.federation.dealer import run_dealer_session
from privet.federation.monitoring.events import Event, EventHandler, audit_session
from privet.federation.offline import (
    generate_preprocessing_files,
    generate_replicated_preprocessing,
    make_anonymous_features,
)
from privet.federation.session.retry import RETRYABLE_ERRORS, Backoff
from privet.federation.session.session import WAIT_SECONDS, LocalMember, open_session

KeyOption = Annotated[Path | None, typer.Option(help="Your private key.", show_default="NAME.key")]
CertificateOption = Annotated[
    Path | None, typer.Option(help="Your certificate.", show_default="NAME.crt")
]
DealerNameOption = Annotated[
    str | None, typer.Option(help="Which of three dealers you are.", show_default=False)
]
ListenOption = Annotated[
    str | None, typer.Option(help="HOST:PORT, if not the job's.", show_default="the job's")
]

ClusterFileOption = Annotated[
    Path | None,
    typer.Option(
        help="Where your workers are, if rows are in shards: a TOML file with what `cluster` has "
        "in party.toml.",
        show_default="threads of this process",
    ),
]


def dealer(
    job: JobOption,
    key: KeyOption = None,
    certificate: CertificateOption = None,
    name: DealerNameOption = None,
    listen: ListenOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Deal again and again, until stopped.")
    ] = False,
    ahead: Annotated[
        Path | None,
        typer.Option(help="Deal for a training into files there, before anybody is there."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="With --ahead: how many rows.", min=2, show_default=False)
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="With --ahead: each participant's number of columns, as 10,20,5."),
    ] = None,
    cuts: Annotated[
        str | None,
        typer.Option(help="With --ahead: each column's number of cuts, as `privet cuts` says."),
    ] = None,
    monotone: Annotated[
        str | None,
        typer.Option(
            help="With --ahead, if the job constrains columns: 1, -1 or 0 for each, as 0,1,0,-1."
        ),
    ] = None,
    done: Annotated[
        int, typer.Option(help="With --ahead: how many tables are trained already.", min=0)
    ] = 0,
    cluster: ClusterFileOption = None,
    audit: Annotated[
        Path | None, typer.Option(help="Add every session to that audit log.", show_default=False)
    ] = None,
    wait: WaitOption = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Supply randomness to a job's participants; ends when they are done, or one has failed."""
    with open_event_bus(log_format) as emit:
        agreed = Job.read(job)
        cluster_config = None if cluster is None else ClusterConfig.load(cluster)
        dealer_name = select_dealer(agreed, name)
        keys = str(key or f"{dealer_name}.key"), str(certificate or f"{dealer_name}.crt")
        if ahead is not None:
            if samples is None or features is None or keep:
                raise ParameterError("ahead: takes --samples and --features, and no --keep")
            member = LocalMember.from_keys(
                agreed, dealer_name, *keys, listen, timeout=wait, emit=emit
            )
            counts = parse_feature_counts(features, member.job)
            cut_counts = parse_cut_counts(cuts, member.job, sum(counts))
            if cut_counts is None and member.job.cut_disclosure != "hidden":
                raise ParameterError(
                    f"cuts: the job has each column's number told ({member.job.cut_disclosure}), "
                    "and what "
                    "is dealt depends on it: give --cuts, of which each participant knows its own "
                    "by `privet cuts`"
                )
            constraints = parse_constraint_list(monotone, member.job, sum(counts))
            if constraints is None:
                raise ParameterError(
                    "monotone: the job constrains columns by name, and what is dealt depends on "
                    "where they are: give --monotone, 1, -1 or 0 for each column in their order"
                )
            training_spec = member.job.make_training_spec(
                make_anonymous_features(member.job, counts), cut_counts, constraints
            )
            _preprocess(member, training_spec, ahead, samples, done)
            return
        if any(each is not None for each in (samples, features, cuts, monotone)) or done:
            raise ParameterError(
                "samples, features, cuts, monotone, done: are for --ahead, a folder for the files"
            )

        @contextlib.contextmanager
        def open_dealer_session() -> Iterator[LocalMember]:
            timeout, log = math.inf if keep else wait, None if audit is None else str(audit)
            with (
                audit_session(log, agreed, dealer_name, "dealer", emit),
                open_session(
                    agreed, dealer_name, *keys, listen, timeout=timeout, emit=emit
                ) as member,
            ):
                yield member

        _run_live(open_dealer_session, cluster_config, emit, keep)


def select_dealer(job: Job, name: str | None) -> str:
    """Return the name of the local dealer."""
    names = job.dealer_names
    if name is None and len(names) > 1:
        raise ParameterError(f"name: the job has three dealers: say --name, {' or '.join(names)}")
    if name is not None and name not in names:
        raise ParameterError(f"name: {name!r} is no dealer of the job; it has {', '.join(names)}")
    return name or names[0]


def _run_live(
    open_dealer_session: Callable[[], contextlib.AbstractContextManager[LocalMember]],
    cluster: ClusterConfig | None,
    emit: EventHandler,
    keep_running: bool,
) -> None:
    """Supply one session or the sessions of a service; with `keep_running`, until stopped."""
    should_retry, was_connected, backoff = keep_running, False, Backoff()
    while True:
        member: LocalMember | None = None
        try:
            with open_dealer_session() as member:
                seconds = run_dealer_session(member, cluster)
        except (*RETRYABLE_ERRORS, DataError) as error:
            if member is None:
                raise
            # A service consists of several sessions.
            should_retry = should_retry or member.was_serving
            was_connected = was_connected or member.is_connected
            # If no session ever connected, the local machine must be fixed first.
            if not should_retry or (isinstance(error, UnavailableError) and not was_connected):
                raise
            cause = {"error": str(error), "peer": error.peer, "step": error.step}
            emit(Event("failed", f"{error}; waiting for the next", cause))
            backoff.sleep(reset=member.was_serving)
            continue
        emit(Event("done", f"dealt in {seconds:.1f} s of computing", {"seconds": seconds}))
        if not keep_running:
            return
        was_connected, backoff = True, Backoff()


def _preprocess(
    member: LocalMember,
    training_spec: TrainingSpec,
    folder: Path,
    n_samples: int,
    trained_tables: int,
) -> None:
    tables = member.job.make_params().tables
    if trained_tables > tables or (trained_tables == tables and member.job.explain is None):
        raise ParameterError(f"done: {trained_tables} of {tables} tables leave nothing to deal for")
    started = time.perf_counter()
    if len(member.job.dealer_names) > 1:
        paths = generate_replicated_preprocessing(
            member, training_spec, folder, n_samples, trained_tables
        )
    else:
        paths = generate_preprocessing_files(
            member.job,
            training_spec,
            member.identity,
            folder,
            n_samples,
            trained_tables,
            member.emit,
        )
    seconds = time.perf_counter() - started
    for path, name in zip(paths, member.job.party_names, strict=True):
        member.emit(Event("dealt", f"{path}: for {name} alone", {"path": str(path), "for": name}))
    member.emit(
        Event(
            "done",
            f"dealt in {seconds:.1f} s; hand every file to its participant over a way that nobody "
            "can listen to, then delete it here",
            {"seconds": seconds, "bytes": sum(path.stat().st_size for path in paths)},
        )
    )
