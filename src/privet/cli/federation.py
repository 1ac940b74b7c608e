"""The commands of a participant: keys, align, train, predict, forget, export and shard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.boosting.model import Model
from privet.cli.console import LogFormat, open_event_bus
from privet.cli.options import JobOption, PartyOption, WaitOption
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import ParameterError
from privet.federation.cluster.pool import BatchSource
from privet.federation.commands import (
    diff_table_specs,
    open_prediction_session,
    open_training_session,
    run_alignment,
    write_ids,
    write_party_shards,
)
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.monitoring.report import PartyReport, Reveal
from privet.federation.prediction.export import export_part, get_export_receiver
from privet.federation.prediction.prediction import predict_batch
from privet.federation.session.session import WAIT_SECONDS
from privet.federation.training import run_training
from privet.filesystem import make_folder, prepare_output
from privet.storage.export import check_onnx, save_catboost, save_onnx
from privet.storage.indicators import FOLDER, KeptIndicators
from privet.storage.model import read_model_file, write_model_file
from privet.transport.tls import create_identity, renew_identity

PartPathOption = Annotated[Path, typer.Option("--model", help="Your part of the model.")]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write what it took there, as JSON.")
]
QueryOption = Annotated[
    str | None, typer.Option(help="Instead: a query to the PostgreSQL server of party.toml.")
]
OtherJobOption = Annotated[
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
        typer.echo(
            f"renewed for {identity.count_days_left()} days; the fingerprint stays:", err=True
        )
        typer.echo(identity.fingerprint)
        return
    identity = create_identity(name, make_folder(folder))
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{identity.key_file} is yours alone; {identity.certificate_file} goes with it.")
    console.print("Tell the others this fingerprint, over a way that nobody can change:")
    typer.echo(identity.fingerprint)


def train(
    party: PartyOption,
    job: JobOption,
    wait: WaitOption = WAIT_SECONDS,
    restart: Annotated[
        bool, typer.Option("--restart", help="From the first table, whatever is there.")
    ] = False,
    report: ReportOption = None,
    log_format: LogFormat = "text",
) -> None:
    """Train the job's model with the others, or go on where an earlier run was cut short."""
    with (
        open_event_bus(log_format) as emit,
        open_training_session(party, job, wait, emit) as (party_config, member),
    ):
        check_report_path(report)
        outcome, path = run_training(party_config, member, restart=restart)
        emit_result(outcome, report, emit, f"your part of the model is {path}")


def forget(party: PartyOption) -> None:
    """Delete the indicators that you keep from trainings: the next one publishes all of them."""
    count = KeptIndicators(Path(PartyConfig.load(party).folder) / FOLDER).forget()
    typer.echo(f"{count} files deleted")


def predict(
    party: PartyOption,
    part: PartPathOption,
    data: Annotated[
        str | None,
        typer.Option(help="Your columns of the new rows.", show_default="the table of party.toml"),
    ] = None,
    query: QueryOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the recipient gets the predictions.", show_default="stdout"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell the recipient, too, what contributes to them.")
    ] = False,
    job: OtherJobOption = None,
    wait: WaitOption = WAIT_SECONDS,
    report: ReportOption = None,
    log_format: LogFormat = "text",
) -> None:
    """Predict a batch with the others; the predictions go to the job's recipient."""
    with (
        open_event_bus(log_format) as emit,
        open_prediction_session(party, part, job, wait, emit) as session,
    ):
        party_config, member, file = session
        check_report_path(report)
        if out is not None:
            prepare_output(out)
        rows = party_config.read_new_rows(member.job, file.encoders, data, query)
        batch = BatchSource(
            party_config.make_prediction_table_spec(data, query), part, party_config.cluster
        )
        outcome, predictions = predict_batch(
            file, rows, member, party_config.folder, explain=explain, source=batch
        )
        recipient = member.job.party_names[member.job.recipient_index]
        text = f"the predictions of {outcome.n_samples:,} rows went to {recipient}"
        written = None
        if predictions is not None and out is not None:
            predictions.write(out)
            written = str(out.resolve())
            text = f"the predictions of {outcome.n_samples:,} rows are in {out}"
        elif predictions is not None:
            sys.stdout.buffer.write(predictions.to_csv())
            text = f"predicted {outcome.n_samples:,} rows"
        emit_result(outcome, report, emit, text, written)


def check_report_path(path: Path | None) -> None:
    """Raise UnavailableError if a report is requested and its file cannot be written."""
    if path is not None:
        prepare_output(path)


def emit_result(
    report: PartyReport,
    path: Path | None,
    emit: EventHandler,
    text: str,
    output_path: str | None = None,
) -> None:
    """Report the cost of a run, its disclosures, and the path of any predictions."""
    if path is not None:
        report.write(path)
    emit_disclosures(report.reveals, emit)
    emit(
        Event(
            "done",
            f"{text}\n{report.seconds:.1f} s, {report.rounds:,} rounds, "
            f"{report.bytes_sent / 1e6:,.1f} MB sent, "
            f"{report.bytes_from_dealer / 1e6:,.1f} MB from the dealer",
            report.model_dump() | ({} if output_path is None else {"out": output_path}),
        )
    )


