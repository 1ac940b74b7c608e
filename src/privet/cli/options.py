"""Options that several commands take, and what somebody types for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from privet.data.partition import Partition
from privet.errors import ParameterError
from privet.files.job import Job
from privet.terms.cuts import check_told
from privet.terms.monotone import Monotone


def any_of(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return what offers names to a shell that completes a word; without a fit it offers files."""
    return lambda: list(names)


def check_wait(seconds: float) -> float:
    """Return for how long to wait; raise ParameterError unless that is a time."""
    if not seconds > 0:  # nor is it one that is no number
        raise ParameterError(f"wait: {seconds:g} is not a number of seconds above 0, or inf")
    return seconds


JobFile = Annotated[Path, typer.Option("--job", help="The job, as all have it.")]
Dealers = Annotated[int, typer.Option(help="1, or 3, of whom none knows a mask.")]

Wait = Annotated[
    float, typer.Option(help="Seconds to wait for the others to start.", callback=check_wait)
]
PartyOption = Annotated[Path, typer.Option("--party", help="Your own party.toml.")]


def columns_of(text: str, job: Job) -> list[int]:
    """Return how many columns each participant has, from what somebody typed."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) != len(job.names) or min(counts) < 0 or not sum(counts):
        raise ParameterError(
            f"features: {text!r} is not {len(job.names)} numbers, one for each of "
            f"{', '.join(job.names)}"
        )
    return counts


def cut_counts_of(text: str | None, job: Job, n_features: int) -> tuple[int, ...] | None:
    """Return how many cuts each column has, from what somebody typed; None if nobody did."""
    if text is None:
        return None
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if len(counts) == 1:
        counts *= n_features
    if len(counts) != n_features:
        raise ParameterError(
            f"cuts: {text!r} is not {n_features} numbers, one for each column, or one for all"
        )
    check_told(counts, job.told_cuts, job.hyper_parameters().candidates)
    return counts


def monotone_of(text: str | None, job: Job, n_features: int) -> Monotone | None:
    """Return the constraint of each column, from what somebody typed; None if nobody did."""
    if text is None:
        return None if job.monotone else ()
    try:
        signs = tuple(int(part) for part in text.split(","))
    except ValueError:
        signs = ()
    wanted = sorted(sign for own in job.monotone.values() for sign in own.values())
    if len(signs) != n_features or sorted(sign for sign in signs if sign) != wanted:
        raise ParameterError(
            f"monotone: {text!r} is not {n_features} numbers, one for each column: 1 or -1 for "
            f"those {len(wanted)} that the job constrains, and 0 for the others"
        )
    return signs


def constraints_of(typed: Sequence[str] | None) -> dict[str, int]:
    """Return which columns are constrained how, from what somebody typed."""
    found: dict[str, int] = {}
    for text in typed or ():
        column, _, sign = text.rpartition("=")
        if not column or sign not in ("1", "+1", "-1"):
            raise ParameterError(
                f"monotone: {text!r} is not a column and 1 or -1, as income=1: scores never fall, "
                "or never rise, as it grows"
            )
        found[column] = int(sign)
    return found


def partition_of(
    columns: Sequence[str] | None, file: str | None, active: str | None
) -> tuple[dict[str, list[str]] | None, str | None]:
    """Return whose columns are whose and who has the label, from what somebody typed.

    What the command line says of the label goes before what a file says.
    """
    if not columns:
        if file is None:
            return None, active
        read = Partition.read(file)
        return read.columns, active or read.active
    if file is not None:
        raise ParameterError(f"partition: --columns says it as well as {file}; leave one out")
    wanted: dict[str, list[str]] = {}
    for text in columns:
        party, found, listed = text.partition("=")
        if not found:
            raise ParameterError(
                f"columns: {text!r} is not a participant and its columns, as bank=age,income*; "
                "name one for each, or for none of them"
            )
        patterns = (part.strip() for part in listed.split(","))
        wanted.setdefault(party.strip(), []).extend(part for part in patterns if part)
    return wanted, active


def given(context: typer.Context) -> set[str]:
    """Return the parameters that somebody typed, as opposed to those that have their default."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
