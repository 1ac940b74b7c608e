"""`privet check`: everything that could keep us from taking part in a job, as a list of ticks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from privet.cli.dealer import Certificate, ClusterFile, Key, Listen, Name, which_dealer
from privet.cli.options import JobFile
from privet.errors import ParameterError
from privet.federation.checkup import check_up, check_up_member
from privet.federation.cluster_checkup import check_up_cluster
from privet.federation.findings import Finding, of_audit_log
from privet.files.cluster import Cluster
from privet.files.job import Job
from privet.files.party_file import PartyFile

_TICKS = {"good": ("✓", "green"), "doubtful": ("!", "yellow"), "bad": ("✗", "bold red")}


def check(
    job: JobFile,
    party: Annotated[Path | None, typer.Option(help="Your own party.toml.")] = None,
    dealer: Annotated[
        bool, typer.Option("--dealer", help="Instead: you are a dealer, as `privet dealer` says.")
    ] = False,
    key: Key = None,
    certificate: Certificate = None,
    name: Name = None,
    listen: Listen = None,
    cluster: ClusterFile = None,
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
    looking: Iterable[Finding]
    if party is not None:
        own = PartyFile.load(party)
        own.check_seat(agreed)
        looking = check_up(own, agreed)
    else:
        ours = which_dealer(agreed, name)
        keys = str(key or f"{ours}.key"), str(certificate or f"{ours}.crt")
        placed = Cluster() if cluster is None else Cluster.load(cluster)
        logs = () if audit is None else (of_audit_log(audit),)
        looking = chain(
            check_up_member(agreed, ours, *keys, listen),
            check_up_cluster(agreed, ours, listen, placed),
            logs,
        )
    console = Console(highlight=False, soft_wrap=True)
    found = []
    for finding in looking:
        found.append(finding)
        if not as_json:
            tick, style = _TICKS[finding.verdict]
            console.print(Text.assemble((tick, style), f" {finding.what}: {finding.text}"))
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in found], indent=2))
    bad = [finding for finding in found if finding.verdict == "bad"]
    if bad:
        raise typer.Exit(bad[0].code)
