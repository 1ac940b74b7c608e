"""`privet demo`: a federation of real processes on this machine, from keys to predictions."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_locally
from privet.cli.dashboard import DEMO_JOB_SETTINGS, DEMO_TABLES, run_demo_dashboards
from privet.cli.options import DealersOption, complete_from
from privet.data.datasets import DATASETS, load_dataset
from privet.data.partition import split_frame, split_rows
from privet.data.reader import read_frame
from privet.errors import PeerError
from privet.experiments.experiment import compute_metrics
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.report import PartyReport
from privet.runtime.run import check_dealer_count
from privet.spec.params import Params

DatasetOption = Annotated[
    str, typer.Option(help="A data set by name.", autocompletion=complete_from(DATASETS))
]


def demo(
    data: DatasetOption = "breast-cancer",
    tables: Annotated[
        int | None,
        typer.Option(
            help="How many decision tables.", show_default=f"10, or {DEMO_TABLES} with --ui"
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="How many tests in a table.")] = 3,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep everybody's files there.", show_default="a temporary one"),
    ] = None,
    dealers: DealersOption = 1,
    ui: Annotated[
        bool, typer.Option("--ui", help="Show the pages of the three, and stay until Ctrl-C.")
    ] = False,
    browser: Annotated[bool, typer.Option(help="With --ui: open one of them.")] = True,
) -> None:
    """Run dealers and three participants as processes over TLS: train, then predict."""
    tables = tables or (DEMO_TABLES if ui else 10)
    loaded = load_dataset(data)
    rows, new = split_rows(loaded.frame, 0.2, 0)
    params = Params(task=loaded.task, tables=tables, depth=depth, learning_rate=1.0)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-demo-")))
        local = LocalFederation(folder, n_dealers=check_dealer_count(dealers))
        local.write_tables(rows, new)
        chosen = params.model_dump(include={"tables", "depth", "learning_rate"})
        if ui:
            local.write_configuration(
                loaded.task, {**chosen, "validation": 0.2}, **DEMO_JOB_SETTINGS
            )
            run_demo_dashboards(local, console, browser=browser)
            return
        local.write_configuration(loaded.task, chosen)
        console.print(f"{local.folder}: keys, a job and tables for:")
        parties = split_frame(rows, len(local.party_names))
        for name, party in zip(local.party_names, parties, strict=True):
            label = " and the label" if party.frame.label is not None else ""
            console.print(f"  {name:10}{len(party.frame.names)} columns{label}")
        seconds = {verb: _run(local, verb, console) for verb in ("train", "predict")}
        predicted = read_frame(local.predictions_path, id="id")
        bucketed = bucket_columns("all", rows.names, rows.columns, params.buckets)
        assert rows.label is not None
        plain = train_locally([bucketed], rows.label, params)
        reports = {
            verb: [_load_report(local.get_report_path(name, verb)) for name in local.party_names]
            for verb in ("train", "predict")
        }
    objective = params.objective
    metric = objective.primary_metric
    # The last column: the value, or the probability of class 1.
    score = compute_metrics(objective, predicted.columns[-1], new)[metric]
    plain_score = compute_metrics(objective, plain.predict(new.columns), new)[metric]
    console.print(
        f"\n{metric} of {new.n_samples} held-out rows: {score:.4f}, in the clear {plain_score:.4f}"
    )
    costs = Table()
    for column in ("", "time", "rounds", "between participants", "from the dealer"):
        costs.add_column(column, justify="right" if column else "left")
    for verb, parts in reports.items():
        costs.add_row(
            verb,
            f"{seconds[verb]:.1f} s",
            f"{parts[0].rounds:,}",
            f"{sum(part.bytes_sent for part in parts) / 1e6:.2f} MB",
            f"{sum(part.bytes_from_dealer for part in parts) / 1e6:.2f} MB",
        )
    console.print(costs)
    disclosures = Table(title="Revealed, to whom", title_justify="left")
    for column in ("what", "to", "how many"):
        disclosures.add_column(column, justify="right" if column == "how many" else "left")
    for parts in reports.values():
        for reveal in parts[0].reveals:
            disclosures.add_row(reveal.what, ", ".join(reveal.to), f"{reveal.count:,}")
    console.print(disclosures)


def example(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    data: DatasetOption = "breast-cancer",
    seed: Annotated[int, typer.Option(help="Chooses the new rows.")] = 0,
) -> None:
    """Split a data set by columns into tables of three participants, to try things with."""
    local = LocalFederation(folder)
    local.write_tables(*split_rows(load_dataset(data).frame, 0.2, seed))
    for name in local.party_names:
        typer.echo(folder / name)


def _run(federation: LocalFederation, command: str, console: Console) -> float:
    """Run one command for every role, and return the seconds that it took."""
    started = time.perf_counter()
    commands = [f"privet {command} at {name}" for name in federation.party_names]
    dealer_commands = [f"privet dealer as {name}" for name in federation.dealer_names]
    if len(dealer_commands) == 1:
        dealer_commands = ["privet dealer"]
    console.print(f"starting {', '.join(dealer_commands + commands)}")
    for name, process in federation.run_command(command).items():
        if process.return_code:
            raise PeerError(name, f"ended with code {process.return_code}:\n{process.stderr}")
    return time.perf_counter() - started


def _load_report(path: Path) -> PartyReport:
    return PartyReport.model_validate_json(path.read_bytes())
