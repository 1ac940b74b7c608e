from __future__ import annotations

import bz2
import csv
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet import DataError, ParameterError
from privet.data.sources import csv as csv_module
from privet.data.sources.base import TableFormatOptions
from privet.data.sources.open import open_source

Write = Callable[[str | bytes], Path]
SEPARATORS = [",", ";", "\t", "|"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "table"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(path: Path, **options: Any) -> list[list[str]]:
    """Return the header and all rows, as text."""
    source = open_source(path, TableFormatOptions(**options))
    names = source.list_columns()
    batches = list(source.iter_batches(names))
    assert all(batch.schema.types == [pa.string()] * len(names) for batch in batches)
    assert all(batch.schema.names == names for batch in batches)
    rows = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    return [names, *rows]


CONTENT = "id,name,age\n007, Ann ,31\n8,,\n"
CELLS = [["id", "name", "age"], ["007", "Ann", "31"], ["8", "", ""]]


@pytest.mark.parametrize(
    "content",
    [
        CONTENT.encode(),
        gzip.compress(CONTENT.encode(), mtime=0),
        bz2.compress(CONTENT.encode()),
        pa.compress(CONTENT.encode(), "zstd", asbytes=True),
        b"\xef\xbb\xbf" + CONTENT.encode(),
        gzip.compress(b"\xef\xbb\xbf" + CONTENT.encode(), mtime=0),
        CONTENT.replace("\n", "\r\n").encode(),
        CONTENT.replace("\n", "\r").encode(),
        CONTENT.rstrip("\n").encode(),
        b"\n \r\n" + CONTENT.encode() + b"\n\n",
        b'"id"," name","age"\r\n"007","Ann ","31"\r\n8,"",\r\n',
    ],
    ids=[
        "plain",
        "gzip",
        "bz2",
        "zstd",
        "byte-order-mark",
        "gzip-and-mark",
        "crlf",
        "cr",
        "no-last-newline",
        "empty-lines",
        "quoted",
    ],
)
def test_dialects_and_compressions(write: Write, content: bytes) -> None:
    assert read(write(content)) == CELLS


@pytest.mark.parametrize("separator", SEPARATORS)
def test_separators_are_detected(write: Write, separator: str) -> None:
    path = write(CONTENT.replace(",", separator))
    assert read(path) == CELLS
    assert read(path, separator=separator) == CELLS


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        # Decimal commas, of which the header has none.
        ("a;b\n1,5;2,5\n3,5;4,5\n", [["a", "b"], ["1,5", "2,5"], ["3,5", "4,5"]]),
        # The other separator is inside quotes, or not in every row.
        ('"a, x";b\n1;2\n', [["a, x", "b"], ["1", "2"]]),
        ('a,b\n"1;2",3\n"4;5",6\n', [["a", "b"], ["1;2", "3"], ["4;5", "6"]]),
        ("name, first;age\nSmith, John;3\nMiller;4\n", None),
        # One column.
        ("a\n1\n2\n", [["a"], ["1"], ["2"]]),
        ('a\n"1,2"\n', [["a"], ["1,2"]]),
    ],
)
def test_characters_that_are_not_separators(
    write: Write, content: str, cells: list[list[str]] | None
) -> None:
    if cells is None:
        cells = [line.split(";") for line in content.splitlines()]
    assert read(write(content)) == cells


def test_ambiguous_separator_must_be_set(write: Write) -> None:
    path = write("a,b;c,d\n1,5;2,5\n")
    complaint = (
        rf"^{path}: columns are separated by commas \(3 columns\) or semicolons \(2 columns\): "
        r"say which by separator = \.\.\.$"
    )
    with pytest.raises(DataError, match=complaint):
        open_source(path)
    assert read(path, separator=",")[1] == ["1", "5;2", "5"]
    assert read(path, separator=";")[1] == ["1,5", "2,5"]
    assert read(path, decimal=",")[1] == ["1,5", "2,5"]
    assert read(path, names=["x", "y"])[2] == ["1,5", "2,5"]


def test_a_single_column_of_decimal_commas(write: Write) -> None:
    assert read(write("a\n1,5\n2,5\n"), decimal=",") == [["a"], ["1,5"], ["2,5"]]


def test_an_empty_line_of_one_column_is_an_empty_cell(write: Write) -> None:
    assert read(write("\na\n1\n\n3\n")) == [["a"], ["1"], [""], ["3"]]
    assert read(write("a,b\n1,2\n\n3,4\n")) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_blocks_of_empty_lines(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "_BLOCK", 64)
    path = write("a,b\n1,2\n" + "\n" * 1000 + "3,4\n" + "\n" * 1000)
    assert read(path) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_quotes(write: Write) -> None:
    assert read(write('a,b\n"x\r\n,y","say ""no"""\n')) == [
        ["a", "b"],
        ["x\r\n,y", 'say "no"'],
    ]
    assert read(write("a,b\n'x,y',5\"\n"), quote="'") == [["a", "b"], ["x,y", '5"']]
    assert read(write('a,b\n"x,y"\n'), quote="") == [["a", "b"], ['"x', 'y"']]


