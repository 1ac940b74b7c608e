"""The commands that change nothing: inspect a model's part, estimate a job, show what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.boosting.estimate import DEALERS, time_of
from privet.boosting.estimate import estimate as estimate_training
from privet.boosting.preparation import prepare
from privet.cli.options import JobFile, PartyOption, columns_of, cut_counts_of
from privet.data.frame import Frame
from privet.data.sources.source import naming
from privet.errors import DataError, ParameterError
from privet.federation.ahead import numbered_features
from privet.files.alignments import Alignments
from privet.files.job import Job
from privet.files.part_file import PartFile, load_part
from privet.files.party_file import PartyFile
from privet.terms.cuts import told_cuts

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, on stdout.")]


def inspect(
    model: Annotated[Path, typer.Argument(help="Your part of a model.")], as_json: AsJson = False
) -> None:
    """Show your part of a model: its tests, whose they are, your thresholds, importances."""
    file = load_part(model)
    found = _describe(file)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console(highlight=False, markup=False)
    console.print(
        f"{file.part.party}'s part of the model {file.model[:16]} of the job {file.job.name}: "
        f"{file.part.task}, protocol {file.part.protocol}, {file.part.n_tables} tables"
    )
    if file.classes:
        console.print(f"classes: {', '.join(map(repr, file.classes))}")
    tests = Table()
    tests.add_column("table", justify="right")
    for level in range(file.part.depth):
        tests.add_column(f"level {level}", overflow="fold")
    for number, table in enumerate(found["tables"], start=1):
        tests.add_row(str(number), *(Text(_in_words(test)) for test in table))
    console.print(tests)
    importances = Table()
    for column in ("feature", "of", "importance"):
        importances.add_column(column, justify="right" if column == "importance" else "left")
    for row in found["importances"]:
        importances.add_row(Text(row["feature"]), row["owner"], f"{row['importance']:.3f}")
    console.print(importances)


def _describe(file: PartFile) -> dict[str, Any]:
    part = file.part
    encoders = {name: encoder for encoder in file.encoders for name in encoder.features}
    counts = np.bincount(part.feature.reshape(-1), minlength=len(part.features))
    order = np.argsort(-counts, kind="stable")
    return {
        "model": file.model,
        "job": file.job.name,
        "party": part.party,
        "task": part.task,
        "protocol": part.protocol,
        "classes": list(file.classes),
        "tables": [
            [
                {
                    "feature": part.features[feature].name,
                    "owner": part.features[feature].owner,
                    "threshold": None if np.isnan(threshold) else str(threshold),
                    "test": None
                    if np.isnan(threshold)
                    else encoders[part.features[feature].name].describe(
                        part.features[feature].name, float(threshold)
                    ),
                }
                for feature, threshold in zip(features, thresholds, strict=True)
            ]
            for features, thresholds in zip(part.feature, part.threshold, strict=True)
        ],
        # The share of all tests that a feature has: gains are nobody's to see.
        "importances": [
            {
                "feature": part.features[j].name,
                "owner": part.features[j].owner,
                "importance": float(counts[j] / part.feature.size),
            }
            for j in order
            if counts[j]
        ],
    }


def _in_words(test: dict[str, Any]) -> str:
    return test["test"] or f"{test['feature']} (of {test['owner']})"


def cuts(
    party: PartyOption,
    job: JobFile,
    as_json: AsJson = False,
) -> None:
    """Show what a training will tell of your columns: how many cuts each has, as the job says."""
    own, agreed = PartyFile.load(party), Job.read(job)
    params = agreed.hyper_parameters()
    frame = _rows_that_take_part(own, agreed)
    with naming(own.data.where):
        columns = prepare(own.name, frame, params, own.data.positive).columns
    told = told_cuts(columns.filled_cuts, agreed.told_cuts, params.candidates)
    if as_json:
        typer.echo(json.dumps(told and dict(zip(columns.names, told, strict=True)), indent=2))
        return
    if told is None:
        typer.echo("the job has nothing told of numbers of cuts", err=True)
        return
    for name, count in zip(columns.names, told, strict=True):
        typer.echo(f"{name}: {count}", err=True)
    typer.echo(",".join(str(count) for count in told))


def _rows_that_take_part(own: PartyFile, job: Job) -> Frame:
    """Return our rows, or those that all have, as far as we have kept which ones these are."""
    frame = own.read_rows(job)
    if not job.align:
        return frame
    assert frame.ids is not None
    kept = Alignments(own.folder, job).find(frame.ids.digest().hex())
    if kept is None:
        raise DataError(
            f"{own.data.where}: numbers of cuts are those of the rows that all have, and these are "
            "not known yet: run `privet align` with the others first"
        )
    return frame.take(kept.rows)


def estimate(
    job: JobFile,
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
    kept: Annotated[
        bool, typer.Option("--kept", help="With all indicators kept from an earlier training.")
    ] = False,
    delay: Annotated[float, typer.Option(help="Milliseconds between participants.", min=0)] = 5.0,
    rate: Annotated[float, typer.Option(help="Mbit/s that all share.", min=0.001)] = 100.0,
    as_json: AsJson = False,
) -> None:
    """Say what a job's training will take, before anybody starts it."""
    agreed = Job.read(job)
    counts = columns_of(features, agreed)
    federation = agreed.federation(
        numbered_features(agreed, counts), cut_counts_of(cuts, agreed, sum(counts))
    )
    if kept and not agreed.keep_indicators:
        raise ParameterError("kept: the job has no indicators kept; it says so by keep_indicators")
    everybody = tuple(range(len(agreed.names))) if kept else None
    found = estimate_training(federation, federation.plan(samples, everybody))
    times = {
        dealer: time_of(found, delay / 1000, rate * 1e6 / 8, dealer=dealer) for dealer in DEALERS
    }
    time = times["ahead"]
    most = agreed.hyper_parameters().candidates
    at_most = agreed.told_cuts != "hidden" and cuts is None
    figures = {
        "at_most": at_most,
        "rounds": found.rounds,
        "bytes_online": found.online,
        "bytes_offline": found.offline,
        "memory": found.memory,
        "seconds": time.total,
        "seconds_by_dealer": {dealer: found.total for dealer, found in times.items()},
        "seconds_of_delays": time.delays,
        "seconds_of_carrying": time.carrying,
        "seconds_of_computing": time.computing,
    }
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    for line in (
        f"rounds                          {found.rounds:,}",
        f"between the participants        {found.online / 1e6:,.1f} MB",
        f"from the dealer                 {found.offline / 1e6:,.1f} MB",
        f"memory of a participant, about  {found.memory / 1e6:,.0f} MB",
        f"time, about                     {time.total:,.0f} s, if correlations are dealt ahead",
        f"{'':32}{times['own'].total:,.0f} s, with a dealer on a link of its own, of that rate",
        f"{'':32}{times['shared'].total:,.0f} s, with a dealer on the participants' link",
        f"  delays of {f'{delay:g} ms':21} {time.delays:,.1f} s",
        f"  carrying at {f'{rate:g} Mbit/s':19} {time.carrying:,.1f} s",
        f"  computing                     {time.computing:,.1f} s on a 2.8 GHz core each, "
        "partly while bytes are carried",
        f"  the dealer's own link         {times['own'].dealing:,.1f} s, while all that goes on",
    ):
        typer.echo(line)
    if at_most:
        typer.echo(
            f"That is with {most} cuts of every column, the most there can be: --cuts takes the "
            f"numbers that the job has told ({agreed.told_cuts})."
        )
