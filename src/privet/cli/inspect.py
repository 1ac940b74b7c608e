"""The commands that change nothing: inspect, estimate, check and audit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.boosting.preparation import prepare_data
from privet.boosting.summary import ModelSummary, summarise_model, summarise_part
from privet.cli.app import format_epilog
from privet.cli.dealer import (
    CertificateOption,
    ClusterFileOption,
    DealerNameOption,
    KeyOption,
    ListenOption,
    select_dealer,
)
from privet.cli.options import (
    JobOption,
    PartyOption,
    parse_constraint_list,
    parse_cut_counts,
    parse_feature_counts,
)
from privet.config.job import Job
from privet.config.party import ClusterConfig, PartyConfig
from privet.data.frame import LazyFrame
from privet.data.sources.base import locate_errors
from privet.errors import DataError, ParameterError
from privet.experiments.plots import plot_model
from privet.federation.preflight import (
    CheckResult,
    TrainingForecast,
    check_audit_log,
    check_cluster,
    check_member,
    check_party,
    forecast_training,
)
from privet.spec.plan import disclose_cut_counts
from privet.storage.alignment import AlignmentStore
from privet.storage.journal import AuditLog
from privet.storage.model import is_model_file, read_model_file
from privet.storage.model_part import load_part

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, on stdout.")]


def inspect(
    model: Annotated[Path, typer.Argument(help="Your part of a model, or a whole model.")],
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into that folder, as SVG pictures.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="With --plot: the report of the training, for its losses.")
    ] = None,
) -> None:
    """Show your part of a model: its tests, whose they are, your thresholds, importances."""
    if report is not None and plot is None:
        raise ParameterError("report: is for pictures; add --plot FOLDER, or leave it out")
    metadata, summary = _read(model)
    if plot is not None:
        paths = plot_model(summary, plot, () if report is None else _load_losses(report))
        typer.echo(f"{len(paths)} pictures are in {plot}", err=True)
    if as_json:
        typer.echo(json.dumps({**metadata, **summary.to_dict()}, indent=2))
        return
    if plot is not None:
        return
    console = Console(highlight=False, markup=False)
    console.print(f"{_format_title(metadata)}, {len(summary.tables)} tables")
    if metadata["classes"]:
        console.print(f"classes: {', '.join(map(repr, metadata['classes']))}")
    if metadata.get("explain") is not None:
        console.print(f"explains predictions, by {metadata['explain']}")
    splits = Table()
    splits.add_column("table", justify="right")
    for level in range(len(summary.tables[0])):
        splits.add_column(f"level {level}", overflow="fold")
    for number, table in enumerate(summary.tables, start=1):
        splits.add_row(str(number), *(Text(split.text) for split in table))
    console.print(splits)
    importances = Table()
    gains = None if summary.importances_by_gain is None else dict(summary.importances_by_gain)
    importances.add_column("feature")
    importances.add_column("of")
    for column in ("importance",) if gains is None else ("importance", "by gain"):
        importances.add_column(column, justify="right")
    for feature, share in summary.importances:
        gain_cells = [] if gains is None else [f"{gains.get(feature, 0.0):.3f}"]
        importances.add_row(Text(feature.name), feature.owner, f"{share:.3f}", *gain_cells)
    console.print(importances)


def _read(path: Path) -> tuple[dict[str, Any], ModelSummary]:
    """Return the metadata of a part or a whole model, and its summary."""
    if is_model_file(path):
        model = read_model_file(path)
        return {"task": model.task, "classes": list(model.classes)}, summarise_model(model)
    file = load_part(path)
    metadata = {
        "model": file.model_id,
        "job": file.job.name,
        "party": file.part.party,
        "task": file.part.task,
        "protocol": file.part.protocol,
        "classes": list(file.classes),
        "explain": file.job.explain,
    }
    return metadata, summarise_part(file.part, file.encoders)


def _format_title(metadata: dict[str, Any]) -> str:
    if "party" not in metadata:
        return f"a whole model: {metadata['task']}"
    return (
        f"{metadata['party']}'s part of the model {metadata['model'][:16]} of the job "
        f"{metadata['job']}: {metadata['task']}, protocol {metadata['protocol']}"
    )


def _load_losses(path: Path) -> list[float]:
    """Return the loss of each table from a report."""
    try:
        if path.exists() and not path.is_file():
            raise ParameterError(f"report: {path}: is no file")
        report = json.loads(path.read_bytes())
    except OSError as error:
        raise ParameterError(f"report: {path}: {error.strerror}") from None
    except ParameterError:
        raise
    except ValueError:
        raise ParameterError(f"report: {path}: not a report, which is JSON") from None
    sections = [report, report.get("validation")] if isinstance(report, dict) else []
    for section in sections:
        losses = section.get("losses") if isinstance(section, dict) else None
        if isinstance(losses, list) and losses and all(isinstance(x, float) for x in losses):
            return losses
    raise ParameterError(f"report: {path}: has no losses; leave it out, or give one that has")


def cuts(
    party: PartyOption,
    job: JobOption,
    as_json: JsonOption = False,
) -> None:
    """Show what a training will tell of your columns: how many cuts each has, as the job says."""
    party_config, agreed = PartyConfig.load(party), Job.read(job)
    params = agreed.make_params()
    table = _select_rows(party_config, agreed)
    with locate_errors(party_config.data.display_name):
        columns = prepare_data(party_config.name, table, params, party_config.data.positive).columns
    disclosed = disclose_cut_counts(columns.cut_counts, agreed.cut_disclosure, params.max_cut_count)
    if as_json:
        typer.echo(
            json.dumps(disclosed and dict(zip(columns.names, disclosed, strict=True)), indent=2)
        )
        return
    if disclosed is None:
        typer.echo("the job has nothing told of numbers of cuts", err=True)
        return
    for name, count in zip(columns.names, disclosed, strict=True):
        typer.echo(f"{name}: {count}", err=True)
    typer.echo(",".join(str(count) for count in disclosed))


def _select_rows(party_config: PartyConfig, job: Job) -> LazyFrame:
    """Return the local rows; with alignment, the common rows that a stored alignment lists."""
    table = party_config.read_rows(job)
    if not job.align:
        return table
    assert table.row_data.ids is not None
    alignment = AlignmentStore(party_config.folder, job).find(table.row_data.ids.digest().hex())
    if alignment is None:
        raise DataError(
            f"{party_config.data.display_name}: numbers of cuts are those of the rows that all "
            "have, and these are not known yet: run `privet align` with the others first"
        )
    return table.take(alignment.rows)


def _format_machine_needs(job: Job, forecast: TrainingForecast) -> Iterator[str]:
    """Yield lines on the memory and disk that a participant and its workers need."""
    cost = forecast.estimate
    if job.shards == 1:
        yield f"memory of a participant, about  {cost.memory_bytes / 1e6:,.0f} MB"
    else:
        yield f"memory of a worker, about       {cost.memory_bytes / 1e6:,.0f} MB, of {job.shards}"
        yield f"  of their participant          {cost.coordinator_memory_bytes / 1e6:,.0f} MB"
        yield f"  between it and its workers    {forecast.worker_command_bytes / 1e6:,.1f} MB"
    yield f"disk for a while (TMPDIR)       {cost.scratch_bytes / 1e6:,.0f} MB"
    yield f"disk for checkpoints            {forecast.checkpoint_bytes / 1e6:,.1f} MB"


def estimate(
    job: JobOption,
    samples: Annotated[int, typer.Option(help="How many rows.", min=2)],
    features: Annotated[
        str,
        typer.Option(help="How many columns each participant has: 10,20,5, in the job's order."),
    ],
    cuts: Annotated[
        str | None,
        typer.Option(
            help="How many cuts each column has, as `privet cuts` says: 31,7,1, in that order.",
            show_default="the most",
        ),
    ] = None,
    monotone: Annotated[
        str | None,
        typer.Option(
            help="If the job constrains columns: 1, -1 or 0 for each, in that order.",
            show_default="the first ones",
        ),
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="With all indicators kept from an earlier training.")
    ] = False,
    delay: Annotated[float, typer.Option(help="Milliseconds between participants.", min=0)] = 5.0,
    rate: Annotated[float, typer.Option(help="Mbit/s that all share.", min=0.001)] = 100.0,
    as_json: JsonOption = False,
) -> None:
    """Say what a job's training will take, before anybody starts it."""
    agreed = Job.read(job)
    counts = parse_feature_counts(features, agreed)
    if kept and not agreed.keep_indicators:
        raise ParameterError("kept: the job has no indicators kept; it says so by keep_indicators")
    forecast = forecast_training(
        agreed,
        samples,
        counts,
        cut_counts=parse_cut_counts(cuts, agreed, sum(counts)),
        monotone=parse_constraint_list(monotone, agreed, sum(counts)),
        kept=kept,
    )
    cost, times = forecast.estimate, forecast.estimate_times(delay, rate)
    values = forecast.to_dict(delay, rate)
    time, at_most = times["ahead"], forecast.is_upper_bound
    dealers = len(agreed.dealer_names)
    dealer_text = "dealers" if dealers > 1 else "dealer"
    max_cuts = agreed.make_params().max_cut_count
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    for line in (
        f"rounds                          {cost.rounds:,}",
        f"between the participants        {cost.online_bytes / 1e6:,.1f} MB",
        f"{f'from the {dealer_text}':32}{cost.offline_bytes / 1e6:,.1f} MB",
        *([f"between the dealers             {cost.dealer_bytes / 1e6:,.1f} MB"] * (dealers > 1)),
        *_format_machine_needs(agreed, forecast),
        f"masks of rows                   {cost.masks}",
        f"time, about                     {time.total:,.0f} s, if correlations are dealt ahead",
        f"{'':32}{times['own'].total:,.0f} s, with a dealer on a link of its own, of that rate",
        f"{'':32}{times['shared'].total:,.0f} s, with a dealer on the participants' link",
        f"  delays of {f'{delay:g} ms':21} {time.delays:,.1f} s",
        f"  carrying at {f'{rate:g} Mbit/s':19} {time.transfer_seconds:,.1f} s",
        f"  computing                     {time.compute_seconds:,.1f} s on a 2.8 GHz core each, "
        "partly while bytes are carried",
        f"  the dealer's own link         {times['own'].dealing:,.1f} s, while all that goes on",
    ):
        typer.echo(line)
    if at_most:
        typer.echo(
            f"That is with {max_cuts} cuts of every column, the most there can be: --cuts takes "
            f"the numbers that the job has told ({agreed.cut_disclosure})."
        )


