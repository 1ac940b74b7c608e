"""`privet dealer`: randomness for the participants of a job, live or ahead."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from privet.boosting.training import Federation
from privet.cli.console import LogFormat, telling
from privet.cli.options import JobFile, Wait, columns_of, cut_counts_of, monotone_of
from privet.config.job import Job
from privet.config.party import Cluster
from privet.errors import DataError, ParameterError, UnavailableError
from privet.federation.dealer import deal
from privet.federation.monitoring.events import Event, Tell, audited
from privet.federation.offline import deal_files, deal_files_together, numbered_features
from privet.federation.session.retry import OTHERS, Pauses
from privet.federation.session.session import WAIT_SECONDS, Seat, seated

Key = Annotated[Path | None, typer.Option(help="Your private key.", show_default="NAME.key")]
Certificate = Annotated[
    Path | None, typer.Option(help="Your certificate.", show_default="NAME.crt")
]
Name = Annotated[
    str | None, typer.Option(help="Which of three dealers you are.", show_default=False)
]
Listen = Annotated[
    str | None, typer.Option(help="HOST:PORT, if not the job's.", show_default="the job's")
]

ClusterFile = Annotated[
    Path | None,
    typer.Option(
        help="Where your workers are, if rows are in shards: a TOML file with what `cluster` has "
        "in party.toml.",
        show_default="threads of this process",
    ),
]


def dealer(
    job: JobFile,
    key: Key = None,
    certificate: Certificate = None,
    name: Name = None,
    listen: Listen = None,
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
    cluster: ClusterFile = None,
    audit: Annotated[
        Path | None, typer.Option(help="Add every session to that audit log.", show_default=False)
    ] = None,
    wait: Wait = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Supply randomness to a job's participants; ends when they are done, or one has failed."""
    with telling(log_format) as tell:
        agreed = Job.read(job)
        placed = None if cluster is None else Cluster.load(cluster)
        ours = which_dealer(agreed, name)
        keys = str(key or f"{ours}.key"), str(certificate or f"{ours}.crt")
        if ahead is not None:
            if samples is None or features is None or keep:
                raise ParameterError("ahead: takes --samples and --features, and no --keep")
            seat = Seat.take(agreed, ours, *keys, listen, wait=wait, tell=tell)
            counts = columns_of(features, seat.job)
            cut_counts = cut_counts_of(cuts, seat.job, sum(counts))
            if cut_counts is None and seat.job.told_cuts != "hidden":
                raise ParameterError(
                    f"cuts: the job has each column's number told ({seat.job.told_cuts}), and what "
                    "is dealt depends on it: give --cuts, of which each participant knows its own "
                    "by `privet cuts`"
                )
            signs = monotone_of(monotone, seat.job, sum(counts))
            if signs is None:
                raise ParameterError(
                    "monotone: the job constrains columns by name, and what is dealt depends on "
                    "where they are: give --monotone, 1, -1 or 0 for each column in their order"
                )
            federation = seat.job.federation(numbered_features(seat.job, counts), cut_counts, signs)
            _deal_ahead(seat, federation, ahead, samples, done)
            return
        if any(each is not None for each in (samples, features, cuts, monotone)) or done:
            raise ParameterError(
                "samples, features, cuts, monotone, done: are for --ahead, a folder for the files"
            )

        @contextlib.contextmanager
        def sit() -> Iterator[Seat]:
            patience, log = math.inf if keep else wait, None if audit is None else str(audit)
            with (
                audited(log, agreed, ours, "dealer", tell),
                seated(agreed, ours, *keys, listen, wait=patience, tell=tell) as seat,
            ):
                yield seat

        _deal_live(sit, placed, tell, keep)


def which_dealer(job: Job, name: str | None) -> str:
    """Return which dealer of a job we are."""
    names = job.dealer_names
    if name is None and len(names) > 1:
        raise ParameterError(f"name: the job has three dealers: say --name, {' or '.join(names)}")
    if name is not None and name not in names:
        raise ParameterError(f"name: {name!r} is no dealer of the job; it has {', '.join(names)}")
    return name or names[0]


def _deal_live(
    sit: Callable[[], contextlib.AbstractContextManager[Seat]],
    cluster: Cluster | None,
    tell: Tell,
    keep: bool,
) -> None:
    """Deal in a session, or in those of a service; or on and on, if we are to keep at it."""
    lasting, met, pauses = keep, False, Pauses()
    while True:
        seat: Seat | None = None
        try:
            with sit() as seat:
                seconds = deal(seat, cluster)
        except (*OTHERS, DataError) as error:
            if seat is None:
                raise
            # A service is more than one session.
            lasting, met = lasting or seat.serving, met or seat.met
            # A machine on which we could never begin is to be mended first.
            if not lasting or (isinstance(error, UnavailableError) and not met):
                raise
            blame = {"error": str(error), "peer": error.peer, "step": error.step}
            tell(Event("failed", f"{error}; waiting for the next", blame))
            pauses.wait(from_anew=seat.serving)
            continue
        tell(Event("done", f"dealt in {seconds:.1f} s of computing", {"seconds": seconds}))
        if not keep:
            return
        met, pauses = True, Pauses()


def _deal_ahead(seat: Seat, federation: Federation, folder: Path, samples: int, done: int) -> None:
    tables = seat.job.hyper_parameters().tables
    if done > tables or (done == tables and seat.job.explain is None):
        raise ParameterError(f"done: {done} of {tables} tables leave nothing to deal for")
    started = time.perf_counter()
    if len(seat.job.dealer_names) > 1:
        paths = deal_files_together(seat, federation, folder, samples, done)
    else:
        paths = deal_files(seat.job, federation, seat.identity, folder, samples, done, seat.tell)
    seconds = time.perf_counter() - started
    for path, name in zip(paths, seat.job.names, strict=True):
        seat.tell(Event("dealt", f"{path}: for {name} alone", {"path": str(path), "for": name}))
    seat.tell(
        Event(
            "done",
            f"dealt in {seconds:.1f} s; hand every file to its participant over a way that nobody "
            "can listen to, then delete it here",
            {"seconds": seconds, "bytes": sum(path.stat().st_size for path in paths)},
        )
    )
