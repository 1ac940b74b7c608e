"""All commands, and what the process says and returns when one cannot do its work."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from privet.cli.align import align
from privet.cli.audit import audit
from privet.cli.check import check
from privet.cli.dealer import dealer
from privet.cli.demo import demo, example
from privet.cli.export import export
from privet.cli.federate import forget, keys, predict, train
from privet.cli.inspect import cuts, estimate, inspect
from privet.cli.options import COMMAND
from privet.cli.serve import serve
from privet.cli.shard import shard
from privet.cli.simulate import simulate
from privet.errors import PrivetError
from privet.version import __version__

app = typer.Typer(
    help="Gradient boosted decision tables over columns that several organisations hold.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    *(keys, check, dealer, align, shard, train, forget, predict, serve, export),
    *(cuts, estimate, inspect, simulate, demo, example),
):
    app.command()(command)
app.add_typer(audit, name="audit")


def main() -> None:
    """Run the command line and end the process with the documented exit code."""
    # A service manager asks to end by SIGTERM, a person by Ctrl-C: it comes to the same.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except PrivetError as error:
        text = Text.assemble(("error: ", "bold red"), str(error))
        Console(stderr=True).print(text, soft_wrap=True)
        sys.exit(error.exit_code)
    finally:  # what is done is done: a signal that comes too late must not say otherwise
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"privet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    COMMAND.set(context.invoked_subcommand or "")
