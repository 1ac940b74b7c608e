"""Options that say what a table is: the keys of `[data]` in party.toml, as somebody types them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from privet.errors import ParameterError

_PATTERNS = "Columns by name or pattern (*, ?), as zip,income*; may be repeated."
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN,...", help=f"Leave these out. {_PATTERNS}")
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN,...", help=f"These are categories. {_PATTERNS}"),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=TYPE",
        help="What a column is: number, boolean, date, time, category, one-hot; "
        "'date %d.%m.%Y' says how it is written. May be repeated.",
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[COLUMN=]TEXT",
        help="What stands for a missing value, beside empty cells, NA and the like: '?'. May be "
        "repeated.",
    ),
]
Names = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="The columns' names, of a CSV file without a header."),
]
Separator = Annotated[
    str | None,
    typer.Option(help="Of a CSV file: one of , ; | and tab.", show_default="found in the file"),
]
Quote = Annotated[
    str | None,
    typer.Option(help="Of a CSV file: around cells; '' for none.", show_default='"'),
]
Encoding = Annotated[
    str | None, typer.Option(help="Of a CSV file: utf-8 or latin-1.", show_default="utf-8")
]
Decimal = Annotated[
    str | None, typer.Option(help="Before a number's fraction: '.' or ','.", show_default=".")
]
Query = Annotated[
    str | None, typer.Option(help="Instead of a file: a query to PostgreSQL.", show_default=False)
]
Database = Annotated[
    str | None,
    typer.Option(
        help="Whom to ask: a service of libpq's service file, or an address.",
        show_default="libpq's environment",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(
        help="The label's value that is the positive class.", show_default="the last in order"
    ),
]

Weight = Annotated[
    str | None,
    typer.Option(help="The column of weights: how much a row counts.", show_default=False),
]
ClassWeights = Annotated[
    list[str] | None,
    typer.Option(
        metavar="balanced|CLASS=WEIGHT",
        help="How much the rows of a class count; balanced: all classes the same in total. May be "
        "repeated.",
    ),
]


def table_of(
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
    """Return the keys of a table's description that somebody typed."""
    said: dict[str, Any] = {
        "query": query,
        "database": database,
        "columns": _listed(columns),
        "drop": _listed(drop),
        "categorical": _listed(categorical),
        "types": _pairs("types", types),
        "missing": _missing(missing or ()),
        "names": None if names is None else [name.strip() for name in names.split(",")],
        "separator": {"tab": "\t", "\\t": "\t"}.get(separator or "", separator),
        "encoding": encoding,
        "decimal": decimal,
        "positive": positive,
        "weight": weight,
        "class_weight": _class_weight(class_weight or ()),
    }
    found = {key: value for key, value in said.items() if value}
    return found if quote is None else {**found, "quote": quote}


def _listed(texts: Sequence[str] | None) -> list[str]:
    # An empty text is the name of a column that has none: an index, often.
    parts = (part.strip() for text in texts or () for part in text.split(","))
    return [part for part in parts if part or "" in (texts or ())]


def _pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, found, value = text.partition("=")
        if not found:
            raise ParameterError(f"{option}: {text!r} is not COLUMN=TYPE, as opened=date")
        pairs[name.strip()] = value.strip()
    return pairs


def _class_weight(texts: Sequence[str]) -> str | dict[str, float]:
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


def _missing(texts: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Return what stands for missing values: everywhere, or by column as soon as one is named."""
    if not any("=" in text.strip("=") for text in texts):
        return list(texts)
    found: dict[str, list[str]] = {}
    for text in texts:
        name, named, value = text.partition("=")
        found.setdefault(name if named else "*", []).append(value if named else text)
    return found
