"""The commands of a real federation: keys, train, forget, predict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.cli.console import LogFormat, telling
from privet.cli.options import JobFile, PartyOption, Wait
from privet.cli.seats import predicting, training
from privet.federation.events import Event, Tell
from privet.federation.party_report import PartyReport, Reveal
from privet.federation.prediction import predict_batch
from privet.federation.session import WAIT_SECONDS
from privet.federation.shard_rows import Batch
from privet.federation.training import train_part
from privet.files.atomic import make_folder, make_way
from privet.files.indicators import FOLDER, KeptIndicators
from privet.files.party_file import PartyFile
from privet.transport.identity import create_identity, renew_identity

ModelOption = Annotated[Path, typer.Option("--model", help="Your part of the model.")]
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
    renew: Annotated[
        bool, typer.Option("--renew", help="Renew the certificate that is there, for ten years.")
    ] = False,
) -> None:
    """Make a private key and a certificate, and print the fingerprint to tell the others."""
    if renew:
        identity = renew_identity(folder / f"{name}.key", folder / f"{name}.crt")
        typer.echo(f"renewed for {identity.days_left()} days; the fingerprint stays:", err=True)
        typer.echo(identity.fingerprint)
        return
    identity = create_identity(name, make_folder(folder))
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{identity.key_file} is yours alone; {identity.certificate_file} goes with it.")
    console.print("Tell the others this fingerprint, over a way that nobody can change:")
    typer.echo(identity.fingerprint)


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
            make_way(out)
        rows = own.read_new_rows(seat.job, file.encoders, data, query)
        batch = Batch(own.describe_new_rows(data, query), model, own.cluster)
        outcome, found = predict_batch(file, rows, seat, own.folder, explain=explain, batch=batch)
        recipient = seat.job.names[seat.job.recipient_index]
        text = f"the predictions of {outcome.n_samples:,} rows went to {recipient}"
        written = None
        if found is not None and out is not None:
            found.write(out)
            written = str(out.resolve())
            text = f"the predictions of {outcome.n_samples:,} rows are in {out}"
        elif found is not None:
            sys.stdout.buffer.write(found.to_csv())
            text = f"predicted {outcome.n_samples:,} rows"
        finish(outcome, report, tell, text, written)


def check_report(path: Path | None) -> None:
    """Raise UnavailableError unless a report could be written, if one is asked for."""
    if path is not None:
        make_way(path)


def finish(
    outcome: PartyReport, path: Path | None, tell: Tell, text: str, written: str | None = None
) -> None:
    """Tell what a run took, what it revealed, and where predictions were written, if any were."""
    if path is not None:
        outcome.write(path)
    tell_reveals(outcome.reveals, tell)
    tell(
        Event(
            "done",
            f"{text}\n{outcome.seconds:.1f} s, {outcome.rounds:,} rounds, "
            f"{outcome.bytes_sent / 1e6:,.1f} MB sent, "
            f"{outcome.bytes_from_dealer / 1e6:,.1f} MB from the dealer",
            outcome.model_dump() | ({} if written is None else {"out": written}),
        )
    )


def tell_reveals(reveals: Sequence[Reveal], tell: Tell) -> None:
    """Tell what left the protocol in the clear."""
    for reveal in reveals:
        text = f"revealed: {reveal.what} to {', '.join(reveal.to)}: {reveal.count:,}"
        tell(Event("revealed", text, reveal.model_dump()))
