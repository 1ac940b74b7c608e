"""The `privet` application: all commands, and the exit code of each kind of error.

The module of a command is imported only when a user runs the command or requests its help, so that
listing commands and completing their names do not import numpy, which would dominate the time.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn, TextIO

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from privet.errors import PrivetError
from privet.version import __version__

current_command: ContextVar[str] = ContextVar("command", default="")
"""The command that this process runs."""


class CommandSpec(NamedTuple):
    """A command whose module is not imported yet."""

    module: str
    summary: str
    """The first line of its docstring."""
    examples: tuple[str, ...] = ()
    """Command lines for the help."""


COMMAND_SPECS = {
    "init": CommandSpec(
        "init",
        "Begin a federation: ask five questions, write keys, party.toml and a job to send round.",
        (
            "privet init",
            "privet init --name shop --address shop.example:7403 --others bank,telecom "
            "--table customers.csv --label churned",
        ),
    ),
    "join": CommandSpec(
        "join",
        "Take part in a job that you were sent: fill in your side, and take in those of others.",
        (
            "privet join job.toml",
            "privet join job.toml --name bank --address bank.example:7401 --table accounts.csv",
            "privet join job.toml --name dealer --address dealer.example:7400",
        ),
    ),
    "keys": CommandSpec(
        "federation",
        "Make a private key and a certificate, and print the fingerprint to tell the others.",
        ("privet keys bank --folder bank", "privet keys bank --renew"),
    ),
    "check": CommandSpec(
        "inspect",
        "See whether you could take part in a job: keys, addresses, data, disk, clock, versions.",
        (
            "privet check --job job.toml --party party.toml",
            "privet check --job job.toml --dealer --key dealer.key --certificate dealer.crt",
        ),
    ),
    "dealer": CommandSpec(
        "dealer",
        "Supply randomness to a job's participants; ends when they are done, or one has failed.",
        (
            "privet dealer --job job.toml --keep",
            "privet dealer --job job.toml --ahead dealt --samples 24000 --features 8,8,7 --cuts 31",
        ),
    ),
    "align": CommandSpec(
        "federation",
        "Find out with the others which of your rows all have; `privet train` will use these.",
        ("privet align --party party.toml --job job.toml --out common.csv",),
    ),
    "shard": CommandSpec(
        "federation",
        "Write your table anew, in the order of the job's rows: a file for each shard.",
        ("privet shard --party party.toml --job job.toml --out shards",),
    ),
    "train": CommandSpec(
        "federation",
        "Train the job's model with the others, or go on where an earlier run was cut short.",
        ("privet train --party party.toml --job job.toml --report train.json",),
    ),
    "forget": CommandSpec(
        "federation",
        "Delete the indicators that you keep from trainings: the next one publishes all of them.",
        ("privet forget --party party.toml",),
    ),
    "predict": CommandSpec(
        "federation",
        "Predict a batch with the others; the predictions go to the job's recipient.",
        (
            "privet predict --party party.toml --model models/churn.part --data new.csv "
            "--out predictions.csv",
        ),
    ),
    "serve": CommandSpec(
        "serve",
        "Stay connected and answer predictions by ids; the recipient is asked over HTTP.",
        ("privet serve --party party.toml --model models/churn.part --http 127.0.0.1:8000",),
    ),
    "export": CommandSpec(
        "federation",
        "Join a model with the others, if the job names who may have it; or write a whole one "
        "anew.",
        (
            "privet export --party party.toml --part models/churn.part --out churn.json",
            "privet export --model churn.json --onnx churn.onnx",
        ),
    ),
    "ui": CommandSpec(
        "dashboard",
        "Open a page on this machine: jobs, trainings as they go on, what left, models.",
        ("privet ui --party party.toml",),
    ),
    "cuts": CommandSpec(
        "inspect",
        "Show what a training will tell of your columns: how many cuts each has, as the job says.",
        ("privet cuts --party party.toml --job job.toml",),
    ),
    "estimate": CommandSpec(
        "inspect",
        "Say what a job's training will take, before anybody starts it.",
        ("privet estimate --job job.toml --samples 24000 --features 8,8,7 --delay 5 --rate 100",),
    ),
    "inspect": CommandSpec(
        "inspect",
        "Show your part of a model: its tests, whose they are, your thresholds, importances.",
        (
            "privet inspect models/churn.part",
            "privet inspect models/churn.part --plot pictures --report train.json",
        ),
    ),
    "simulate": CommandSpec(
        "simulate",
        "Run one experiment on this machine: split a table over parties by columns, train, test.",
        (
            "privet simulate --data breast-cancer --parties 4 --tables 10 --depth 3",
            "privet simulate --data all.csv --label churned --columns bank=age,income "
            "--columns 'shop=visits,spent*' --compare",
        ),
    ),
    "demo": CommandSpec(
        "demo",
        "Run dealers and three participants as processes over TLS: train, then predict.",
        ("privet demo --folder federation", "privet demo --dealers 3", "privet demo --ui"),
    ),
    "example": CommandSpec(
        "demo",
        "Split a data set by columns into tables of three participants, to try things with.",
        ("privet example federation",),
    ),
    "audit": CommandSpec("inspect", "Look at an audit log (`audit` in party.toml)."),
}


def format_epilog(*examples: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n\n".join(["For example:", *examples])


class LazyCommands(TyperGroup):
    """Group of commands that imports only the requested command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the requested command, then resolve it."""
        if args and args[0] in COMMAND_SPECS:
            self.commands[args[0]] = import_command(args[0])
        return super().resolve_command(ctx, args)


def import_command(name: str) -> Any:
    """Import a command."""
    spec = COMMAND_SPECS[name]
    command = getattr(import_module(f"privet.cli.{spec.module}"), name)
    if not isinstance(command, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name, epilog=format_epilog(*spec.examples))(command)
        command = single
    return typer.main.get_command(command)


def register_commands(app: typer.Typer) -> None:
    """Register the name and summary of all commands."""

    def placeholder() -> None:
        """Represent a command that is not imported yet."""

    for name, spec in COMMAND_SPECS.items():
        app.command(name, help=spec.summary)(placeholder)


app = typer.Typer(
    help="Gradient boosted decision tables over columns that several organisations hold.",
    no_args_is_help=True,
    cls=LazyCommands,
    pretty_exceptions_enable=False,
)
register_commands(app)


def main() -> None:
    """Run the command line and end the process with the documented exit code."""
    # A service manager stops the process with SIGTERM, a user with Ctrl-C: both are handled alike.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _prepare_streams()
    try:
        try:
            app()
        finally:
            flush_stream(sys.stdout)
    except PrivetError as error:
        _exit_with_error(error)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        sys.exit(1)
    except OSError as error:
        from privet.cli.console import wrap_os_error

        _exit_with_error(wrap_os_error(error))
    finally:  # a late signal must not change the exit code of finished work
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _prepare_streams() -> None:
    """Replace closed standard streams, and escape characters that a stream cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_stream(stream: TextIO) -> None:
    """Flush a stream now, so that a full disk is reported before the interpreter exits."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # discards the rest
        raise


def _exit_with_error(error: PrivetError) -> NoReturn:
    text = Text.assemble(("error: ", "bold red"), str(error))
    with suppress(OSError):  # without stderr, the exit code still reports the error
        Console(stderr=True).print(text, soft_wrap=True)
    with suppress(OSError):
        flush_stream(sys.stderr)
    sys.exit(error.exit_code)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"privet {__version__}")
        raise typer.Exit


@app.callback()
def _set_command(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    current_command.set(context.invoked_subcommand or "")
