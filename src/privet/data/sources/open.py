"""Opening a table, wherever it is and whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privet.data.sources.columnar import ArrowFileSource, ArrowStreamSource, ParquetSource
from privet.data.sources.csv_file import CsvSource
from privet.data.sources.location import Kind, Location, locate
from privet.data.sources.source import Source, SourceOptions, naming
from privet.errors import DataError, ParameterError

_ABOUT_CSV = ("separator", "quote", "encoding", "names")
_DEFAULTS = SourceOptions()
_COLUMNAR: dict[Kind, Callable[[Location], Source]] = {
    "Parquet": ParquetSource,
    "Arrow file": ArrowFileSource,
    "Arrow stream": ArrowStreamSource,
}


def open_source(path: str | Path, options: SourceOptions | None = None) -> Source:
    """Find out what a table is, and what its columns are called."""
    location = locate(path)
    with naming(location.where):
        if location.is_folder():
            raise DataError("Is a directory")
        return _open_file(location, options or SourceOptions())


def _open_file(location: Location, options: SourceOptions) -> Source:
    kind = location.kind()
    if kind == "CSV":
        return CsvSource(location, options)
    for option in _ABOUT_CSV:
        if getattr(options, option) != getattr(_DEFAULTS, option):
            raise ParameterError(
                f"{option}: is for CSV files, and {location.where} is {kind}: leave it out"
            )
    return _COLUMNAR[kind](location)
