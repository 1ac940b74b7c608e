"""Command-line options that several commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privet.config.job import Job
from privet.data.partition import ColumnPartition
from privet.errors import ParameterError
from privet.spec.plan import MonotoneConstraints, check_disclosed_cut_counts


def complete_from(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a completion function for names; without a match the shell offers files."""
    return lambda: list(names)


def check_wait(seconds: float) -> float:
    """Return the timeout in seconds; raise ParameterError unless it is above 0."""
    if not seconds > 0:  # rejects NaN, too
        raise ParameterError(f"wait: {seconds:g} is not a number of seconds above 0, or inf")
    return seconds


JobOption = Annotated[Path, typer.Option("--job", help="The job, as all have it.")]
DealersOption = Annotated[int, typer.Option(help="1, or 3, of whom none knows a mask.")]

WaitOption = Annotated[
    float, typer.Option(help="Seconds to wait for the others to start.", callback=check_wait)
]
PartyOption = Annotated[Path, typer.Option("--party", help="Your own party.toml.")]


def parse_feature_counts(text: str, job: Job) -> list[int]:
    """Parse the column count of each participant."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) != len(job.party_names) or min(counts) < 0 or not sum(counts):
        raise ParameterError(
            f"features: {text!r} is not {len(job.party_names)} numbers, one for each of "
            f"{', '.join(job.party_names)}"
        )
    return counts


def parse_cut_counts(text: str | None, job: Job, n_features: int) -> tuple[int, ...] | None:
    """Parse the cut count of each column; return None without a value."""
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
    check_disclosed_cut_counts(counts, job.cut_disclosure, job.make_params().max_cut_count)
    return counts


def parse_constraint_list(
    text: str | None, job: Job, n_features: int
) -> MonotoneConstraints | None:
    """Parse the constraint of each column.

    Without a value, return None if the job constrains columns, and else no constraints.
    """
    if text is None:
        return None if job.monotone else ()
    try:
        signs = tuple(int(part) for part in text.split(","))
    except ValueError:
        signs = ()
    expected = sorted(
        sign for constraints in job.monotone.values() for sign in constraints.values()
    )
    if len(signs) != n_features or sorted(sign for sign in signs if sign) != expected:
        raise ParameterError(
            f"monotone: {text!r} is not {n_features} numbers, one for each column: 1 or -1 for "
            f"those {len(expected)} that the job constrains, and 0 for the others"
        )
    return signs


def parse_constraints(texts: Sequence[str] | None) -> dict[str, int]:
    """Parse COLUMN=SIGN pairs into a constraint for each column."""
    found: dict[str, int] = {}
    for text in texts or ():
        column, _, sign = text.rpartition("=")
        if not column or sign not in ("1", "+1", "-1"):
            raise ParameterError(
                f"monotone: {text!r} is not a column and 1 or -1, as income=1: scores never fall, "
                "or never rise, as it grows"
            )
        found[column] = int(sign)
    return found


def parse_partition(
    columns: Sequence[str] | None, file: str | None, active: str | None
) -> tuple[dict[str, list[str]] | None, str | None]:
    """Parse the columns of each participant, and the label holder.

    A label holder on the command line takes precedence over that of a file.
    """
    if not columns:
        if file is None:
            return None, active
        partition = ColumnPartition.read(file)
        return partition.columns, active or partition.active
    if file is not None:
        raise ParameterError(f"partition: --columns says it as well as {file}; leave one out")
    assigned: dict[str, list[str]] = {}
    for text in columns:
        party, separator, column_list = text.partition("=")
        if not separator:
            raise ParameterError(
                f"columns: {text!r} is not a participant and its columns, as bank=age,income*; "
                "name one for each, or for none of them"
            )
        patterns = (part.strip() for part in column_list.split(","))
        assigned.setdefault(party.strip(), []).extend(part for part in patterns if part)
    return assigned, active


def get_explicit_options(context: typer.Context) -> set[str]:
    """Return the parameters that were set on the command line, without defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


