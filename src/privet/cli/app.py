"""All commands, and what the process says and returns when one cannot do its work."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from privet.cli.commands import COMMAND, LazyCommands, list_commands
from privet.errors import PrivetError
from privet.version import __version__

app = typer.Typer(
    help="Gradient boosted decision tables over columns that several organisations hold.",
    no_args_is_help=True,
    cls=LazyCommands,
    pretty_exceptions_enable=False,
)
list_commands(app)


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
