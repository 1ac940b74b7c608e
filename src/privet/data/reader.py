"""Reading of frames from tables, from selected rows of a table, and from inline rows in JSON.

Rows are read in batches into a store that spills to disk, and columns are then read one at a time,
so memory does not grow with the table. Every error names the table, the column and the row, counted
from 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from privet.arrays import FloatArray, IndexArray
from privet.config.table import TableSpec
from privet.data.columns import ColumnBuilder, SpillStore
from privet.data.encoding import Encoder, encode_frame
from privet.data.frame import Frame, IdRule, Ids, LazyColumn, LazyFrame, format_names
from privet.data.parsing import is_ambiguous_category, map_arrow_type
from privet.data.sources.base import TableSource, locate_errors
from privet.data.sources.open import open_source
from privet.errors import DataError
from privet.schema import quote_untrusted
from privet.spec.column_types import NUMBER, NUMBER_SCHEMA, ColumnType, ColumnTypeName

Cell = str | bool | int | float | None
"""The value of an inline cell; None if it is missing."""
_INT64_LIMIT = 1 << 63


class InlineRows:
    """Rows in a request, as cells by column name. Text is parsed as in the participant's table."""

    def __init__(self, table_spec: TableSpec, rows: Sequence[Mapping[str, Cell]]) -> None:
        self._table_spec = table_spec
        self._rows = rows
        self._cached_features: tuple[Sequence[Encoder], FloatArray] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def encode(self, encoders: Sequence[Encoder]) -> FloatArray:
        """Return the features of the rows: (features, rows).

        Raises DataError that names the column and the row, counted from 1.
        """
        if self._cached_features is None or self._cached_features[0] is not encoders:
            self._cached_features = encoders, self._encode(encoders)
        return self._cached_features[1]

    def _encode(self, encoders: Sequence[Encoder]) -> FloatArray:
        names = [encoder.column for encoder in encoders]
        self._check_names(names)
        columns, schemas = np.empty((len(names), len(self))), []
        for encoder, target in zip(encoders, columns, strict=True):
            name, spec = encoder.column, self._table_spec
            builder = _InlineColumnBuilder(
                name, encoder.column_type, spec.get_missing_texts(name), spec.decimal
            )
            builder.append(_to_arrow_array(name, [row[name] for row in self._rows]))
            target[:] = builder.read()
            schemas.append(builder.schema)
        frame = Frame(tuple(names), columns, schemas=tuple(schemas))
        return encode_frame(frame, encoders).columns

    def _check_names(self, names: Sequence[str]) -> None:
        known = set(names)
        for number, row in enumerate(self._rows, start=1):
            if row.keys() == known:
                continue
            unknown = next((name for name in row if name not in known), None)
            if unknown is not None:
                raise DataError(
                    f"row {number}: {quote_untrusted(unknown)!r} is no column of the model; there "
                    f"are {format_names(names)}"
                )
            missing = next(name for name in names if name not in row)
            raise DataError(f"row {number}: {missing!r} is required; null where it is missing")


class _InlineColumnBuilder(ColumnBuilder):
    """Cells of a client that writes JSON and cannot change the table specification."""

    missing_cell_advice = "write null"

    def _advise_on_type(self) -> str:
        return f"as the model was trained: {self._describe_cell_format(self.column_type)}"

    def _advise_on_cell(
        self, column_type: ColumnType, cell: str, likely_type: ColumnTypeName
    ) -> str:
        return self._describe_cell_format(column_type)

    def _describe_cell_format(self, column_type: ColumnType | None) -> str:
        """Return advice on how to write a cell."""
        type_name = "category" if column_type is None else column_type.name
        format_text = {
            "number": "a number, as 12.5",
            "boolean": "true or false",
            "date": "text, as 2020-12-31",
            "time": "text, as 2020-12-31 23:59:59",
        }.get(type_name, "text")
        if column_type is not None and column_type.date_format:
            format_text = f"text of the form {column_type.date_format}"
        return f"write {format_text}, or null where it is missing"


def _to_arrow_array(name: str, cells: Sequence[Cell]) -> pa.Array:
    """Return cells as an array of their common type."""
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {str}:
        return pa.array(cells, pa.large_string())
    if types == {bool}:
        return pa.array(cells, pa.bool_())
    if types == {int} and all(cell is None or abs(int(cell)) < _INT64_LIMIT for cell in cells):
        return pa.array(cells, pa.int64())
    if types <= {int, float}:
        return pa.array([_to_double(cell) for cell in cells], pa.float64())
    raise DataError(f"column {name!r} mixes text, numbers and truth values: write all alike")


def _to_double(cell: Cell) -> float | None:
    """Return a number as a double; infinity, which is rejected later, if it is too large."""
    try:
        return None if cell is None else float(cell)
    except OverflowError:
        return math.inf