_PATTERNS = "Columns by name or pattern (*, ?), as zip,income*; may be repeated."
DropOption = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN,...", help=f"Leave these out. {_PATTERNS}")
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN,...", help=f"These are categories. {_PATTERNS}"),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=TYPE",
        help="What a column is: number, boolean, date, time, category, one-hot; "
        "'date %d.%m.%Y' says how it is written. May be repeated.",
    ),
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[COLUMN=]TEXT",
        help="What stands for a missing value, beside empty cells, NA and the like: '?'. May be "
        "repeated.",
    ),
]
NamesOption = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="The columns' names, of a CSV file without a header."),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(help="Of a CSV file: one of , ; | and tab.", show_default="found in the file"),
]
QuoteOption = Annotated[
    str | None,
    typer.Option(help="Of a CSV file: around cells; '' for none.", show_default='"'),
]
EncodingOption = Annotated[
    str | None, typer.Option(help="Of a CSV file: utf-8 or latin-1.", show_default="utf-8")
]
DecimalOption = Annotated[
    str | None, typer.Option(help="Before a number's fraction: '.' or ','.", show_default=".")
]
QueryOption = Annotated[
    str | None, typer.Option(help="Instead of a file: a query to PostgreSQL.", show_default=False)
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        help="Whom to ask: a service of libpq's service file, or an address.",
        show_default="libpq's environment",
    ),
]
PositiveOption = Annotated[
    str | None,
    typer.Option(
        help="The label's value that is the positive class.", show_default="the last in order"
    ),
]

WeightOption = Annotated[
    str | None,
    typer.Option(help="The column of weights: how much a row counts.", show_default=False),
]
ClassWeightOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="balanced|CLASS=WEIGHT",
        help="How much the rows of a class count; balanced: all classes the same in total. May be "
        "repeated.",
    ),
]


def parse_table_options(
    *,
    query: str | None = None,
    database: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    missing: Sequence[str] | None = None,
    names: str | None = None,
    separator: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    positive: str | None = None,
    weight: str | None = None,
    class_weight: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the keys of a table specification that options set."""
    values: dict[str, Any] = {
        "query": query,
        "database": database,
        "columns": _split_lists(columns),
        "drop": _split_lists(drop),
        "categorical": _split_lists(categorical),
        "types": _parse_pairs("types", types),
        "missing": _parse_missing(missing or ()),
        "names": None if names is None else [name.strip() for name in names.split(",")],
        "separator": {"tab": "\t", "\\t": "\t"}.get(separator or "", separator),
        "encoding": encoding,
        "decimal": decimal,
        "positive": positive,
        "weight": weight,
        "class_weight": _parse_class_weight(class_weight or ()),
    }
    found = {key: value for key, value in values.items() if value}
    return found if quote is None else {**found, "quote": quote}


def _split_lists(texts: Sequence[str] | None) -> list[str]:
    # An empty text names a column without a header, often an index.
    parts = (part.strip() for text in texts or () for part in text.split(","))
    return [part for part in parts if part or "" in (texts or ())]


def _parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, found, value = text.partition("=")
        if not found:
            raise ParameterError(f"{option}: {text!r} is not COLUMN=TYPE, as opened=date")
        pairs[name.strip()] = value.strip()
    return pairs


def _parse_class_weight(texts: Sequence[str]) -> str | dict[str, float]:
    """Return "balanced", or weights by class."""
    if list(texts) == ["balanced"]:
        return "balanced"
    pairs = (text.rpartition("=") for text in texts)
    try:
        return {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        raise ParameterError(
            f"class_weight: {' '.join(texts)!r} is neither balanced nor CLASS=WEIGHT, as yes=10"
        ) from None


def _parse_missing(texts: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Return the texts of missing values: one list, or a list by column if any text names one."""
    if not any("=" in text.strip("=") for text in texts):
        return list(texts)
    found: dict[str, list[str]] = {}
    for text in texts:
        name, named, value = text.partition("=")
        found.setdefault(name if named else "*", []).append(value if named else text)
    return found
