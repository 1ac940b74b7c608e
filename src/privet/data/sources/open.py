"""Opening a data source by path, address or query, folders of files included.

`sales/year=2024/part-0.parquet` has the column `year`, as Hive and Spark write it: of whole numbers
if all values are, otherwise of text. Files and folders whose names start with `_` or `.` are other
programs' notes. Files are read one after the other, by their names. Those whose names say how many
there are, as `privet shard` writes them, are read only if all of them are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from privet.arrays import IndexArray
from privet.data.frame import listing
from privet.data.sources.arrow import ArrowFileSource, ArrowStreamSource, ParquetSource
from privet.data.sources.base import (
    ABOUT_CSV,
    Kind,
    Location,
    Source,
    SourceOptions,
    between,
    locate,
    naming,
    refuse_beyond,
)
from privet.data.sources.csv import CsvSource
from privet.data.sources.postgres import WHERE, PostgresSource, Query
from privet.errors import DataError, ParameterError

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_ONE_OF = re.compile(r"([0-9]{5})-of-([0-9]{5})\.parquet")


@dataclass(frozen=True)
class Member:
    """A file of a folder, and what the names of the folders in between say about its rows."""

    location: Location
    values: dict[str, str | None]


def numbered(count: int) -> list[str]:
    """Return names of so many files, from which it shows if one is missing later."""
    return [f"{number:05}-of-{count:05}.parquet" for number in range(count)]


def members(folder: Location) -> list[Member]:
    """List a folder's files, in all folders below it too; refuse some that are not all."""
    found, names = [], dict[str, list[str]]()
    for info in folder.filesystem.get_file_info(pafs.FileSelector(folder.path, recursive=True)):
        steps = info.path[len(folder.path) :].strip("/").split("/")
        if info.type == pafs.FileType.File and not any(step[0] in "_." for step in steps):
            where = "/".join([folder.where.rstrip("/"), *steps])
            values = dict(_value(step) for step in steps[:-1] if "=" in step)
            found.append(Member(Location(folder.filesystem, info.path, where), values))
            names.setdefault(where.rpartition("/")[0], []).append(steps[-1])
    if not found:
        raise DataError("there is no table in this folder")
    for where in sorted(names):
        with naming(where):
            _refuse_some_of_many(names[where])
    return sorted(found, key=lambda member: member.location.path)


def _refuse_some_of_many(names: Sequence[str]) -> None:
    """Raise DataError if files say how many they are, and are not as many."""
    said = sorted({int(match[2]) for name in names if (match := _ONE_OF.fullmatch(name))})
    if len(said) > 1:
        counts = ", ".join(map(str, said[:-1])) + f" and {said[-1]}"
        raise DataError(
            f"there are files of {counts} in one folder, by their names: keep those of one table"
        )
    if not said:
        return
    here, wanted = set(names), numbered(said[0])
    for name in sorted(here - set(wanted)):
        if _ONE_OF.fullmatch(name):
            raise DataError(f"{name!r} is none of {said[0]} files: remove it")
    missing = [name for name in wanted if name not in here]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise DataError(
            f"{len(missing)} of {said[0]} files {are} missing, {listing(missing, 3)}: put back "
            "what is missing, or write the table anew (privet shard)"
        )


def _value(step: str) -> tuple[str, str | None]:
    name, _, value = step.partition("=")
    return unquote(name), None if value == _NO_VALUE else unquote(value)


class FolderSource(Source):
    """Files of one kind with the same columns, read as one table."""

    def __init__(self, folder: Location, files: Sequence[Source], found: Sequence[Member]) -> None:
        self._files = list(files)
        self._values = _columns(found)
        first = self._files[0]
        for file in self._files[1:]:
            with naming(file.where):
                _refuse_other_names(file.names(), first)
        for name in self._values:
            if name in first.names():
                raise DataError(f"the column {name!r} is in the files and in the folders' names")
        fields = [pa.field(name, column.type) for name, column in self._values.items()]
        super().__init__(folder.where, pa.schema([*first.schema, *fields]))

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of one file after the other."""
        for number, file in enumerate(self._files):
            with naming(file.where):
                for batch in file.read(self._inside(columns)):
                    yield self._with_values(batch, number, columns)

    def read_rows(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows, and nothing of files without any, where files say what they hold."""
        if self.n_rows is None:
            yield from super().read_rows(columns, rows)
            return
        refuse_beyond(rows, self.n_rows)
        end = 0
        for number, file in enumerate(self._files):
            start, end = end, end + (file.n_rows or 0)
            wanted = between(rows, start, end)
            if len(wanted):
                with naming(file.where):
                    for batch in file.read_rows(self._inside(columns), wanted):
                        yield self._with_values(batch, number, columns)

    @property
    def n_rows(self) -> int | None:
        """How many rows all files have, if all of them say so."""
        counts = [file.n_rows for file in self._files]
        return None if None in counts else sum(count or 0 for count in counts)

    def _inside(self, columns: list[str]) -> list[str]:
        """Return which of these columns are in the files; at least one, by which rows count."""
        inside = [name for name in columns if name not in self._values]
        return inside or self._files[0].names()[:1]

    def _with_values(
        self, batch: pa.RecordBatch, number: int, columns: list[str]
    ) -> pa.RecordBatch:
        """Return all columns of a batch, with those of the folders' names."""
        values, rows = self._values, batch.num_rows
        return pa.RecordBatch.from_arrays(
            [
                batch[name] if name not in values else pa.repeat(values[name][number], rows)
                for name in columns
            ],
            names=columns,
        )

    def plain_type(self, name: str) -> pa.DataType:
        """Return the type that holds a column's values of all files."""
        if name in self._values:
            return self._values[name].type
        common = self._files[0].plain_type(name)
        for file in self._files[1:]:
            with naming(file.where):
                common = _common_type(name, common, file.plain_type(name))
        return common


def _columns(found: Sequence[Member]) -> dict[str, pa.Array]:
    """Return the columns that folders' names make, with a value for each file."""
    names = list(found[0].values)
    for member in found:
        if list(member.values) != names:
            with naming(member.location.where):
                raise DataError(
                    f"its folders name {listing(list(member.values))}, and those of "
                    f"{found[0].location.where} name {listing(names)}"
                )
    return {name: _column([member.values[name] for member in found]) for name in names}


def _column(values: Sequence[str | None]) -> pa.Array:
    whole = all(value is None or _WHOLE.fullmatch(value) for value in values)
    return pa.array(values, pa.string()).cast(pa.int64() if whole else pa.string())


def _refuse_other_names(names: Sequence[str], first: Source) -> None:
    here, there = set(names), set(first.names())
    for name in names:
        if name not in there:
            raise DataError(f"there is a column {name!r}, which {first.where} does not have")
    for name in first.names():
        if name not in here:
            raise DataError(f"there is no column {name!r}, which {first.where} has")


def _common_type(name: str, before: pa.DataType, here: pa.DataType) -> pa.DataType:
    schemas = [pa.schema([(name, before)]), pa.schema([(name, here)])]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowTypeError:
        raise DataError(
            f"column {name!r} holds {here}, and {before} in files before: write all in one type"
        ) from None


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