def test_no_header(write: Write) -> None:
    path = write("39, State-gov, <=50K\n50, Private, >50K\n")
    names = ["age", "work", "income"]
    assert read(path, names=names) == [
        names,
        ["39", "State-gov", "<=50K"],
        ["50", "Private", ">50K"],
    ]
    complaint = "names: 2 are given, and the first line has 3 cells: 39, State-gov, <=50K"
    with pytest.raises(DataError, match=complaint):
        read(path, names=["age", "work"])


def test_latin_1_is_never_guessed(write: Write) -> None:
    content = "ort,n\nKöln,1\nBrühl,2\n"
    cells = [["ort", "n"], ["Köln", "1"], ["Brühl", "2"]]
    assert read(write(content)) == cells
    path = write(content.encode("latin-1"))
    complaint = (
        r"column 'ort', row 1 is not UTF-8: byte 0xf6, in Latin-1 'Köln'; save the file in UTF-8, "
        r'or say encoding = "latin-1"$'
    )
    with pytest.raises(DataError, match=complaint):
        read(path)
    assert read(path, encoding="latin-1") == cells
    assert [b.to_pydict() for b in open_source(path).iter_batches(["n"])] == [{"n": ["1", "2"]}]


def test_latin_1_in_the_header(write: Write) -> None:
    path = write("id,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"the header's cell 2 is not UTF-8: byte 0xf6, .*'größe'"):
        open_source(path)
    assert read(path, encoding="latin-1")[0] == ["id", "größe"]


def test_bytes_beyond_one_block(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, quoted line ends and multi-byte characters cross block borders."""
    monkeypatch.setattr(csv_module, "_BLOCK", 64)
    rows = [[str(i), "ä€\n" * (i % 9) + "x"] for i in range(200)]
    text = io.StringIO()
    csv.writer(text).writerows([["id", "text"], *rows])
    assert read(write(text.getvalue())) == [["id", "text"], *rows]
    latin = text.getvalue().replace("€", "ß")
    rows = [[i, cell.replace("€", "ß")] for i, cell in rows]
    assert read(write(latin.encode("latin-1")), encoding="latin-1") == [["id", "text"], *rows]


@pytest.mark.parametrize("block", [16, 1 << 20])
@pytest.mark.parametrize("header", ["a,b\n", ""])
@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("3", r"row 21 has 1 cell, and the (header|first row) has 2: 3; correct it, or say"),
        ("3,4,5", r"row 21 has 3 cells, and the (header|first row) has 2: 3,4,5; correct it"),
        (b"3,4\xff", r"column 'b', row 21 is not UTF-8: byte 0xff, in Latin-1 '4ÿ'"),
        ('3, "x"', "column 'b', row 21 has a blank before its quote:  \"x\"; write the file"),
    ],
)
def test_bad_row_is_named(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    header: str,
    row: str | bytes,
    complaint: str,
) -> None:
    monkeypatch.setattr(csv_module, "_BLOCK", block)
    bad = row if isinstance(row, bytes) else row.encode()
    content = header.encode() + b"1,2\n\n" * 20 + bad + b"\n" + b"1,2\n" * 20
    path = write(content)
    with pytest.raises(DataError, match=rf"^{path}: {complaint}"):
        read(path, names=None if header else ["a", "b"])


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("row", ['3,"4', '"3,4', '3,"4\n'])
@pytest.mark.parametrize("after", [0, 1, 100])
def test_open_quote_is_rejected(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int, row: str, after: int
) -> None:
    """Unnoticed, an open quote would absorb all later rows in its last column."""
    monkeypatch.setattr(csv_module, "_BLOCK", block)
    path = write("a,b\n" + "1,2\n" * 20 + row + "\n1,2" * after)
    with pytest.raises(DataError, match=r"row 21 (.* )?has a quote that is not closed: \w+ it"):
        read(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        (b"\xef\xbb\xbf\n", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (bz2.compress(b""), "the file is empty"),
        ("a,b\n", "the table has no rows"),
        ("a,b", "the table has no rows"),
        ("a,b,a\n1,2,3\n", "the column 'a' is there twice, as number 1 and 3: keep one"),
        ("a, a\n1,2\n", "the column 'a' is there twice, as number 1 and 2: keep one"),
        ('a, "b"\n1,2\n', "the header's cell 2 has a blank before its quote"),
        ("a,b\n1,2\n".encode("utf-16"), "the text is in UTF-16: save it in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "there are zero bytes in the file"),
        (gzip.compress(CONTENT.encode(), mtime=0)[:-9], "Truncated compressed stream"),
        (b"\x1f\x8bnot really", "cannot be read: zlib inflate failed"),
        pytest.param(b"a" * (1 << 20), "the first line is longer than 1,048,576 byt", id="long"),
        pytest.param(b'"a' + b"b\n" * 100_000, "the first row cannot be read: field", id="open"),
    ],
)
def test_unreadable_files_are_rejected(write: Write, content: str | bytes, complaint: str) -> None:
    path = write(content)
    with pytest.raises(DataError, match=complaint) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1
    assert len(str(caught.value).splitlines()) == 1


def test_gzip_file_with_late_damage(write: Write) -> None:
    rng = random.Random(0)
    content = "a,b\n" + "".join(f"{rng.random()},{rng.random()}\n" for _ in range(200_000))
    compressed = bytearray(gzip.compress(content.encode(), compresslevel=1))
    path = write(bytes(compressed[:-1000]))
    with pytest.raises(DataError, match=rf"^{path}: cannot be read: Truncated compressed stream$"):
        read(path)
    compressed[len(compressed) // 2] ^= 0xFF
    with pytest.raises(DataError, match=rf"^{path}: ") as caught:
        read(write(bytes(compressed)))
    assert len(str(caught.value).splitlines()) == 1


def test_latin_1_contradicts_a_utf_8_mark(write: Write) -> None:
    with pytest.raises(DataError, match="encoding: latin-1 is given, and the file says"):
        read(write(b"\xef\xbb\xbfa,b\n1,2\n"), encoding="latin-1")


def test_requested_columns(write: Write) -> None:
    source = open_source(write(",a,b\n0,1,2\n1,3,4\n"))
    assert source.list_columns() == ["", "a", "b"]
    assert [batch.to_pydict() for batch in source.iter_batches(["b", "a"])] == [
        {"b": ["2", "4"], "a": ["1", "3"]}
    ]
    with pytest.raises(DataError, match="there is no column 'c'; there are '', 'a', 'b'"):
        source.iter_batches(["c"])
    with pytest.raises(DataError, match="column 1 is called '', which is no name; give it one"):
        source.iter_batches(["", "a"])
    with pytest.raises(DataError, match="no column is chosen"):
        source.iter_batches([])


def test_a_wide_table(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header longer than the sample for dialect detection is rejected, not misread."""
    names = [f"column {i}" for i in range(3000)]
    path = write(",".join(names) + "\n" + ",".join("1" * 3000) + "\n")
    assert read(path) == [names, ["1"] * 3000]
    monkeypatch.setattr(csv_module, "_SAMPLE_BYTES", 1000)
    with pytest.raises(DataError, match="the first line is longer than 1,000 bytes"):
        open_source(path)


def test_sample_that_ends_inside_quotes(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "_SAMPLE_BYTES", 30)
    cells = [["a", "b"], ["x\n" * 20 + "x", "1"], ["y", "2"]]
    text = io.StringIO()
    csv.writer(text, delimiter=";").writerows(cells)
    assert read(write(text.getvalue())) == cells


@pytest.mark.parametrize("quote", ["ab", "é", "\n"])
def test_a_quote_is_one_character(quote: str) -> None:
    with pytest.raises(ParameterError, match=r"quote: .* is no quote: give one character, or none"):
        TableFormatOptions(quote=quote)


_CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).map(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_written_cells_are_read_back(
    write: Write, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    """Use any separator, quote and line end, and any block size that fits a row."""
    monkeypatch.setattr(csv_module, "_BLOCK", data.draw(st.sampled_from([512, 700, 1 << 20])))
    width = data.draw(st.integers(1, 5))
    cells = [[f"c{i}" for i in range(width)]]
    cells += data.draw(st.lists(st.lists(_CELL, min_size=width, max_size=width), min_size=1))
    separator = data.draw(st.sampled_from(SEPARATORS))
    quote = data.draw(st.sampled_from(['"', "'"]))
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    always = data.draw(st.booleans())

    def written(cell: str) -> str:
        if always or any(mark in cell for mark in [*SEPARATORS, quote, "\r", "\n"]):
            return quote + cell.replace(quote, quote * 2) + quote
        return data.draw(st.sampled_from(["", " "])) + cell

    lines = [separator.join(map(written, row)) for row in cells]
    ended = lines[-1] == "" or data.draw(st.booleans())  # only its line end makes an empty line
    path = write(end.join(lines) + end * ended)
    assert read(path, quote=quote) == cells
    assert read(path, quote=quote, separator=separator) == cells
