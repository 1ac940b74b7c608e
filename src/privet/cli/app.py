"""All commands, and what the process says and returns when one cannot do its work."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, NoReturn, TextIO

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
    _prepare_streams()
    try:
        try:
            app()
        finally:
            _flush(sys.stdout)
    except PrivetError as error:
        _complain(error)
    except BrokenPipeError:  # a reader who has seen enough, as `head` does
        sys.exit(1)
    except OSError as error:
        from privet.cli.console import as_ours

        _complain(as_ours(error))
    finally:  # what is done is done: a signal that comes too late must not say otherwise
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _prepare_streams() -> None:
    """Have streams that are there, though somebody closed them, and that take every name."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush(stream: TextIO) -> None:
    """Find out that a disk is full while somebody can be told, not when Python has ended."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # for the rest of it
        raise


def _complain(error: PrivetError) -> NoReturn:
    text = Text.assemble(("error: ", "bold red"), str(error))
    with suppress(OSError):  # if nobody can be told, the exit code still says it
        Console(stderr=True).print(text, soft_wrap=True)
    with suppress(OSError):
        _flush(sys.stderr)
    sys.exit(error.exit_code)


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
