"""`privet check`: everything that could keep us from taking part in a job, as a list of ticks."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from privet.cli.options import JobFile, PartyOption
from privet.federation.checkup import check_up
from privet.files.job import Job
from privet.files.party_file import PartyFile

_TICKS = {"good": ("✓", "green"), "doubtful": ("!", "yellow"), "bad": ("✗", "bold red")}


def check(
    party: PartyOption,
    job: JobFile,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, on stdout.")] = False,
) -> None:
    """See whether you could take part in a job: keys, addresses, data, disk, clock, versions."""
    own, agreed = PartyFile.load(party), Job.read(job)
    own.check_seat(agreed)
    console = Console(highlight=False, soft_wrap=True)
    found = []
    for finding in check_up(own, agreed):
        found.append(finding)
        if not as_json:
            tick, style = _TICKS[finding.verdict]
            console.print(Text.assemble((tick, style), f" {finding.what}: {finding.text}"))
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in found], indent=2))
    bad = [finding for finding in found if finding.verdict == "bad"]
    if bad:
        raise typer.Exit(bad[0].code)
