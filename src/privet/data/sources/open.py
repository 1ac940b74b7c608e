"""Opening a table, wherever it is and whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privet.data.sources.columnar import ArrowFileSource, ArrowStreamSource, ParquetSource
from privet.data.sources.csv_file import CsvSource
from privet.data.sources.folder import FolderSource, members
from privet.data.sources.location import Kind, Location, locate
from privet.data.sources.postgres import WHERE, PostgresSource, Query
from privet.data.sources.source import ABOUT_CSV, Source, SourceOptions, naming
from privet.errors import DataError, ParameterError

_DEFAULTS = SourceOptions()
_COLUMNAR: dict[Kind, Callable[[Location], Source]] = {
    "Parquet": ParquetSource,
    "Arrow file": ArrowFileSource,
    "Arrow stream": ArrowStreamSource,
}


def open_source(
    table: str | Path | Query, options: SourceOptions | None = None, *, strict: bool = True
) -> Source:
    """Find out what a table is, and what its columns are called.

    It is at a path, at an address that pyarrow knows (s3://, gs://, hdfs://, file://, ...) or what
    a query returns. Strictly, options that it has no use for are refused.
    """
    options = options or SourceOptions()
    if isinstance(table, Query):
        if strict:
            _refuse_options_about_csv(options, WHERE, "none")
        with naming(WHERE):
            return PostgresSource(table)
    location = locate(table)
    with naming(location.where):
        if not location.is_folder():
            return _open_file(location, options, strict)
        return _open_folder(location, options, strict)


def _open_folder(folder: Location, options: SourceOptions, strict: bool) -> Source:
    found = members(folder)
    first, files = found[0].location, []
    for location in (member.location for member in found):
        with naming(location.where):
            if location.kind != first.kind:
                raise DataError(
                    f"this is {location.kind}, and {first.where} is {first.kind}: keep files of "
                    "one kind in a folder"
                )
            files.append(_open_file(location, options, strict))
    return FolderSource(folder, files, found)


def _open_file(location: Location, options: SourceOptions, strict: bool) -> Source:
    if location.kind == "CSV":
        return CsvSource(location, options)
    if strict:
        _refuse_options_about_csv(options, location.where, location.kind)
    return _COLUMNAR[location.kind](location)


def _refuse_options_about_csv(options: SourceOptions, where: str, kind: str) -> None:
    for option in ABOUT_CSV:
        if getattr(options, option) != getattr(_DEFAULTS, option):
            raise ParameterError(f"{option}: is for CSV files, and {where} is {kind}: leave it out")
