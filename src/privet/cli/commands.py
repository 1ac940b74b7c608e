"""All commands: what each is for, how it is typed, and where it is.

A command is imported when somebody runs it or asks for its help. Listing commands and completing
their names take no numpy, which would take longer than the rest.
"""

from __future__ import annotations

from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

COMMAND: ContextVar[str] = ContextVar("command", default="")
"""The command that this process was asked for."""


class Listed(NamedTuple):
    """A command, before it is imported."""

    module: str
    purpose: str
    """The first line of its docstring."""
    examples: tuple[str, ...] = ()
    """As somebody would type it."""


COMMANDS = {
    "init": Listed(
        "init",
        "Begin a federation: ask five questions, write keys, party.toml and a job to send round.",
        (
            "privet init",
            "privet init --name shop --address shop.example:7403 --others bank,telecom "
            "--table customers.csv --label churned",
        ),
    ),
    "join": Listed(
        "join",
        "Take part in a job that you were sent: fill in your side, and take in those of others.",
        (
            "privet join job.toml",
            "privet join job.toml --name bank --address bank.example:7401 --table accounts.csv",
            "privet join job.toml --name dealer --address dealer.example:7400",
        ),
    ),
    "keys": Listed(
        "federate",
        "Make a private key and a certificate, and print the fingerprint to tell the others.",
        ("privet keys bank --folder bank", "privet keys bank --renew"),
    ),
    "check": Listed(
        "check",
        "See whether you could take part in a job: keys, addresses, data, disk, clock, versions.",
        (
            "privet check --job job.toml --party party.toml",
            "privet check --job job.toml --dealer --key dealer.key --certificate dealer.crt",
        ),
    ),
    "dealer": Listed(
        "dealer",
        "Supply randomness to a job's participants; ends when they are done, or one has failed.",
        (
            "privet dealer --job job.toml --keep",
            "privet dealer --job job.toml --ahead dealt --samples 24000 --features 8,8,7 --cuts 31",
        ),
    ),
    "align": Listed(
        "align",
        "Find out with the others which of your rows all have; `privet train` will use these.",
        ("privet align --party party.toml --job job.toml --out common.csv",),
    ),
    "shard": Listed(
        "shard",
        "Write your table anew, in the order of the job's rows: a file for each shard.",
        ("privet shard --party party.toml --job job.toml --out shards",),
    ),
    "train": Listed(
        "federate",
        "Train the job's model with the others, or go on where an earlier run was cut short.",
        ("privet train --party party.toml --job job.toml --report train.json",),
    ),
    "forget": Listed(
        "federate",
        "Delete the indicators that you keep from trainings: the next one publishes all of them.",
        ("privet forget --party party.toml",),
    ),
    "predict": Listed(
        "federate",
        "Predict a batch with the others; the predictions go to the job's recipient.",
        (
            "privet predict --party party.toml --model models/churn.part --data new.csv "
            "--out predictions.csv",
        ),
    ),
    "serve": Listed(
        "serve",
        "Stay connected and answer predictions by ids; the recipient is asked over HTTP.",
        ("privet serve --party party.toml --model models/churn.part --http 127.0.0.1:8000",),
    ),
    "export": Listed(
        "export",
        "Join a model with the others, if the job names who may have it; or write a whole one "
        "anew.",
        (
            "privet export --party party.toml --part models/churn.part --out churn.json",
            "privet export --model churn.json --onnx churn.onnx",
        ),
    ),
    "ui": Listed(
        "ui",
        "Open a page on this machine: jobs, trainings as they go on, what left, models.",
        ("privet ui --party party.toml",),
    ),
    "cuts": Listed(
        "inspect",
        "Show what a training will tell of your columns: how many cuts each has, as the job says.",
        ("privet cuts --party party.toml --job job.toml",),
    ),
    "estimate": Listed(
        "inspect",
        "Say what a job's training will take, before anybody starts it.",
        ("privet estimate --job job.toml --samples 24000 --features 8,8,7 --delay 5 --rate 100",),
    ),
    "inspect": Listed(
        "inspect",
        "Show your part of a model: its tests, whose they are, your thresholds, importances.",
        (
            "privet inspect models/churn.part",
            "privet inspect models/churn.part --plot pictures --report train.json",
        ),
    ),
    "simulate": Listed(
        "simulate",
        "Run one experiment on this machine: split a table over parties by columns, train, test.",
        (
            "privet simulate --data breast-cancer --parties 4 --tables 10 --depth 3",
            "privet simulate --data all.csv --label churned --columns bank=age,income "
            "--columns 'shop=visits,spent*' --compare",
        ),
    ),
    "demo": Listed(
        "demo",
        "Run dealers and three participants as processes over TLS: train, then predict.",
        ("privet demo --folder federation", "privet demo --dealers 3", "privet demo --ui"),
    ),
    "example": Listed(
        "demo",
        "Split a data set by columns into tables of three participants, to try things with.",
        ("privet example federation",),
    ),
    "audit": Listed("audit", "Look at an audit log (`audit` in party.toml)."),
}


def epilog_of(*examples: str) -> str:
    """Return the end of a command's help."""
    return "\n\n".join(["For example:", *examples])


class LazyCommands(TyperGroup):
    """Commands of which only the one that is asked for is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that somebody typed."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


def load(name: str) -> Any:
    """Import a command."""
    listed = COMMANDS[name]
    found = getattr(import_module(f"privet.cli.{listed.module}"), name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name, epilog=epilog_of(*listed.examples))(found)
        found = alone
    return typer.main.get_command(found)


def list_commands(app: typer.Typer) -> None:
    """Have an app know all commands by name and purpose."""

    def later() -> None:
        """Stand for a command that is not imported yet."""

    for name, listed in COMMANDS.items():
        app.command(name, help=listed.purpose)(later)
