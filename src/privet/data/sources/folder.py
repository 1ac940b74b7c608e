"""Folders of files that are one table, with or without columns in their folders' names.

`sales/year=2024/part-0.parquet` has the column `year`, as Hive and Spark write it: of whole numbers
if all values are, otherwise of text. Files and folders whose names start with `_` or `.` are other
programs' notes. Files are read one after the other, by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from privet.data.frame import listing
from privet.data.sources.location import Location
from privet.data.sources.source import Source, naming
from privet.errors import DataError

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Member:
    """A file of a folder, and what the names of the folders in between say about its rows."""

    location: Location
    values: dict[str, str | None]


def members(folder: Location) -> list[Member]:
    """List a folder's files, in all folders below it too."""
    found = []
    for info in folder.filesystem.get_file_info(pafs.FileSelector(folder.path, recursive=True)):
        steps = info.path[len(folder.path) :].strip("/").split("/")
        if info.type == pafs.FileType.File and not any(step[0] in "_." for step in steps):
            where = "/".join([folder.where.rstrip("/"), *steps])
            values = dict(_value(step) for step in steps[:-1] if "=" in step)
            found.append(Member(Location(folder.filesystem, info.path, where), values))
    if not found:
        raise DataError("there is no table in this folder")
    return sorted(found, key=lambda member: member.location.path)


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
        inside = [name for name in columns if name not in self._values]
        for number, file in enumerate(self._files):
            with naming(file.where):
                # Rows are counted by any column where the folders' names have all that is asked.
                for batch in file.read(inside or file.names()[:1]):
                    yield pa.RecordBatch.from_arrays(
                        [
                            batch[name]
                            if name not in self._values
                            else pa.repeat(self._values[name][number], batch.num_rows)
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