audit = typer.Typer(help="Look at an audit log (`audit` in party.toml).", no_args_is_help=True)
_Log = Annotated[Path, typer.Argument(help="The audit log.")]


@audit.command(epilog=format_epilog("privet audit verify audit.log --head c24d0e5b"))
def verify(
    log: _Log,
    head: Annotated[
        str | None,
        typer.Option(
            help="A digest that was noted earlier, or its first 8 digits: it must be there."
        ),
    ] = None,
) -> None:
    """See whether each record follows the one before; print the digest of the last.

    What was changed, left out or put in before the last record shows. That the last one was written
    anew, or that the end of the log was cut off, shows by --head alone: keep the digest elsewhere.
    """
    result = AuditLog(log).verify(head)
    truncated = f", {result.n_truncated} lines cut short by a failure" if result.n_truncated else ""
    text = f"{result.n_records} records, each following the one before{truncated}"
    if not result.n_records:
        text = (
            f"no record: there never was one, or all were removed, as --head would show{truncated}"
        )
    typer.echo(text, err=True)
    typer.echo(result.last_digest)


@audit.command(epilog=format_epilog("privet audit show audit.log --json"))
def show(
    log: _Log,
    as_json: Annotated[bool, typer.Option("--json", help="Whole records, a line each.")] = False,
) -> None:
    """Show all records, once they are known to be whole."""
    audit_log = AuditLog(log)
    audit_log.verify()
    for record in audit_log.iter_records():
        typer.echo(json.dumps(record) if as_json else _format_record(record))


