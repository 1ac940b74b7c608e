"""CSV files, compressed or not, and the detection of their dialect.

All cells are read as text; an empty cell, quoted or not, is the empty text. Blanks around a cell
are stripped, also within quotes. A line end within quotes is part of its cell. An empty line is
skipped, except in a file of one column, where it is an empty cell. Rows are counted from 1 after
the header.

The detected separator splits the header into several cells, and every row into the same number. If
two separators do so, the owner must set one.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from privet.data.sources.base import (
    Location,
    Separator,
    TableFormatOptions,
    TableSource,
    get_first_line,
)
from privet.errors import DataError
from privet.schema import quote_untrusted

_SAMPLE_BYTES = 1 << 20  # bytes read to detect the dialect
_ROWS = 200
_SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class CsvDialect:
    """The dialect and the column names of a CSV file."""

    separator: str
    quote: str
    encoding: str
    names: tuple[str, ...]
    has_header: bool
    skipped_bytes: int
    """Bytes before the first row: a byte-order mark and empty lines."""


def detect_dialect(stream: pa.NativeFile, options: TableFormatOptions) -> CsvDialect:
    """Detect the dialect of a file from its first bytes."""
    sample = stream.read(_SAMPLE_BYTES)
    skipped = _find_first_row(sample, options.encoding)
    text, is_complete = _decode_sample(
        sample[skipped:], len(sample) < _SAMPLE_BYTES, options.encoding
    )
    separator = options.separator or _find_separator(text, is_complete, options)
    first_row = _parse_sample_rows(text, separator, options.quote)[0]
    if options.names is None:
        _check_header(first_row, options.quote)
    elif len(options.names) != len(first_row):
        line = re.split("[\r\n]", text, maxsplit=1)[0]
        raise DataError(
            f"names: {len(options.names)} are given, and the first line has {len(first_row)} "
            f"cells: {quote_untrusted(line)}"
        )
    return CsvDialect(
        separator=separator,
        quote=options.quote,
        encoding=options.encoding,
        names=tuple(name.strip() for name in options.names or first_row),
        has_header=options.names is None,
        skipped_bytes=skipped,
    )


def _find_first_row(sample: bytes, encoding: str) -> int:
    if sample.startswith(_UTF16_BOMS):
        raise DataError("the text is in UTF-16: save it in UTF-8")
    bom_bytes = len(_UTF8_BOM) if sample.startswith(_UTF8_BOM) else 0
    if bom_bytes and encoding != "utf-8":
        raise DataError(
            f"encoding: {encoding} is given, and the file says that it is UTF-8: leave it out"
        )
    content = sample[bom_bytes:].lstrip()
    if not content:
        raise DataError("the file is empty")
    blanks = sample[: len(sample) - len(content)]
    # A blank after the last line end may be an empty cell between tabs, so it belongs to the row.
    return max(bom_bytes, 1 + max(blanks.rfind(b"\n"), blanks.rfind(b"\r")))


def _decode_sample(sample: bytes, is_complete: bool, encoding: str) -> tuple[str, bool]:
    """Decode the complete lines of a sample; invalid UTF-8 bytes become surrogates."""
    if b"\0" in sample:
        raise DataError("there are zero bytes in the file: save it as text in UTF-8")
    if not is_complete:
        end = max(sample.rfind(b"\n"), sample.rfind(b"\r"))
        if end < 0:
            raise DataError(
                f"the first line is longer than {_SAMPLE_BYTES:,} bytes: this is no table"
            )
        sample = sample[:end]
    return sample.decode(encoding, errors="surrogateescape"), is_complete


def _find_separator(text: str, is_complete: bool, options: TableFormatOptions) -> str:
    possible: list[str] = [
        separator for separator in get_args(Separator) if separator != options.decimal
    ]
    columns: dict[str, int] = {}
    odd_rows: dict[str, int] = {}
    for separator in possible:
        counts = [len(row) for row in _parse_sample_rows(text, separator, options.quote)]
        if not is_complete and len(counts) > 1:
            counts.pop()  # it may be truncated inside quotes
        if counts[0] > 1:
            columns[separator] = counts[0]
            odd_rows[separator] = sum(count != counts[0] for count in counts)
    if not columns:
        return possible[0]  # a single column
    # A row with a different number of cells is an error later, which names the row.
    best = [separator for separator in columns if odd_rows[separator] == min(odd_rows.values())]
    if options.names is not None:
        best = [separator for separator in best if columns[separator] == len(options.names)] or best
    if len(best) > 1:
        choices = " or ".join(
            f"{_SEPARATOR_NAMES[separator]} ({columns[separator]} columns)" for separator in best
        )
        raise DataError(f"columns are separated by {choices}: say which by separator = ...")
    return best[0]


def _parse_sample_rows(text: str, separator: str, quote: str) -> list[list[str]]:
    """Return the first non-empty rows, split at `separator`; at least one row."""
    lines = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    )
    rows: list[list[str]] = []
    try:
        rows.extend(itertools.islice(filter(None, lines), _ROWS))
    except csv.Error as error:  # a cell above 131,072 characters, due to an open quote
        if not rows:
            raise DataError(f"the first row cannot be read: {error}") from None
        rows.append([])
    return rows


def _check_header(names: list[str], quote: str) -> None:
    for number, name in enumerate(names, start=1):
        check_no_blank_before_quote(name, quote, f"the header's cell {number}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            byte = ord(name[error.start]) - 0xDC00
            shown = name.encode(errors="surrogateescape").decode("latin-1")
            raise DataError(
                format_encoding_error(f"the header's cell {number}", byte, shown)
            ) from None


def format_encoding_error(cell_name: str, byte: int, shown: str) -> str:
    """Return the error text for a cell that is not UTF-8, with its content as Latin-1."""
    return (
        f"{cell_name} is not UTF-8: byte 0x{byte:02x}, in Latin-1 {quote_untrusted(shown, 40)!r}; "
        "save the file "
        'in UTF-8, or say encoding = "latin-1"'
    )


def check_no_blank_before_quote(cell: str, quote: str, cell_name: str) -> None:
    """Raise DataError for a cell whose quotes would become part of its text."""
    if quote and cell[:1].isspace() and cell.lstrip().startswith(quote):
        raise DataError(
            f"{cell_name} has a blank before its quote: {quote_untrusted(cell, 40)}; write the "
            "file without such "
            'blanks, or say quote = "" if quotes are mere text'
        )


_BLOCK = 2 << 20  # bytes parsed at a time, and the limit on a row
_PRINTABLE = (0x21, 0x7E)  # the range of ASCII characters without blanks
_OPEN_QUOTE = 'a quote that is not closed: correct it, or say quote = "" if quotes are mere text'
_CELL_COUNT_ERROR = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


class CsvSource(TableSource):
    """A CSV file."""

    def __init__(self, location: Location, options: TableFormatOptions) -> None:
        with location.open_stream() as stream:
            self._dialect = detect_dialect(stream, options)
        self._location = location
        names = self._dialect.names
        super().__init__(location.display_name, pa.schema([(name, pa.string()) for name in names]))

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns as text."""
        dialect = self._dialect
        rows, end = _RowCounter(dialect), secrets.token_hex(16)
        number = {name: number for number, name in enumerate(dialect.names)}
        numbers = [number[name] for name in columns]
        with self._location.open_stream() as stream:
            content = _Utf8Stream(stream, dialect, _make_end_row(dialect, numbers[0], end))
            try:
                for parsed in _parse_columns(content, dialect, numbers):
                    cells, first_row = rows.strip_extra_rows(parsed, end)
                    texts = [
                        _to_trimmed_text(column, name, first_row, dialect.quote)
                        for name, column in zip(columns, cells.columns, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(texts, names=columns)
            except pa.ArrowInvalid as error:
                raise rows.explain(error) from None
        rows.check_end()


class _Utf8Stream(io.RawIOBase):
    """The bytes of a file from its first row on, in UTF-8, followed by an end row.

    If the parser does not return the end row as a row, a quote was not closed and contains it.
    """

    def __init__(self, stream: pa.NativeFile, dialect: CsvDialect, end_row: bytes) -> None:
        self._chunks = self._read_chunks(stream, dialect, end_row)
        self._buffer = b""

    def readable(self) -> bool:
        """Return True, as pyarrow requires."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end, or all bytes if `size` is negative."""
        while size < 0 or len(self._buffer) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                size = len(self._buffer)
                break
            self._buffer += chunk
        content, self._buffer = self._buffer[:size], self._buffer[size:]
        return content

    @staticmethod
    def _read_chunks(stream: pa.NativeFile, dialect: CsvDialect, end_row: bytes) -> Iterator[bytes]:
        stream.read(dialect.skipped_bytes)
        last = b""
        while chunk := stream.read(_BLOCK):
            last = chunk[-1:]
            yield chunk if dialect.encoding == "utf-8" else chunk.decode(dialect.encoding).encode()
        if last not in (b"\n", b"\r"):
            yield b"\n"
        yield end_row


def _make_end_row(dialect: CsvDialect, number: int, marker: str) -> bytes:
    """Return a row with `marker` in one column and empty cells in the others."""
    before, after = number, len(dialect.names) - number - 1
    return f"{dialect.separator * before}{marker}{dialect.separator * after}\n".encode()


def _parse_columns(
    content: _Utf8Stream, dialect: CsvDialect, numbers: list[int]
) -> Iterator[pa.RecordBatch]:
    """Parse the columns with these numbers; the header is the first row."""
    columns = [f"f{number}" for number in numbers]
    yield from pacsv.open_csv(
        pa.PythonFile(content, "r"),
        read_options=pacsv.ReadOptions(
            block_size=_BLOCK,
            autogenerate_column_names=True,
            use_threads=False,  # threads are not faster, and lose the row numbers
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=len(dialect.names) > 1,
        ),
        convert_options=pacsv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, pa.binary()),
            strings_can_be_null=False,
        ),
    )


