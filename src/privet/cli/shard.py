"""The command that writes a large table anew, a file for each shard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.options import JobFile, PartyOption
from privet.files.job import Job
from privet.files.own_shards import changes, shard_table
from privet.files.party_file import PartyFile


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
