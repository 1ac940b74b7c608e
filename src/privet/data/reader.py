"""Reading a table: its columns as numbers, its ids, its label.

Rows come in batches, so that reading takes 8 bytes a cell and a little more, however long the table
is. Every complaint says where: the table, the column, the row (the first is row 1).
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
from privet.data.frame import Frame
from privet.data.ids import Ids, Rule
from privet.data.kinds import NUMBER, NUMBERS, Content, Kind
from privet.data.parsing import kind_of, may_be_typed
from privet.data.sources.open import open_source
from privet.data.sources.selected import SelectedRows
from privet.data.sources.source import Source, naming
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
    """Read a table as its owner describes it; ids are compared by these rules."""
    source = _open(described)
    with naming(source.where):
        features = described.features(source.names())
    cells = [_cells(described, name) for name in (*features, *described.answers)]
    rows, ids = _read(source, cells, described.id_columns)
    with naming(source.where):
        columns, contents = _columns(cells[: len(features)], rows)
        for name, content, column in zip(features, contents, columns, strict=True):
            _refuse_ids(name, content, column)
        columns_of_answers, contents_of_answers = _columns(cells[len(features) :], rows)
        answers = dict(zip(described.answers, columns_of_answers, strict=True))
        meant = dict(zip(described.answers, contents_of_answers, strict=True))
        warnings = [warning for column in cells for warning in column.warnings]
        warnings += _notice_ids(features, contents, columns)
        return Frame(
            names=tuple(features),
            columns=columns,
            ids=Ids.read(ids, rules) if ids else None,
            label=answers.get(described.label or ""),
            weight=answers.get(described.weight or ""),
            contents=tuple(contents),
            label_content=meant.get(described.label or "", NUMBERS),
            warnings=tuple(f"{source.where}: {warning}" for warning in warnings),
        )


def read_new_rows(
    described: DataDescription, encoders: Sequence[Encoder], rules: Rules | None = None
) -> Frame:
    """Read rows to predict: the features that encoders make of the columns they know."""
    # They may come in another format than the table that is described.
    source = open_source(described.table, described, strict=False)
    with naming(source.where):
        for encoder in encoders:
            _refuse_other_type(source, encoder)
    cells = [
        Cells(e.column, e.kind, described.missing_in(e.column), described.decimal) for e in encoders
    ]
    rows, ids = _read(source, cells, described.id_columns)
    with naming(source.where):
        columns, contents = _columns(cells, rows)
        names = tuple(encoder.column for encoder in encoders)
        found = Ids.read(ids, rules) if ids else None
        return encode(Frame(names, columns, found, contents=tuple(contents)), encoders)


def read_some_rows(
    described: DataDescription,
    rows: IndexArray,
    encoders: Sequence[Encoder],
    label: Kind | None = None,
    rules: Rules | None = None,
) -> Frame:
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
    cells = [_cells(described, name, kind, rows) for name, kind in kinds.items()]
    id_columns = described.id_columns if rules is not None else []
    ids = _read(source, cells, id_columns)[1] if cells or id_columns else {}
    with naming(source.where):
        columns, contents = _columns(cells, len(rows))
        try:
            found = Ids.read(ids, rules) if ids else None
        except DataError:  # which would count rows from the first of these
            raise DataError(OTHER_ROWS) from None
    values = dict(zip(kinds, columns, strict=True))
    meant = dict(zip(kinds, contents, strict=True))
    return Frame(
        names=tuple(encoder.column for encoder in encoders),
        columns=columns[: len(encoders)],
        ids=found,
        label=values.get(described.label or ""),
        weight=values.get(described.weight or ""),
        contents=tuple(contents[: len(encoders)]),
        label_content=meant.get(described.label or "", NUMBERS),
    )


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
) -> Cells:
    """Return what takes in a column, of which some rows are read if it was read before."""
    declared = NUMBER if name == described.weight else described.declared(name)
    missing = described.missing_in(name)
    return Cells(name, declared, missing, described.decimal, found=found, numbers=rows)


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
    return rows, {name: pa.chunked_array(chunks) for name, chunks in ids.items()}


def _columns(cells: Sequence[Cells], rows: int) -> tuple[FloatArray, list[Content]]:
    """Move cells into one array: the memory of both is not needed at the same time."""
    columns = np.empty((len(cells), rows))
    for column, target in zip(cells, columns, strict=True):
        column.move_to(target)
    return columns, [Content(column.kind or NUMBER, column.texts) for column in cells]


def _refuse_ids(name: str, content: Content, values: FloatArray) -> None:
    """Refuse categories of which no two rows have the same, and whole numbers called `id`."""
    if content.kind.name == "category" and _all_differ(values):
        raise DataError(
            f"column {name!r} has another category in each of {len(values):,} rows, so nothing can "
            "be learned from it: leave it out (drop), or is it the id?"
        )
    if name.casefold() == "id" and content.kind == NUMBER and _all_differ(values):
        raise DataError(
            f"column {name!r} holds ids, which are no feature: name it as such (id), or leave it "
            "out (drop)"
        )


def _notice_ids(
    names: Sequence[str], contents: Sequence[Content], columns: FloatArray
) -> Iterator[str]:
    """Yield a warning of every column that looks like one of ids."""
    for name, content, values in zip(names, contents, columns, strict=True):
        whole = content.kind == NUMBER and (values[:_SAMPLE] == np.floor(values[:_SAMPLE])).all()
        if whole and _all_differ(values) and (values == np.floor(values)).all():
            yield (
                f"column {name!r} holds another whole number in each of {len(values):,} rows: if "
                "these are ids, leave it out (drop)"
            )


def _all_differ(values: FloatArray) -> bool:
    if len(values) < _FEW or len(np.unique(values[:_SAMPLE])) < len(values[:_SAMPLE]):
        return False
    return not np.isnan(values).any() and len(np.unique(values)) == len(values)