def emit_disclosures(disclosures: Sequence[Reveal], emit: EventHandler) -> None:
    """Emit an event for each disclosure."""
    for reveal in disclosures:
        text = f"revealed: {reveal.what} to {', '.join(reveal.to)}: {reveal.count:,}"
        emit(Event("revealed", text, reveal.model_dump()))


def align(
    party: PartyOption,
    job: JobOption,
    out: Annotated[
        Path | None, typer.Option(help="Write the ids of your rows that all have there, as CSV.")
    ] = None,
    wait: WaitOption = WAIT_SECONDS,
    report: ReportOption = None,
    log_format: LogFormat = "text",
) -> None:
    """Find out with the others which of your rows all have; `privet train` will use these."""
    with (
        open_event_bus(log_format) as emit,
        open_training_session(party, job, wait, emit) as (party_config, member),
    ):
        check_report_path(report)
        if out is not None:
            prepare_output(out)
        outcome, ids = run_alignment(party_config, member)
        if report is not None:
            outcome.write(report)
        if out is not None:
            write_ids(ids, out)
        emit_disclosures(outcome.reveals, emit)
        location = "" if out is None else f"; their ids are in {out}"
        text = f"{outcome.common:,} of your {outcome.rows:,} rows are common to all{location}\n"
        cost = (
            f"{outcome.seconds:.1f} s, {outcome.bytes_to_dealer / 1e6:,.1f} MB to the dealer, "
            f"{outcome.bytes_from_dealer / 1e6:,.1f} MB from it"
        )
        emit(Event("done", text + cost, outcome.model_dump()))


_OutputPaths = dict[Callable[..., None], Path | None]
"""The output path of each writing function."""


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
    job: OtherJobOption = None,
    wait: WaitOption = WAIT_SECONDS,
    report: ReportOption = None,
    log_format: LogFormat = "text",
) -> None:
    """Join a model with the others, if the job names who may have it; or write a whole one anew."""
    output_paths: _OutputPaths = {write_model_file: out, save_onnx: onnx, save_catboost: catboost}
    paths = [path for path in output_paths.values() if path is not None]
    with open_event_bus(log_format) as emit:
        if model is not None:
            if any(option is not None for option in (party, part, job, report)):
                raise ParameterError("model: is whole; --party, --part, --job, --report join one")
            _check(paths, onnx)
            _write(read_model_file(model), output_paths)
            emit(
                Event(
                    "done", f"the model is in {_join_paths(paths)}", {"paths": _to_strings(paths)}
                )
            )
            return
        if party is None or part is None:
            raise ParameterError("party: give --party and --part, or --model for a whole model")
        with open_prediction_session(party, part, job, wait, emit) as (party_config, member, file):
            receiver = get_export_receiver(member.job)
            check_report_path(report)
            if party_config.name == receiver:
                _check(paths, onnx)
            elif paths:
                raise ParameterError(f"export: the model goes to {receiver}; leave {paths[0]} out")
            outcome, joined = export_part(file, member)
            text = f"the whole model went to {receiver}"
            if joined is not None:
                _write(joined, output_paths)
                text = f"the whole model is in {_join_paths(paths)}"
            emit_result(outcome, report, emit, text)


def _check(paths: list[Path], onnx: Path | None) -> None:
    """Raise an error unless all files can be written."""
    if not paths:
        raise ParameterError("out: say where to write the model: --out, --onnx or --catboost")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ParameterError(f"out: two files have the same name, {paths[0]}; give them other ones")
    if onnx is not None:
        check_onnx()
    for path in paths:
        prepare_output(path)


def _write(model: Model, output_paths: _OutputPaths) -> None:
    for save, path in output_paths.items():
        if path is not None:
            save(model, path)


def _to_strings(paths: list[Path]) -> list[str]:
    return [str(path) for path in paths]


def _join_paths(paths: list[Path]) -> str:
    return " and ".join(_to_strings(paths))


def shard(
    party: PartyOption,
    job: JobOption,
    out: Annotated[Path, typer.Option(help="A new folder for the table.")],
    shards: Annotated[
        int | None,
        typer.Option(help="How many files it gets.", show_default="as many as the job has shards"),
    ] = None,
) -> None:
    """Write your table anew, in the order of the job's rows: a file for each shard."""
    party_config, agreed = PartyConfig.load(party), Job.read(job)
    shards = agreed.shards if shards is None else shards
    table_spec = write_party_shards(party_config, agreed, out, shards)
    lines, obsolete_keys = diff_table_specs(party_config.data, table_spec)
    typer.echo(f"{shards} file{'s' * (shards > 1)} in {out}; in {party}, under [data], say")
    typer.echo("".join(f"\n    {line}" for line in lines) + "\n")
    if obsolete_keys:
        typer.echo(f"and leave out what the new table has no use for: {', '.join(obsolete_keys)}")