class _RowCounter:
    """Counts rows, so that errors can name the row."""

    def __init__(self, dialect: CsvDialect) -> None:
        self._dialect = dialect
        self._done = -1 if dialect.has_header else 0
        self._ended = False

    def strip_extra_rows(
        self, parsed: pa.RecordBatch, end_marker: str
    ) -> tuple[pa.RecordBatch, int]:
        """Return a batch without the header and the end row, and the number of its first row."""
        number = self._done + 1
        self._done += parsed.num_rows
        if parsed.num_rows and parsed.column(0)[-1].as_py() == end_marker.encode():
            self._ended = True
            parsed = parsed.slice(0, parsed.num_rows - 1)
        return (parsed, number) if number > 0 else (parsed.slice(1), 1)

    def check_end(self) -> None:
        """Raise DataError if an open quote in the last row contains the end row."""
        if not self._ended:
            raise DataError(f"row {self._done} has {_OPEN_QUOTE}")

    def explain(self, error: pa.ArrowInvalid) -> DataError:
        """Convert a parser error to an error that names the row."""
        if "straddling object" in str(error):
            return DataError(
                f"row {self._done + 1} is longer than {_BLOCK:,} bytes, or has {_OPEN_QUOTE}"
            )
        match = _CELL_COUNT_ERROR.search(str(error))
        if match is None:
            return DataError(f"not CSV: {get_first_line(error)}")
        number, expected, n_cells = (int(match[group]) for group in (1, 2, 3))
        problem = (
            f"row {number - self._dialect.has_header} has {n_cells} "
            f"{'cell' if n_cells == 1 else 'cells'}, and the {self._first_row_name} has {expected}"
        )
        if "\n" in match[4]:  # within quotes; the last line may be the end row
            return DataError(f"{problem}; correct it; or it has {_OPEN_QUOTE}")
        return DataError(
            f"{problem}: {quote_untrusted(match[4])}; correct it, or say separator and quote if "
            f"they are others than {self._dialect.separator!r} and {self._dialect.quote!r}"
        )

    @property
    def _first_row_name(self) -> str:
        return "header" if self._dialect.has_header else "first row"