class SelectedRowsSource(TableSource):
    """Selected rows of another source: unique, sorted positions, counted from 0."""

    def __init__(self, source: TableSource, rows: IndexArray) -> None:
        if (np.diff(rows) <= 0).any() or (len(rows) and rows[0] < 0):
            raise ValueError("rows are not sorted, not each once, or below 0")
        super().__init__(source.display_name, source.schema)
        self._source = source
        self._rows = rows

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of the selected rows."""
        return self._source.read_selected(columns, self._rows)

    @property
    def n_rows(self) -> int:
        """The number of selected rows."""
        return len(self._rows)

    def get_plain_type(self, name: str) -> pa.DataType:
        """Return the plain type of a column, as for all rows."""
        return self._source.get_plain_type(name)


IdRules = Sequence[Sequence[IdRule]]
CHANGED_TABLE_MESSAGE = (
    "other rows than before are in these places: the table changed while it was in use, or a query "
    "has no ORDER BY; see to that, and start again"
)
_FEW = 10  # rows: the values of so few can all differ by chance
_SAMPLE = 1000


def read_frame(path: str | Path, **options: Any) -> Frame:
    """Read a file; the keyword arguments are the keys of `TableSpec`."""
    return read_table(TableSpec(path=str(path), **options))


def read_table(table_spec: TableSpec, rules: IdRules | None = None) -> Frame:
    """Read a table into memory; `rules` normalise its ids."""
    return read_lazy_frame(table_spec, rules).collect()


def read_lazy_frame(table_spec: TableSpec, rules: IdRules | None = None) -> LazyFrame:
    """Read a table whose columns can then be read one at a time."""
    source, store = _open(table_spec), SpillStore()
    with locate_errors(source.display_name):
        features = table_spec.select_features(source.list_columns())
    builders = [
        _make_column_builder(table_spec, name, store=store)
        for name in (*features, *table_spec.target_columns)
    ]
    n_rows, ids = _read(source, builders, table_spec.id_columns)
    with locate_errors(source.display_name):
        for column in builders[: len(features)]:
            _check_not_id(column)
        warnings = [warning for column in builders for warning in column.warnings]
        warnings += _warn_about_ids(builders[: len(features)])
        located_warnings = tuple(f"{source.display_name}: {warning}" for warning in warnings)
        found_ids = Ids.from_columns(ids, rules) if ids else None
    del ids
    _release_memory()
    return _make_lazy_frame(
        table_spec, builders, len(features), n_rows, found_ids, located_warnings
    )


def read_new_rows(
    table_spec: TableSpec, encoders: Sequence[Encoder], rules: IdRules | None = None
) -> Frame:
    """Read rows to predict, and encode the columns that have encoders."""
    # The format can differ from that of the table in the specification.
    source = open_source(table_spec.location, table_spec, strict=False)
    with locate_errors(source.display_name):
        for encoder in encoders:
            _check_category_type(source, encoder)
    get_missing_texts, store = table_spec.get_missing_texts, SpillStore()
    builders = [
        ColumnBuilder(
            e.column, e.column_type, get_missing_texts(e.column), table_spec.decimal, store=store
        )
        for e in encoders
    ]
    n_rows, ids = _read(source, builders, table_spec.id_columns)
    with locate_errors(source.display_name):
        found_ids = Ids.from_columns(ids, rules) if ids else None
        table = _make_lazy_frame(table_spec, builders, len(builders), n_rows, found_ids)
        return encode_frame(table.collect(), encoders)


def read_selected_rows(
    table_spec: TableSpec,
    rows: IndexArray,
    encoders: Sequence[Encoder],
    label_type: ColumnType | None = None,
    rules: IdRules | None = None,
) -> LazyFrame:
    """Read selected rows of a table that was read before: sorted positions, counted from 0.

    The columns are those of the encoders, with the types that were found then, and the label, if
    the table has one. The rows have ids if `rules` is set.
    """
    source = SelectedRowsSource(_open(table_spec), rows)
    column_types = {encoder.column: encoder.column_type for encoder in encoders}
    if table_spec.label is not None and label_type is not None:
        column_types[table_spec.label] = label_type
    if table_spec.weight is not None:
        column_types[table_spec.weight] = NUMBER
    store = SpillStore()
    builders = [
        _make_column_builder(table_spec, name, column_type, rows, store)
        for name, column_type in column_types.items()
    ]
    id_columns = table_spec.id_columns if rules is not None else []
    ids = _read(source, builders, id_columns)[1] if builders or id_columns else {}
    with locate_errors(source.display_name):
        try:
            found_ids = Ids.from_columns(ids, rules) if ids else None
        except DataError:  # its row numbers would count only the selected rows
            raise DataError(CHANGED_TABLE_MESSAGE) from None
    del ids
    _release_memory()
    return _make_lazy_frame(table_spec, builders, len(encoders), len(rows), found_ids)


def _check_category_type(source: TableSource, encoder: Encoder) -> None:
    """Reject numbers in a column that was text in training: all would be unknown categories."""
    if encoder.column_type.name != "category" or encoder.column not in source.list_columns():
        return
    arrow_type = source.get_plain_type(encoder.column)
    if map_arrow_type(arrow_type) is not None and not any(
        map(is_ambiguous_category, encoder.categories)
    ):
        raise DataError(
            f"column {encoder.column!r} holds {arrow_type}, and was text when the model was "
            "trained: change the table"
        )


def read_column_names(table_spec: TableSpec) -> list[str]:
    """Return the names of a table's columns."""
    return _open(table_spec).list_columns()


