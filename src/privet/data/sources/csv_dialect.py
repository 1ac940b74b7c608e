"""How a CSV file is written: found from its first lines, or as its owner says.

A separator is one that cuts the header into several cells, and then every row into as many. Where
two of them do, nothing is guessed: the owner has to say which.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from privet.config import quoted
from privet.data.sources.source import Separator, SourceOptions
from privet.errors import DataError

_HEAD = 1 << 20  # bytes that are looked at
_ROWS = 200
_CALLED = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Dialect:
    """How to read a CSV file, and what its columns are called."""

    separator: str
    quote: str
    encoding: str
    names: tuple[str, ...]
    has_header: bool
    skipped: int
    """How many bytes come before the first row: a byte-order mark, empty lines."""


def find_dialect(stream: pa.NativeFile, options: SourceOptions) -> Dialect:
    """Tell how a file is written by its beginning."""
    head = stream.read(_HEAD)
    skipped = _before_the_first_row(head, options.encoding)
    text, whole = _text(head[skipped:], len(head) < _HEAD, options.encoding)
    separator = options.separator or _find_separator(text, whole, options)
    first = _rows(text, separator, options.quote)[0]
    if options.names is None:
        _check_header(first, options.quote)
    elif len(options.names) != len(first):
        line = re.split("[\r\n]", text, maxsplit=1)[0]
        raise DataError(
            f"names: {len(options.names)} are given, and the first line has {len(first)} cells: "
            f"{quoted(line)}"
        )
    return Dialect(
        separator=separator,
        quote=options.quote,
        encoding=options.encoding,
        names=tuple(name.strip() for name in options.names or first),
        has_header=options.names is None,
        skipped=skipped,
    )


def _before_the_first_row(head: bytes, encoding: str) -> int:
    if head.startswith(_UTF16_MARKS):
        raise DataError("the text is in UTF-16: save it in UTF-8")
    mark = len(_UTF8_MARK) if head.startswith(_UTF8_MARK) else 0
    if mark and encoding != "utf-8":
        raise DataError(
            f"encoding: {encoding} is given, and the file says that it is UTF-8: leave it out"
        )
    content = head[mark:].lstrip()
    if not content:
        raise DataError("the file is empty")
    blanks = head[: len(head) - len(content)]
    # A blank after the last line end may be an empty cell between tabs, so it belongs to the row.
    return max(mark, 1 + max(blanks.rfind(b"\n"), blanks.rfind(b"\r")))


def _text(head: bytes, whole: bool, encoding: str) -> tuple[str, bool]:
    """Return the head's whole lines; bytes that are not UTF-8 stay visible as surrogates."""
    if b"\0" in head:
        raise DataError("there are zero bytes in the file: save it as text in UTF-8")
    if not whole:
        end = max(head.rfind(b"\n"), head.rfind(b"\r"))
        if end < 0:
            raise DataError(f"the first line is longer than {_HEAD:,} bytes: this is no table")
        head = head[:end]
    return head.decode(encoding, errors="surrogateescape"), whole


def _find_separator(text: str, whole: bool, options: SourceOptions) -> str:
    possible: list[str] = [mark for mark in get_args(Separator) if mark != options.decimal]
    columns: dict[str, int] = {}
    odd_rows: dict[str, int] = {}
    for mark in possible:
        counts = [len(row) for row in _rows(text, mark, options.quote)]
        if not whole and len(counts) > 1:
            counts.pop()  # it may be cut off inside quotes
        if counts[0] > 1:
            columns[mark] = counts[0]
            odd_rows[mark] = sum(count != counts[0] for count in counts)
    if not columns:
        return possible[0]  # of a single column
    # A row that is cut into another number of cells is an error later, which names it.
    best = [mark for mark in columns if odd_rows[mark] == min(odd_rows.values())]
    if options.names is not None:
        best = [mark for mark in best if columns[mark] == len(options.names)] or best
    if len(best) > 1:
        choices = " or ".join(f"{_CALLED[mark]} ({columns[mark]} columns)" for mark in best)
        raise DataError(f"columns are separated by {choices}: say which by separator = ...")
    return best[0]


def _rows(text: str, separator: str, quote: str) -> list[list[str]]:
    """Return the first rows that are not empty, if cells are separated so; at least one."""
    lines = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    )
    rows: list[list[str]] = []
    try:
        rows.extend(itertools.islice(filter(None, lines), _ROWS))
    except csv.Error as error:  # a cell of more than 131,072 characters: a quote was not closed
        if not rows:
            raise DataError(f"the first row cannot be read: {error}") from None
        rows.append([])
    return rows


def _check_header(names: list[str], quote: str) -> None:
    for number, name in enumerate(names, start=1):
        refuse_blank_before_quote(name, quote, f"the header's cell {number}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            byte = ord(name[error.start]) - 0xDC00
            shown = name.encode(errors="surrogateescape").decode("latin-1")
            raise DataError(not_utf8(f"the header's cell {number}", byte, shown)) from None


def not_utf8(what: str, byte: int, shown: str) -> str:
    """Say that a cell is not UTF-8, and what it is if it is Latin-1."""
    return (
        f"{what} is not UTF-8: byte 0x{byte:02x}, in Latin-1 {quoted(shown, 40)!r}; save the file "
        'in UTF-8, or say encoding = "latin-1"'
    )


def refuse_blank_before_quote(cell: str, quote: str, what: str) -> None:
    """Refuse a cell whose quotes would become part of it."""
    if quote and cell[:1].isspace() and cell.lstrip().startswith(quote):
        raise DataError(
            f"{what} has a blank before its quote: {quoted(cell, 40)}; write the file without such "
            'blanks, or say quote = "" if quotes are mere text'
        )