def _to_trimmed_text(cells: pa.Array, name: str, first_row: int, quote: str) -> pa.Array:
    """Return cells as stripped text; `first_row` is the row number of the first cell."""
    try:
        texts = cells.cast(pa.string())
    except pa.ArrowInvalid:
        raise _find_encoding_error(cells, name, first_row) from None
    if _has_no_blanks(cells):
        return texts
    trimmed = pc.utf8_trim_whitespace(texts)
    if quote:
        suspects = pc.indices_nonzero(pc.starts_with(trimmed, quote)).to_pylist()
        for index in suspects:
            cell_name = f"column {name!r}, row {first_row + index}"
            check_no_blank_before_quote(texts[index].as_py(), quote, cell_name)
    return trimmed


def _has_no_blanks(cells: pa.Array) -> bool:
    """Tell whether no cell contains a blank, as in columns of numbers, so that none is stripped."""
    buffer = cells.buffers()[2]
    if buffer is None:
        return True
    lowest, highest = _PRINTABLE
    characters = np.frombuffer(buffer, np.uint8)
    return not bool((characters - np.uint8(lowest) > highest - lowest).any())


def _find_encoding_error(cells: pa.Array, name: str, first_row: int) -> DataError:
    for row, cell in enumerate(cells.to_pylist(), start=first_row):
        try:
            cell.decode()
        except UnicodeDecodeError as error:
            cell_name = f"column {name!r}, row {row}"
            return DataError(
                format_encoding_error(cell_name, cell[error.start], cell.decode("latin-1"))
            )
    raise AssertionError("all cells are UTF-8")