def _open(table_spec: TableSpec) -> TableSource:
    return open_source(table_spec.location, table_spec)


def _make_column_builder(
    table_spec: TableSpec,
    name: str,
    fitted_type: ColumnType | None = None,
    row_numbers: IndexArray | None = None,
    store: SpillStore | None = None,
) -> ColumnBuilder:
    """Return a builder for a column, with `fitted_type` and `row_numbers` for selected rows."""
    declared = NUMBER if name == table_spec.weight else table_spec.get_declared_type(name)
    missing = table_spec.get_missing_texts(name)
    return ColumnBuilder(
        name,
        declared,
        missing,
        table_spec.decimal,
        fitted_type=fitted_type,
        row_numbers=row_numbers,
        store=store,
    )


def _read(
    source: TableSource, builders: Sequence[ColumnBuilder], id_columns: Sequence[str]
) -> tuple[int, dict[str, pa.ChunkedArray]]:
    """Read all rows into the builders; return the number of rows, and the id columns."""
    n_rows = 0
    ids: dict[str, list[pa.Array]] = {name: [] for name in id_columns}
    names = [*(column.name for column in builders), *ids]
    for batch in source.iter_batches(names):
        with locate_errors(source.display_name):
            for column in builders:
                column.append(batch[column.name])
        for name, chunks in ids.items():
            chunks.append(batch[name])
        n_rows += batch.num_rows
    _release_memory()
    return n_rows, {name: pa.chunked_array(chunks) for name, chunks in ids.items()}


def _release_memory() -> None:
    """Release the memory that Arrow keeps after reading."""
    pa.default_memory_pool().release_unused()


def _make_lazy_frame(
    table_spec: TableSpec,
    builders: Sequence[ColumnBuilder],
    n_features: int,
    n_rows: int,
    ids: Ids | None,
    warnings: tuple[str, ...] = (),
) -> LazyFrame:
    """Return the table in the builders: first `n_features` features, then label and weight."""
    targets = {column.name: column for column in builders[n_features:]}
    label, weight = targets.get(table_spec.label or ""), targets.get(table_spec.weight or "")
    frame = Frame(
        names=(),
        columns=np.empty((0, n_rows)),
        ids=ids,
        label=None if label is None else label.read(),
        weight=None if weight is None else weight.read(),
        label_schema=NUMBER_SCHEMA if label is None else label.schema,
        warnings=warnings,
    )
    return LazyFrame(
        tuple(LazyColumn(c.name, c.schema, c.read) for c in builders[:n_features]), frame
    )


def _check_not_id(builder: ColumnBuilder) -> None:
    """Reject a column with a different category in every row, and unique integers named `id`."""
    name, column_type = builder.name, builder.schema.column_type
    if column_type.name == "category" and _FEW <= builder.n_rows == len(builder.categories):
        raise DataError(
            f"column {name!r} has another category in each of {builder.n_rows:,} rows, so nothing "
            "can be learned from it: leave it out (drop), or is it the id?"
        )
    if name.casefold() == "id" and column_type == NUMBER and _is_all_distinct(builder.read()):
        raise DataError(
            f"column {name!r} holds ids, which are no feature: name it as such (id), or leave it "
            "out (drop)"
        )


def _warn_about_ids(builders: Sequence[ColumnBuilder]) -> Iterator[str]:
    """Yield a warning for every column that seems to contain ids."""
    for column in builders:
        if (
            column.is_integral
            and column.schema.column_type == NUMBER
            and _is_all_distinct(column.read())
        ):
            yield (
                f"column {column.name!r} holds another whole number in each of {column.n_rows:,} "
                "rows: if these are ids, leave it out (drop)"
            )


def _is_all_distinct(values: FloatArray) -> bool:
    if len(values) < _FEW or len(np.unique(values[:_SAMPLE])) < len(values[:_SAMPLE]):
        return False
    return not np.isnan(values).any() and len(np.unique(values)) == len(values)
