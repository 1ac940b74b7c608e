"""Opening of a data source by path, URL or query, including folders of files.

`sales/year=2024/part-0.parquet` has the column `year`, as Hive and Spark write it: integers if all
values are integers, otherwise text. Files and folders whose names start with `_` or `.` are
metadata of other programs and are ignored. Files are read in the order of their names. If the names
contain the number of files, as `privet shard` writes them, all files must be present.
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
from privet.data.frame import format_names
from privet.data.sources.arrow import ArrowFileSource, ArrowStreamSource, ParquetSource
from privet.data.sources.base import (
    CSV_OPTION_NAMES,
    FileFormat,
    Location,
    TableFormatOptions,
    TableSource,
    check_rows_exist,
    locate_errors,
    resolve_location,
    select_range,
)
from privet.data.sources.csv import CsvSource
from privet.data.sources.postgres import QUERY_DISPLAY_NAME, PostgresQuery, PostgresSource
from privet.errors import DataError, ParameterError

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_INTEGER_PATTERN = re.compile(r"0|-?[1-9][0-9]{0,17}")
_SHARD_NAME_PATTERN = re.compile(r"([0-9]{5})-of-([0-9]{5})\.parquet")


@dataclass(frozen=True)
class PartitionedFile:
    """A file in a folder, and the column values in the names of its parent folders."""

    location: Location
    partition_values: dict[str, str | None]


def make_shard_names(count: int) -> list[str]:
    """Return the names of shard files, which contain their number, to detect a missing one."""
    return [f"{number:05}-of-{count:05}.parquet" for number in range(count)]


def list_files(folder: Location) -> list[PartitionedFile]:
    """List the files in a folder and its subfolders; raise DataError if shards are missing."""
    files, names_by_folder = [], dict[str, list[str]]()
    for info in folder.filesystem.get_file_info(pafs.FileSelector(folder.path, recursive=True)):
        parts = info.path[len(folder.path) :].strip("/").split("/")
        if info.type == pafs.FileType.File and not any(part[0] in "_." for part in parts):
            display_name = "/".join([folder.display_name.rstrip("/"), *parts])
            values = dict(_parse_partition_value(part) for part in parts[:-1] if "=" in part)
            files.append(
                PartitionedFile(Location(folder.filesystem, info.path, display_name), values)
            )
            names_by_folder.setdefault(display_name.rpartition("/")[0], []).append(parts[-1])
    if not files:
        raise DataError("there is no table in this folder")
    for display_name in sorted(names_by_folder):
        with locate_errors(display_name):
            _check_shards_complete(names_by_folder[display_name])
    return sorted(files, key=lambda file: file.location.path)


def _check_shards_complete(names: Sequence[str]) -> None:
    """Raise DataError if the names of files contain their number and some are missing."""
    shard_counts = sorted(
        {int(match[2]) for name in names if (match := _SHARD_NAME_PATTERN.fullmatch(name))}
    )
    if len(shard_counts) > 1:
        counts = ", ".join(map(str, shard_counts[:-1])) + f" and {shard_counts[-1]}"
        raise DataError(
            f"there are files of {counts} in one folder, by their names: keep those of one table"
        )
    if not shard_counts:
        return
    present, expected = set(names), make_shard_names(shard_counts[0])
    for name in sorted(present - set(expected)):
        if _SHARD_NAME_PATTERN.fullmatch(name):
            raise DataError(f"{name!r} is none of {shard_counts[0]} files: remove it")
    missing = [name for name in expected if name not in present]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise DataError(
            f"{len(missing)} of {shard_counts[0]} files {verb} missing, "
            f"{format_names(missing, 3)}: put back what is missing, or write the table anew "
            "(privet shard)"
        )


def _parse_partition_value(folder_name: str) -> tuple[str, str | None]:
    name, _, value = folder_name.partition("=")
    return unquote(name), None if value == _NO_VALUE else unquote(value)


class FolderSource(TableSource):
    """Files of one format with the same columns, read as one table."""

    def __init__(
        self,
        folder: Location,
        files: Sequence[TableSource],
        partitioned_files: Sequence[PartitionedFile],
    ) -> None:
        self._files = list(files)
        self._values = _make_partition_columns(partitioned_files)
        first = self._files[0]
        for file in self._files[1:]:
            with locate_errors(file.display_name):
                _check_same_columns(file.list_columns(), first)
        for name in self._values:
            if name in first.list_columns():
                raise DataError(f"the column {name!r} is in the files and in the folders' names")
        fields = [pa.field(name, column.type) for name, column in self._values.items()]
        super().__init__(folder.display_name, pa.schema([*first.schema, *fields]))

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns from each file in turn."""
        for number, file in enumerate(self._files):
            with locate_errors(file.display_name):
                for batch in file.read_batches(self._select_file_columns(columns)):
                    yield self._add_partition_columns(batch, number, columns)

    def read_selected(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows; skip files without any if all files know their number of rows."""
        if self.n_rows is None:
            yield from super().read_selected(columns, rows)
            return
        check_rows_exist(rows, self.n_rows)
        end = 0
        for number, file in enumerate(self._files):
            start, end = end, end + (file.n_rows or 0)
            file_rows = select_range(rows, start, end)
            if len(file_rows):
                with locate_errors(file.display_name):
                    for batch in file.read_selected(self._select_file_columns(columns), file_rows):
                        yield self._add_partition_columns(batch, number, columns)

    @property
    def n_rows(self) -> int | None:
        """The number of rows in all files, if all files know theirs."""
        counts = [file.n_rows for file in self._files]
        return None if None in counts else sum(count or 0 for count in counts)

    def _select_file_columns(self, columns: list[str]) -> list[str]:
        """Return the columns to read from the files: at least one, to count the rows."""
        file_columns = [name for name in columns if name not in self._values]
        return file_columns or self._files[0].list_columns()[:1]

    def _add_partition_columns(
        self, batch: pa.RecordBatch, number: int, columns: list[str]
    ) -> pa.RecordBatch:
        """Return a batch with the columns from the folder names added."""
        values, rows = self._values, batch.num_rows
        return pa.RecordBatch.from_arrays(
            [
                batch[name] if name not in values else pa.repeat(values[name][number], rows)
                for name in columns
            ],
            names=columns,
        )

    def get_plain_type(self, name: str) -> pa.DataType:
        """Return the common plain type of a column in all files."""
        if name in self._values:
            return self._values[name].type
        common = self._files[0].get_plain_type(name)
        for file in self._files[1:]:
            with locate_errors(file.display_name):
                common = _common_type(name, common, file.get_plain_type(name))
        return common


def _make_partition_columns(files: Sequence[PartitionedFile]) -> dict[str, pa.Array]:
    """Return the columns in the folder names, with a value for each file."""
    names = list(files[0].partition_values)
    for file in files:
        if list(file.partition_values) != names:
            with locate_errors(file.location.display_name):
                raise DataError(
                    f"its folders name {format_names(list(file.partition_values))}, and those of "
                    f"{files[0].location.display_name} name {format_names(names)}"
                )
    return {
        name: _make_partition_column([file.partition_values[name] for file in files])
        for name in names
    }


def _make_partition_column(values: Sequence[str | None]) -> pa.Array:
    whole = all(value is None or _INTEGER_PATTERN.fullmatch(value) for value in values)
    return pa.array(values, pa.string()).cast(pa.int64() if whole else pa.string())


def _check_same_columns(names: Sequence[str], first: TableSource) -> None:
    columns, first_columns = set(names), set(first.list_columns())
    for name in names:
        if name not in first_columns:
            raise DataError(f"there is a column {name!r}, which {first.display_name} does not have")
    for name in first.list_columns():
        if name not in columns:
            raise DataError(f"there is no column {name!r}, which {first.display_name} has")


def _common_type(name: str, before: pa.DataType, here: pa.DataType) -> pa.DataType:
    schemas = [pa.schema([(name, before)]), pa.schema([(name, here)])]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowTypeError:
        raise DataError(
            f"column {name!r} holds {here}, and {before} in files before: write all in one type"
        ) from None


_DEFAULTS = TableFormatOptions()
_COLUMNAR: dict[FileFormat, Callable[[Location], TableSource]] = {
    "Parquet": ParquetSource,
    "Arrow file": ArrowFileSource,
    "Arrow stream": ArrowStreamSource,
}


def open_source(
    table: str | Path | PostgresQuery,
    options: TableFormatOptions | None = None,
    *,
    strict: bool = True,
) -> TableSource:
    """Open a table, detect its format and read its column names.

    The table is a path, a URL that pyarrow supports (s3://, gs://, hdfs://, file://, ...) or a
    query. With `strict`, an option that does not apply to the format is an error.
    """
    options = options or TableFormatOptions()
    if isinstance(table, PostgresQuery):
        if strict:
            _check_no_csv_options(options, QUERY_DISPLAY_NAME, "none")
        with locate_errors(QUERY_DISPLAY_NAME):
            return PostgresSource(table)
    location = resolve_location(table)
    with locate_errors(location.display_name):
        if not location.is_folder():
            return _open_file(location, options, strict)
        return _open_folder(location, options, strict)


def _open_folder(folder: Location, options: TableFormatOptions, strict: bool) -> TableSource:
    partitioned_files = list_files(folder)
    first, files = partitioned_files[0].location, []
    for location in (file.location for file in partitioned_files):
        with locate_errors(location.display_name):
            if location.file_format != first.file_format:
                raise DataError(
                    f"this is {location.file_format}, and {first.display_name} is "
                    f"{first.file_format}: keep files of one kind in a folder"
                )
            files.append(_open_file(location, options, strict))
    return FolderSource(folder, files, partitioned_files)


def _open_file(location: Location, options: TableFormatOptions, strict: bool) -> TableSource:
    if location.file_format == "CSV":
        return CsvSource(location, options)
    if strict:
        _check_no_csv_options(options, location.display_name, location.file_format)
    return _COLUMNAR[location.file_format](location)


def _check_no_csv_options(options: TableFormatOptions, display_name: str, file_format: str) -> None:
    for option in CSV_OPTION_NAMES:
        if getattr(options, option) != getattr(_DEFAULTS, option):
            raise ParameterError(
                f"{option}: is for CSV files, and {display_name} is {file_format}: leave it out"
            )
