"""Reading a table from a CSV or Parquet file, gzip-compressed or not.

What a file is shows in its first bytes, not in its name. A cell that cannot be a number is an error
that names its column and row (the first one under the header is row 1): taken for missing, it would
silently change the model. Missing are empty cells and those that say so, whatever the format.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from privet.arrays import FloatArray
from privet.data.frame import Frame, listing, refuse_repeats
from privet.data.ids import Ids
from privet.errors import DataError

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


def read_frame(
    path: str | Path,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
    columns: Sequence[str] | None = None,
) -> Frame:
    """Read the columns named, or all but the id and the label, as numbers.

    Ids are compared as text, so that 7 in one participant's Parquet file and `7` in another's CSV
    are the same sample.
    """
    with _naming(path):
        content = _content(Path(path))
        names = _column_names(content)
        wanted = _wanted_columns(names, id_column, label_column, columns)
        table = _read(content, names, wanted, id_column, label_column)
        if table.num_rows == 0:
            raise DataError("the table has a header but no rows")
        numbers = [_numbers(table[name], name) for name in wanted]
        return Frame(
            names=tuple(wanted),
            columns=np.stack(numbers) if numbers else np.empty((0, table.num_rows)),
            ids=None if id_column is None else Ids.read({id_column: table[id_column]}),
            label=None if label_column is None else _numbers(table[label_column], label_column),
        )


def column_names(path: str | Path) -> list[str]:
    """Return the names of a file's columns."""
    with _naming(path):
        return _column_names(_content(Path(path)))


@contextlib.contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Put the file's name before what went wrong with it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except pa.ArrowException as error:
        raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def _content(path: Path) -> pa.Buffer:
    """Return the bytes of a file, decompressed."""
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"the gzip file is damaged: {error}") from None
    except OSError as error:
        raise DataError(error.strerror or str(error)) from None
    if not content or content.isspace():
        raise DataError("the file is empty")
    return pa.py_buffer(content)


def _is_parquet(content: pa.Buffer) -> bool:
    return bytes(content.slice(0, min(4, content.size))) == _PARQUET


def _column_names(content: pa.Buffer) -> list[str]:
    if _is_parquet(content):
        names: list[str] = pq.read_schema(pa.BufferReader(content)).names
        return names
    text = io.TextIOWrapper(pa.BufferReader(content), encoding="utf-8-sig", newline="")
    try:
        return next((row for row in csv.reader(text) if row), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"not CSV in UTF-8: {error}") from None


def _wanted_columns(
    names: list[str],
    id_column: str | None,
    label_column: str | None,
    columns: Sequence[str] | None,
) -> list[str]:
    refuse_repeats(names, "column")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise DataError(f"the only column is {names[0]!r}: separate columns with commas")
    special = [name for name in (id_column, label_column) if name is not None]
    asked = [*special, *(columns or ())]
    for name in asked:
        if name not in names:
            raise DataError(f"there is no column {name!r}; there are {listing(names)}")
        if asked.count(name) > 1:
            raise DataError(f"column {name!r} is asked for twice: as id, label or feature")
    return list(columns) if columns is not None else [n for n in names if n not in special]


def _read(
    content: pa.Buffer,
    names: list[str],
    wanted: list[str],
    id_column: str | None,
    label_column: str | None,
) -> pa.Table:
    numeric = [*wanted, *([] if label_column is None else [label_column])]
    text = [] if id_column is None else [id_column]
    if _is_parquet(content):
        return pq.read_table(pa.BufferReader(content), columns=[*numeric, *text])
    # In a file of one column, an empty line is an empty cell.
    parsing = pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    try:
        return _read_csv(content, parsing, numeric, text)
    except pa.ArrowInvalid:
        # Some cell is no number. As text the table can be read, and then searched for it.
        return _read_csv(content, parsing, [], [*numeric, *text])


def _read_csv(
    content: pa.Buffer, parsing: pacsv.ParseOptions, numeric: list[str], text: list[str]
) -> pa.Table:
    types = dict.fromkeys(numeric, pa.float64()) | dict.fromkeys(text, pa.string())
    return pacsv.read_csv(
        pa.BufferReader(content),
        parse_options=parsing,
        convert_options=pacsv.ConvertOptions(
            include_columns=[*numeric, *text], column_types=types, null_values=list(MISSING)
        ),
    )


def _numbers(column: pa.ChunkedArray, name: str) -> FloatArray:
    """Return a column as finite numbers or NaN; name the first cell that is neither."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = _parse(column, name)
    elif (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_decimal(column.type)
        or pa.types.is_boolean(column.type)
        or pa.types.is_null(column.type)
    ):
        # Whole numbers beyond 2^53 become the nearest double.
        values = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        raise DataError(f"column {name!r} holds {column.type}, not numbers")
    values = np.array(values, dtype=np.float64)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(
            f"column {name!r}, row {row + 1} is infinite; write a finite number, "
            "or leave the cell empty where the value is missing"
        )
    return values


def _parse(column: pa.ChunkedArray, name: str) -> FloatArray:
    """Return numbers written as text."""

    def parse(start: int, end: int) -> FloatArray:
        text = pc.utf8_trim_whitespace(column.slice(start, end - start))
        missing = pc.is_in(text, value_set=pa.array(MISSING, text.type))
        cells = pc.if_else(missing, pa.scalar(None, text.type), text)
        return np.asarray(cells.cast(pa.float64()).to_numpy())

    try:
        return parse(0, len(column))
    except pa.ArrowInvalid:
        pass
    start, end = 0, len(column)  # the first bad cell lies in between: halve that
    while end - start > 1:
        middle = (start + end) // 2
        try:
            parse(start, middle)
            start = middle
        except pa.ArrowInvalid:
            end = middle
    raise DataError(
        f"column {name!r}, row {end}: {column[start].as_py()!r} is not a number; correct it, "
        "leave the cell empty where the value is missing, or leave the column out"
    )
