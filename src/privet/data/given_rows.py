"""Rows that somebody hands over one by one, as JSON has them, instead of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from privet.arrays import FloatArray
from privet.config import quoted
from privet.data.cells import Cells
from privet.data.description import DataDescription
from privet.data.encoder import Encoder
from privet.data.encoding import encode
from privet.data.frame import Frame, listing
from privet.data.kinds import Kind, KindName
from privet.errors import DataError

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
