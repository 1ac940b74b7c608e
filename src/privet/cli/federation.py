"""The commands of a participant: keys, align, train, predict, forget, export and shard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.boosting.model import Model
from privet.cli.console import LogFormat, telling
from privet.cli.options import JobFile, PartyOption, Wait
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.errors import ParameterError
from privet.federation.cluster.pool import Batch
from privet.federation.commands import (
    align_table,
    changes,
    predicting,
    shard_table,
    training,
    write_ids,
)
from privet.federation.monitoring.events import Event, Tell
from privet.federation.monitoring.report import PartyReport, Reveal
from privet.federation.prediction.export import export_part, receiver_of
from privet.federation.prediction.prediction import predict_batch
from privet.federation.session.session import WAIT_SECONDS
from privet.federation.training import train_part
from privet.filesystem import make_folder, make_way
from privet.storage.export import check_onnx, save_catboost, save_onnx
from privet.storage.indicators import FOLDER, KeptIndicators
from privet.storage.model import load_model, save_model
from privet.transport.tls import create_identity, renew_identity

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


def align(
    party: PartyOption,
    job: JobFile,
    out: Annotated[
        Path | None, typer.Option(help="Write the ids of your rows that all have there, as CSV.")
    ] = None,
    wait: Wait = WAIT_SECONDS,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Find out with the others which of your rows all have; `privet train` will use these."""
    with telling(log_format) as tell, training(party, job, wait, tell) as (own, seat):
        check_report(report)
        if out is not None:
            make_way(out)
        outcome, ids = align_table(own, seat)
        if report is not None:
            outcome.write(report)
        if out is not None:
            write_ids(ids, out)
        tell_reveals(outcome.reveals, tell)
        where = "" if out is None else f"; their ids are in {out}"
        text = f"{outcome.common:,} of your {outcome.rows:,} rows are common to all{where}\n"
        cost = (
            f"{outcome.seconds:.1f} s, {outcome.bytes_to_dealer / 1e6:,.1f} MB to the dealer, "
            f"{outcome.bytes_from_dealer / 1e6:,.1f} MB from it"
        )
        tell(Event("done", text + cost, outcome.model_dump()))


_Wanted = dict[Callable[..., None], Path | None]
"""Where a model is to be written, by what writes it."""


def export(
    party: Annotated[Path | None, typer.Option(help="Your own party.toml.")] = None,
    part: Annotated[Path | None, typer.Option(help="Your part of the model.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Instead of both: a whole model that was saved.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the model there, as this software reads it.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write it there, for ONNX.")] = None,
    catboost: Annotated[
        Path | None, typer.Option(help="Write it there, as CatBoost's JSON.")
    ] = None,
    job: OtherJob = None,
    wait: Wait = WAIT_SECONDS,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Join a model with the others, if the job names who may have it; or write a whole one anew."""
    wanted: _Wanted = {save_model: out, save_onnx: onnx, save_catboost: catboost}
    paths = [path for path in wanted.values() if path is not None]
    with telling(log_format) as tell:
        if model is not None:
            if any(option is not None for option in (party, part, job, report)):
                raise ParameterError("model: is whole; --party, --part, --job, --report join one")
            _check(paths, onnx)
            _write(load_model(model), wanted)
            tell(Event("done", f"the model is in {_listed(paths)}", {"paths": _texts(paths)}))
            return
        if party is None or part is None:
            raise ParameterError("party: give --party and --part, or --model for a whole model")
        with predicting(party, part, job, wait, tell) as (own, seat, file):
            receiver = receiver_of(seat.job)
            check_report(report)
            if own.name == receiver:
                _check(paths, onnx)
            elif paths:
                raise ParameterError(f"export: the model goes to {receiver}; leave {paths[0]} out")
            outcome, joined = export_part(file, seat)
            text = f"the whole model went to {receiver}"
            if joined is not None:
                _write(joined, wanted)
                text = f"the whole model is in {_listed(paths)}"
            finish(outcome, report, tell, text)


def _check(paths: list[Path], onnx: Path | None) -> None:
    """Raise an error unless all files can be written, before anybody is asked for anything."""
    if not paths:
        raise ParameterError("out: say where to write the model: --out, --onnx or --catboost")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ParameterError(f"out: two files have the same name, {paths[0]}; give them other ones")
    if onnx is not None:
        check_onnx()
    for path in paths:
        make_way(path)


def _write(model: Model, wanted: _Wanted) -> None:
    for save, path in wanted.items():
        if path is not None:
            save(model, path)


def _texts(paths: list[Path]) -> list[str]:
    return [str(path) for path in paths]


def _listed(paths: list[Path]) -> str:
    return " and ".join(_texts(paths))


def shard(
    party: PartyOption,
    job: JobFile,
    out: Annotated[Path, typer.Option(help="A new folder for the table.")],
    shards: Annotated[
        int | None,
        typer.Option(help="How many files it gets.", show_default="as many as the job has shards"),
    ] = None,
) -> None:
    """Write your table anew, in the order of the job's rows: a file for each shard."""
    own, agreed = PartyFile.load(party), Job.read(job)
    shards = agreed.shards if shards is None else shards
    written = shard_table(own, agreed, out, shards)
    lines, gone = changes(own.data, written)
    typer.echo(f"{shards} file{'s' * (shards > 1)} in {out}; in {party}, under [data], say")
    typer.echo("".join(f"\n    {line}" for line in lines) + "\n")
    if gone:
        typer.echo(f"and leave out what the new table has no use for: {', '.join(gone)}")
