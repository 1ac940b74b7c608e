"""Readers of frames: from tables, from selected rows, and from inline rows in JSON.

Rows come in batches, and cells go to a store, from which columns are taken one at a time: reading
takes little memory, however large the table is. Every complaint says where: the table, the column,
the row (the first is row 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from privet.arrays import FloatArray, IndexArray
from privet.config.table import DataDescription
from privet.data.columns import Cells, Store
from privet.data.encoding import Encoder, encode
from privet.data.frame import ByColumn, Column, Frame, Ids, Rule, listing
from privet.data.parsing import kind_of, may_be_typed
from privet.data.sources.base import Source, naming
from privet.data.sources.open import open_source
from privet.errors import DataError
from privet.schema import quoted
from privet.spec.column_types import NUMBER, NUMBERS, Kind, KindName

Cell = str | bool | int | float | None
"""A missing one is None."""
_WHOLE = 1 << 63


class GivenRows:
    """Cells of named columns. Text is read as the cells of their owner's table are."""

    def __init__(self, described: DataDescription, rows: Sequence[Mapping[str, Cell]]) -> None:
        self._described = described
        self._rows = rows
        self._last: tuple[Sequence[Encoder], FloatArray] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def features(self, encoders: Sequence[Encoder]) -> FloatArray:
        """Return what encoders make of them, (features, rows).

        Raises DataError that names a column and a row, the first of which is row 1.
        """
        if self._last is None or self._last[0] is not encoders:
            self._last = encoders, self._encode(encoders)
        return self._last[1]

    def _encode(self, encoders: Sequence[Encoder]) -> FloatArray:
        names = [encoder.column for encoder in encoders]
        self._check_names(names)
        columns, contents = np.empty((len(names), len(self))), []
        for encoder, target in zip(encoders, columns, strict=True):
            name, described = encoder.column, self._described
            cells = _GivenCells(name, encoder.kind, described.missing_in(name), described.decimal)
            cells.add(_column(name, [row[name] for row in self._rows]))
            target[:] = cells.read()
            contents.append(cells.content)
        frame = Frame(tuple(names), columns, contents=tuple(contents))
        return encode(frame, encoders).columns

    def _check_names(self, names: Sequence[str]) -> None:
        known = set(names)
        for number, row in enumerate(self._rows, start=1):
            if row.keys() == known:
                continue
            unknown = next((name for name in row if name not in known), None)
            if unknown is not None:
                raise DataError(
                    f"row {number}: {quoted(unknown)!r} is no column of the model; there are "
                    f"{listing(names)}"
                )
            lacking = next(name for name in names if name not in row)
            raise DataError(f"row {number}: {lacking!r} is required; null where it is missing")


class _GivenCells(Cells):
    """Cells of somebody who cannot change how the table is described, and writes JSON."""

    leave_out = "write null"

    def _advice_on_type(self) -> str:
        return f"as the model was trained: {self._how_to_write(self.kind)}"

    def _advice(self, kind: Kind, cell: str, like: KindName) -> str:
        return self._how_to_write(kind)

    def _how_to_write(self, kind: Kind | None) -> str:
        """Say how a cell is written."""
        name = "category" if kind is None else kind.name
        how = {
            "number": "a number, as 12.5",
            "boolean": "true or false",
            "date": "text, as 2020-12-31",
            "time": "text, as 2020-12-31 23:59:59",
        }.get(name, "text")
        if kind is not None and kind.form:
            how = f"text of the form {kind.form}"
        return f"write {how}, or null where it is missing"


