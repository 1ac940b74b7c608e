"""`privet audit`: whether an audit log is whole, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from privet.cli.commands import epilog_of
from privet.files.audit import AuditLog

audit = typer.Typer(help="Look at an audit log (`audit` in party.toml).", no_args_is_help=True)
_Log = Annotated[Path, typer.Argument(help="The audit log.")]


@audit.command(epilog=epilog_of("privet audit verify audit.log --head c24d0e5b"))
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
    found = AuditLog(log).verify(head)
    torn = f", {found.torn} lines cut short by a failure" if found.torn else ""
    said = f"{found.records} records, each following the one before{torn}"
    if not found.records:
        said = f"no record: there never was one, or all were removed, as --head would show{torn}"
    typer.echo(said, err=True)
    typer.echo(found.head)


@audit.command(epilog=epilog_of("privet audit show audit.log --json"))
def show(
    log: _Log,
    as_json: Annotated[bool, typer.Option("--json", help="Whole records, a line each.")] = False,
) -> None:
    """Show all records, once they are known to be whole."""
    found = AuditLog(log)
    found.verify()
    for record in found.records():
        typer.echo(json.dumps(record) if as_json else _in_words(record))


def _in_words(record: dict[str, Any]) -> str:
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
    ledger = "; ".join(
        f"{each['what']} to {', '.join(each['to'])}: {each['count']:,}" for each in record["ledger"]
    )
    return f"{start} well; revealed: {ledger or 'nothing'}"