def _format_record(record: dict[str, Any]) -> str:
    start = f"{record['time'][:19]} {record.get('session', '')[:8]:8} {record['event']:6}"
    if record["event"] == "began":
        return f"{start} {record['command']} as {record['name']}, job {record['job']}"
    if record["event"] == "met":
        return f"{start} {', '.join(record['peers'])}"
    if record["event"] == "torn":
        return f"{start} {record['bytes']} bytes before this were cut short"
    outcome = record["outcome"]
    if outcome["code"]:
        return f"{start} with {outcome['code']}: {outcome.get('text', outcome['error'])}"
    disclosures = "; ".join(
        f"{each['what']} to {', '.join(each['to'])}: {each['count']:,}" for each in record["ledger"]
    )
    return f"{start} well; revealed: {disclosures or 'nothing'}"


_STATUS_MARKS = {"good": ("✓", "green"), "doubtful": ("!", "yellow"), "bad": ("✗", "bold red")}


def check(
    job: JobOption,
    party: Annotated[Path | None, typer.Option(help="Your own party.toml.")] = None,
    dealer: Annotated[
        bool, typer.Option("--dealer", help="Instead: you are a dealer, as `privet dealer` says.")
    ] = False,
    key: KeyOption = None,
    certificate: CertificateOption = None,
    name: DealerNameOption = None,
    listen: ListenOption = None,
    cluster: ClusterFileOption = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="With --dealer: the audit log that you keep.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, on stdout.")] = False,
) -> None:
    """See whether you could take part in a job: keys, addresses, data, disk, clock, versions."""
    agreed = Job.read(job)
    if party is not None and dealer:
        raise ParameterError("party, dealer: give one of them: a check is of one role at a time")
    if party is None and not dealer:
        raise ParameterError("party: give --party, or --dealer if you are one")
    if party is not None and audit is not None:
        raise ParameterError("audit: is for dealers; a participant's is in party.toml")
    if party is not None and cluster is not None:
        raise ParameterError("cluster: is for dealers; a participant's is in party.toml")
    checks: Iterable[CheckResult]
    if party is not None:
        party_config = PartyConfig.load(party)
        party_config.check_membership(agreed)
        checks = check_party(party_config, agreed)
    else:
        dealer_name = select_dealer(agreed, name)
        keys = str(key or f"{dealer_name}.key"), str(certificate or f"{dealer_name}.crt")
        cluster_config = ClusterConfig() if cluster is None else ClusterConfig.load(cluster)
        logs = () if audit is None else (check_audit_log(audit),)
        checks = chain(
            check_member(agreed, dealer_name, *keys, listen),
            check_cluster(agreed, dealer_name, listen, cluster_config),
            logs,
        )
    console = Console(highlight=False, soft_wrap=True)
    results = []
    for result in checks:
        results.append(result)
        if not as_json:
            mark, style = _STATUS_MARKS[result.verdict]
            console.print(Text.assemble((mark, style), f" {result.what}: {result.text}"))
    if as_json:
        typer.echo(json.dumps([vars(result) for result in results], indent=2))
    failed = [result for result in results if result.verdict == "bad"]
    if failed:
        raise typer.Exit(failed[0].code)
