"""The commands of a real federation: keys, dealer, train, forget, predict, serve."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.cli.console import LogFormat, telling
from privet.cli.options import JobFile, PartyOption, columns_of, cut_counts_of
from privet.cli.seats import predicting, training
from privet.errors import CorrelationError, DataError, DisagreementError, ParameterError, PeerError
from privet.federation.ahead import deal_files, numbered_features
from privet.federation.dealing import deal
from privet.federation.events import Event, Tell
from privet.federation.http import endpoint
from privet.federation.party_report import PartyReport, Reveal
from privet.federation.prediction import predict_batch
from privet.federation.request_queue import RequestQueue
from privet.federation.serving import serve_part
from privet.federation.session import WAIT_SECONDS, Seat, seated
from privet.federation.training import train_part
from privet.files.atomic import check_writable, make_folder
from privet.files.contacts import parse_address
from privet.files.indicators import FOLDER, KeptIndicators
from privet.files.job import Job
from privet.files.party_file import PartyFile
from privet.runtime.roles import DEALER
from privet.transport.identity import create_identity

ModelOption = Annotated[Path, typer.Option("--model", help="Your part of the model.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for the others to start.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", help="Write what it took there, as JSON.")
]
NewRows = Annotated[
    str | None, typer.Option(help="Instead: a query to the PostgreSQL server of party.toml.")
]
OtherJob = Annotated[
    Path | None,
    typer.Option("--job", help="The job with new addresses or keys.", show_default="the model's"),
]


def keys(
    name: Annotated[str, typer.Argument(help='Your name in jobs; the dealer\'s is "dealer".')],
    folder: Annotated[Path, typer.Option(help="Where to put the files.")] = Path(),
) -> None:
    """Make a private key and a certificate, and print the fingerprint to tell the others."""
    identity = create_identity(name, make_folder(folder))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"{identity.key_file} is yours alone; {identity.certificate_file} goes with it.")
    console.print("Tell the others this fingerprint, over a way that nobody can change:")
    typer.echo(identity.fingerprint)


def dealer(
    job: JobFile,
    key: Annotated[Path, typer.Option(help="Your private key.")] = Path("dealer.key"),
    certificate: Annotated[Path, typer.Option(help="Your certificate.")] = Path("dealer.crt"),
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT, if not the job's.", show_default="the job's")
    ] = None,
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
    done: Annotated[
        int, typer.Option(help="With --ahead: how many tables are trained already.", min=0)
    ] = 0,
    wait: Wait = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Supply randomness to a job's participants; ends when they are done, or one has failed."""
    with telling(log_format) as tell:
        agreed, keys = Job.read(job), (str(key), str(certificate))
        if ahead is not None:
            if samples is None or features is None or keep:
                raise ParameterError("ahead: takes --samples and --features, and no --keep")
            seat = Seat.take(agreed, DEALER, *keys, tell=tell)
            counts = columns_of(features, seat.job)
            cut_counts = cut_counts_of(cuts, seat.job, sum(counts))
            if cut_counts is None and seat.job.told_cuts != "hidden":
                raise ParameterError(
                    f"cuts: the job has each column's number told ({seat.job.told_cuts}), and what "
                    "is dealt depends on it: give --cuts, of which each participant knows its own "
                    "by `privet cuts`"
                )
            _deal_ahead(seat, ahead, samples, counts, cut_counts, done)
            return
        if samples is not None or features is not None or cuts is not None or done:
            raise ParameterError(
                "samples, features, cuts, done: are for --ahead, a folder for the files"
            )
        patience = math.inf if keep else wait
        while True:
            try:
                with seated(agreed, DEALER, *keys, listen, wait=patience, tell=tell) as seat:
                    seconds = deal(seat)
                tell(Event("done", f"dealt in {seconds:.1f} s of computing", {"seconds": seconds}))
            except (PeerError, DisagreementError, CorrelationError, DataError) as error:
                if not keep:
                    raise
                blame = {"error": str(error), "peer": error.peer, "step": error.step}
                tell(Event("failed", f"{error}; waiting for the next", blame))
            if not keep:
                return


def _deal_ahead(
    seat: Seat,
    folder: Path,
    samples: int,
    counts: Sequence[int],
    cut_counts: tuple[int, ...] | None,
    done: int,
) -> None:
    tables = seat.job.hyper_parameters().tables
    if done > tables or (done == tables and seat.job.explain is None):
        raise ParameterError(f"done: {done} of {tables} tables leave nothing to deal for")
    started = time.perf_counter()
    federation = seat.job.federation(numbered_features(seat.job, counts), cut_counts)
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


