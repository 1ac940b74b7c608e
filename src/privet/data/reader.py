"""Reading a table: its columns as numbers, its ids, its label.

Rows come in batches, and cells go to a store, from which columns are taken one at a time: reading
takes little memory, however large the table is. Every complaint says where: the table, the column,
the row (the first is row 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from privet.arrays import FloatArray, IndexArray
from privet.data.cells import Cells
from privet.data.description import DataDescription
from privet.data.encoder import Encoder
from privet.data.encoding import encode
from privet.data.frame import ByColumn, Column, Frame
from privet.data.ids import Ids, Rule
from privet.data.kinds import NUMBER, NUMBERS, Kind
from privet.data.parsing import kind_of, may_be_typed
from privet.data.sources.open import open_source
from privet.data.sources.selected import SelectedRows
from privet.data.sources.source import Source, naming
from privet.data.store import Store
from privet.errors import DataError

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