def _column(name: str, cells: Sequence[Cell]) -> pa.Array:
    """Return cells as an array of the type that all of them have."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {str}:
        return pa.array(cells, pa.large_string())
    if kinds == {bool}:
        return pa.array(cells, pa.bool_())
    if kinds == {int} and all(cell is None or abs(int(cell)) < _WHOLE for cell in cells):
        return pa.array(cells, pa.int64())
    if kinds <= {int, float}:
        return pa.array([_double(cell) for cell in cells], pa.float64())
    raise DataError(f"column {name!r} mixes text, numbers and truth values: write all alike")


def _double(cell: Cell) -> float | None:
    """Return a number as a double; infinity, which nobody takes, if it is too large for one."""
    try:
        return None if cell is None else float(cell)
    except OverflowError:
        return math.inf


class SelectedRows(Source):
    """The rows of another source with these numbers, counted from 0, each once and sorted."""

    def __init__(self, source: Source, rows: IndexArray) -> None:
        if (np.diff(rows) <= 0).any() or (len(rows) and rows[0] < 0):
            raise ValueError("rows are not sorted, not each once, or below 0")
        super().__init__(source.where, source.schema)
        self._source = source
        self._rows = rows

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of the rows that are selected."""
        return self._source.read_rows(columns, self._rows)

    @property
    def n_rows(self) -> int:
        """How many rows are selected."""
        return len(self._rows)

    def plain_type(self, name: str) -> pa.DataType:
        """Return the type that a column comes in, as it would with all rows."""
        return self._source.plain_type(name)


Rules = Sequence[Sequence[Rule]]
OTHER_ROWS = (
    "other rows than before are in these places: the table changed while it was in use, or a query "
    "has no ORDER BY; see to that, and start again"
)
_FEW = 10  # rows, whose values may all differ by chance
_SAMPLE = 1000


def read_frame(path: str | Path, **described: Any) -> Frame:
    """Read a file; the keywords are the keys of `DataDescription`."""
    return read_table(DataDescription(path=str(path), **described))


def read_table(described: DataDescription, rules: Rules | None = None) -> Frame:
    """Read a table as its owner describes it, into memory; ids are compared by these rules."""
    return read_by_column(described, rules).together()


def read_by_column(described: DataDescription, rules: Rules | None = None) -> ByColumn:
    """Read a table whose columns are to be taken one at a time."""
    source, store = _open(described), Store()
    with naming(source.where):
        features = described.features(source.names())
    cells = [_cells(described, name, store=store) for name in (*features, *described.answers)]
    rows, ids = _read(source, cells, described.id_columns)
    with naming(source.where):
        for column in cells[: len(features)]:
            _refuse_ids(column)
        warnings = [warning for column in cells for warning in column.warnings]
        warnings += _notice_ids(cells[: len(features)])
        said = tuple(f"{source.where}: {warning}" for warning in warnings)
        found = Ids.read(ids, rules) if ids else None
    del ids
    _give_back()
    return _by_column(described, cells, len(features), rows, found, said)


def read_new_rows(
    described: DataDescription, encoders: Sequence[Encoder], rules: Rules | None = None
) -> Frame:
    """Read rows to predict: the features that encoders make of the columns they know."""
    # They may come in another format than the table that is described.
    source = open_source(described.table, described, strict=False)
    with naming(source.where):
        for encoder in encoders:
            _refuse_other_type(source, encoder)
    missing, store = described.missing_in, Store()
    cells = [
        Cells(e.column, e.kind, missing(e.column), described.decimal, store=store) for e in encoders
    ]
    rows, ids = _read(source, cells, described.id_columns)
    with naming(source.where):
        found = Ids.read(ids, rules) if ids else None
        table = _by_column(described, cells, len(cells), rows, found)
        return encode(table.together(), encoders)


def read_some_rows(
    described: DataDescription,
    rows: IndexArray,
    encoders: Sequence[Encoder],
    label: Kind | None = None,
    rules: Rules | None = None,
) -> ByColumn:
    """Read some rows, sorted, of a table that was read before: their numbers count from 0.

    Their columns are those that encoders know, of the kinds that they were found to be then; so is
    the label, if the table has one. They have ids if rules to compare them by are given.
    """
    source = SelectedRows(_open(described), rows)
    kinds = {encoder.column: encoder.kind for encoder in encoders}
    if described.label is not None and label is not None:
        kinds[described.label] = label
    if described.weight is not None:
        kinds[described.weight] = NUMBER
    store = Store()
    cells = [_cells(described, name, kind, rows, store) for name, kind in kinds.items()]
    id_columns = described.id_columns if rules is not None else []
    ids = _read(source, cells, id_columns)[1] if cells or id_columns else {}
    with naming(source.where):
        try:
            found = Ids.read(ids, rules) if ids else None
        except DataError:  # which would count rows from the first of these
            raise DataError(OTHER_ROWS) from None
    del ids
    _give_back()
    return _by_column(described, cells, len(encoders), len(rows), found)