def train(
    party: PartyOption,
    job: JobFile,
    wait: Wait = WAIT_SECONDS,
    restart: Annotated[
        bool, typer.Option("--restart", help="From the first table, whatever is there.")
    ] = False,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Train the job's model with the others, or go on where an earlier run was cut short."""
    with telling(log_format) as tell, training(party, job, wait, tell) as (own, seat):
        check_report(report)
        outcome, path = train_part(own, seat, restart=restart)
        finish(outcome, report, tell, f"your part of the model is {path}")


def forget(party: PartyOption) -> None:
    """Delete the indicators that you keep from trainings: the next one publishes all of them."""
    count = KeptIndicators(Path(PartyFile.load(party).folder) / FOLDER).forget()
    typer.echo(f"{count} files deleted")


def predict(
    party: PartyOption,
    model: ModelOption,
    data: Annotated[
        str | None,
        typer.Option(help="Your columns of the new rows.", show_default="the table of party.toml"),
    ] = None,
    query: NewRows = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the recipient gets the predictions.", show_default="stdout"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell the recipient, too, what contributes to them.")
    ] = False,
    job: OtherJob = None,
    wait: Wait = WAIT_SECONDS,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Predict a batch with the others; the predictions go to the job's recipient."""
    with telling(log_format) as tell, predicting(party, model, job, wait, tell) as given:
        own, seat, file = given
        check_report(report)
        if out is not None:
            check_writable(out)
        rows = own.read_new_rows(seat.job, file.encoders, data, query)
        outcome, found = predict_batch(file, rows, seat, own.folder, explain=explain)
        recipient = seat.job.names[seat.job.recipient_index]
        text = f"the predictions of {outcome.n_samples:,} rows went to {recipient}"
        if found is not None and out is not None:
            found.write(out)
            text = f"the predictions of {outcome.n_samples:,} rows are in {out}"
        elif found is not None:
            sys.stdout.buffer.write(found.to_csv())
            text = f"predicted {outcome.n_samples:,} rows"
        finish(outcome, report, tell, text)


def serve(
    party: PartyOption,
    model: ModelOption,
    data: Annotated[
        str | None,
        typer.Option(help="The rows to answer for.", show_default="those of party.toml"),
    ] = None,
    query: NewRows = None,
    http: Annotated[str, typer.Option(help="HOST:PORT where the recipient is asked.")] = (
        "127.0.0.1:8000"
    ),
    job: OtherJob = None,
    wait: Wait = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Stay connected and answer predictions by ids; the recipient is asked over HTTP."""
    with telling(log_format) as tell, predicting(party, model, job, wait, tell) as given:
        own, seat, file = given
        agreed = seat.job
        rows = own.read_new_rows(agreed, file.encoders, data, query)
        if own.name != agreed.names[agreed.recipient_index]:
            tell_reveals(serve_part(file, rows, seat, own.folder), tell)
            tell(Event("done", "the recipient has ended the service"))
            return
        host, port = parse_address(http, lowest=0)
        queue = RequestQueue(explains=agreed.explain is not None)
        about, parts = {"job": agreed.name, "model": file.model}, agreed.ids.parts
        with endpoint(host, port, queue, about, parts) as found:
            tell(Event("http", f"asking is on http://{host}:{found}/predict", {"port": found}))
            stopping = partial(_close_when_stopped, queue)
            tell_reveals(serve_part(file, rows, seat, own.folder, queue, stopping), tell)
        tell(Event("done", f"served {queue.served.requests:,} requests", vars(queue.served)))


def _close_when_stopped(queue: RequestQueue) -> None:
    """End the service, not the process, when somebody interrupts or terminates it."""

    def close(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # a second time ends the process
        # In a thread of its own: the main one may be in the middle of using the queue.
        threading.Thread(target=queue.close, args=("the service was stopped",)).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, close)


def check_report(path: Path | None) -> None:
    """Raise UnavailableError unless a report could be written, if one is asked for."""
    if path is not None:
        check_writable(path)


def finish(outcome: PartyReport, path: Path | None, tell: Tell, text: str) -> None:
    """Tell what a run took, and what it revealed."""
    if path is not None:
        outcome.write(path)
    tell_reveals(outcome.reveals, tell)
    tell(
        Event(
            "done",
            f"{text}\n{outcome.seconds:.1f} s, {outcome.rounds:,} rounds, "
            f"{outcome.bytes_sent / 1e6:,.1f} MB sent, "
            f"{outcome.bytes_from_dealer / 1e6:,.1f} MB from the dealer",
            outcome.model_dump(),
        )
    )


def tell_reveals(reveals: Sequence[Reveal], tell: Tell) -> None:
    """Tell what left the protocol in the clear."""
    for reveal in reveals:
        text = f"revealed: {reveal.what} to {', '.join(reveal.to)}: {reveal.count:,}"
        tell(Event("revealed", text, reveal.model_dump()))