def _refuse_other_type(source: Source, encoder: Encoder) -> None:
    """Refuse numbers where there was text: they would all be categories that nobody knows."""
    if encoder.kind.name != "category" or encoder.column not in source.names():
        return
    kind = source.plain_type(encoder.column)
    if kind_of(kind) is not None and not any(map(may_be_typed, encoder.categories)):
        raise DataError(
            f"column {encoder.column!r} holds {kind}, and was text when the model was trained: "
            "change the table"
        )


def column_names(described: DataDescription) -> list[str]:
    """Return the names of a table's columns."""
    return _open(described).names()


def _open(described: DataDescription) -> Source:
    return open_source(described.table, described)


def _cells(
    described: DataDescription,
    name: str,
    found: Kind | None = None,
    rows: IndexArray | None = None,
    store: Store | None = None,
) -> Cells:
    """Return what takes in a column, of which some rows are read if it was read before."""
    declared = NUMBER if name == described.weight else described.declared(name)
    missing = described.missing_in(name)
    said = name, declared, missing, described.decimal
    return Cells(*said, found=found, numbers=rows, store=store)


def _read(
    source: Source, cells: Sequence[Cells], id_columns: Sequence[str]
) -> tuple[int, dict[str, pa.ChunkedArray]]:
    """Take in all rows; return how many there are, and the columns of ids."""
    rows = 0
    ids: dict[str, list[pa.Array]] = {name: [] for name in id_columns}
    wanted = [*(column.name for column in cells), *ids]
    for batch in source.batches(wanted):
        with naming(source.where):
            for column in cells:
                column.add(batch[column.name])
        for name, chunks in ids.items():
            chunks.append(batch[name])
        rows += batch.num_rows
    _give_back()
    return rows, {name: pa.chunked_array(chunks) for name, chunks in ids.items()}


def _give_back() -> None:
    """Give memory back that Arrow took to read, and would keep."""
    pa.default_memory_pool().release_unused()


def _by_column(
    described: DataDescription,
    cells: Sequence[Cells],
    features: int,
    rows: int,
    ids: Ids | None,
    warnings: tuple[str, ...] = (),
) -> ByColumn:
    """Return a table that was taken in: so many features, then the label or weights."""
    answers = {column.name: column for column in cells[features:]}
    label, weight = answers.get(described.label or ""), answers.get(described.weight or "")
    frame = Frame(
        names=(),
        columns=np.empty((0, rows)),
        ids=ids,
        label=None if label is None else label.read(),
        weight=None if weight is None else weight.read(),
        label_content=NUMBERS if label is None else label.content,
        warnings=warnings,
    )
    return ByColumn(tuple(Column(c.name, c.content, c.read) for c in cells[:features]), frame)


def _refuse_ids(column: Cells) -> None:
    """Refuse categories of which no two rows have the same, and whole numbers called `id`."""
    name, kind = column.name, column.content.kind
    if kind.name == "category" and _FEW <= column.rows == len(column.texts):
        raise DataError(
            f"column {name!r} has another category in each of {column.rows:,} rows, so nothing can "
            "be learned from it: leave it out (drop), or is it the id?"
        )
    if name.casefold() == "id" and kind == NUMBER and _all_differ(column.read()):
        raise DataError(
            f"column {name!r} holds ids, which are no feature: name it as such (id), or leave it "
            "out (drop)"
        )


def _notice_ids(cells: Sequence[Cells]) -> Iterator[str]:
    """Yield a warning of every column that looks like one of ids."""
    for column in cells:
        if column.whole and column.content.kind == NUMBER and _all_differ(column.read()):
            yield (
                f"column {column.name!r} holds another whole number in each of {column.rows:,} "
                "rows: if these are ids, leave it out (drop)"
            )


def _all_differ(values: FloatArray) -> bool:
    if len(values) < _FEW or len(np.unique(values[:_SAMPLE])) < len(values[:_SAMPLE]):
        return False
    return not np.isnan(values).any() and len(np.unique(values)) == len(values)
