"""Rewriting of a table as Parquet, one file for each shard, with its rows in a requested order.

Row groups are small, so that a reader of selected rows reads few others. Without a new order, rows
pass through memory a batch at a time. With one, rows are first scattered into an unsorted file for
each shard, and then sorted in memory a shard at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privet.arrays import IndexArray
from privet.config.table import TableSpec
from privet.data.sources.base import TableSource, compute_batch_rows, get_first_line, locate_errors
from privet.data.sources.open import make_shard_names, open_source
from privet.errors import DataError, ParameterError, UnavailableError
from privet.spec.plan import MAX_SHARDS, split_into_shards

_ROWS_IN_A_GROUP = 1 << 16
_BATCHES_PER_PASS = 4  # batches whose rows are written to each shard in one piece
_POSITION_COLUMN = ""
"""The temporary column of row positions: no other column has an empty name."""


def write_sharded_table(
    table_spec: TableSpec, folder: Path, shards: int, order: IndexArray | None = None
) -> TableSpec:
    """Write the used columns of a table into a new folder; return the specification of the result.

    `order` are the positions of the rows to write, counted from 0; None writes all rows unchanged.
    """
    if not 1 <= shards <= MAX_SHARDS:
        raise ParameterError(f"shards: {shards} is not 1 to {MAX_SHARDS}")
    source = open_source(table_spec.location, table_spec)
    with locate_errors(source.display_name):
        used = {
            *table_spec.id_columns,
            *table_spec.select_features(source.list_columns()),
            *table_spec.target_columns,
        }
    columns = [name for name in source.list_columns() if name in used]
    with _create_folder(folder) as temporary_folder:
        rows = _count(source, columns) if order is None else len(order)
        shard_ranges = [shard.training_rows for shard in split_into_shards(rows, 0, shards)]
        files = [temporary_folder / name for name in make_shard_names(shards)]
        if order is None:
            _copy(source, columns, shard_ranges, files)
        else:
            _write_reordered(source, columns, shard_ranges, files, order)
    return table_spec.for_rewritten_table(folder.resolve(), columns)


def _count(source: TableSource, columns: list[str]) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(batch.num_rows for batch in source.iter_batches(columns[:1]))


@contextlib.contextmanager
def _create_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `folder` on success and removed on failure."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnavailableError(f"{folder}: is there already; give the name of a new folder")
    temporary_folder = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        temporary_folder.mkdir(mode=0o700)
        yield temporary_folder
        temporary_folder.replace(folder)
    except OSError as error:
        reason = error.strerror or get_first_line(error)
        raise UnavailableError(f"{folder}: cannot be written: {reason}") from None
    except pa.ArrowException as error:
        raise DataError(
            f"{folder}: cannot be written as Parquet: {get_first_line(error)}"
        ) from None
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


def _copy(
    source: TableSource, columns: list[str], shard_ranges: Sequence[range], files: Sequence[Path]
) -> None:
    """Write all rows in the order of the source."""
    pieces = _iter_pieces(source, columns, [rows.stop for rows in shard_ranges])
    for number, numbered_pieces in itertools.groupby(pieces, key=lambda piece: piece[0]):
        _write(files[number], (batch for _, batch in numbered_pieces), len(columns))


def _iter_pieces(
    source: TableSource, columns: list[str], shard_ends: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches split at the ends of shards, each with the number of its shard."""
    number, done = 0, 0
    for batch in source.iter_batches(columns):
        batch_done = 0
        while batch_done < batch.num_rows:
            if done == shard_ends[number]:
                number += 1
            if number == len(shard_ends):
                raise _make_changed_error(source)
            piece = batch.slice(batch_done, shard_ends[number] - done)
            yield number, piece
            batch_done += piece.num_rows
            done += piece.num_rows
    if done < shard_ends[-1]:
        raise _make_changed_error(source)


def _write_reordered(
    source: TableSource,
    columns: list[str],
    shard_ranges: Sequence[range],
    files: Sequence[Path],
    order: IndexArray,
) -> None:
    """Write the selected rows in the requested order."""
    unsorted_files = [file.with_suffix(".rows") for file in files]
    _scatter_rows(source, columns, shard_ranges, unsorted_files, order)
    for shard_range, unsorted_file, file in zip(shard_ranges, unsorted_files, files, strict=True):
        table = pa.concat_tables(_iter_streams(unsorted_file)).combine_chunks()
        if len(table) != len(shard_range):
            raise _make_changed_error(source)
        sorted_rows = pc.sort_indices(table[_POSITION_COLUMN])
        table = table.select(columns)
        batch_rows = compute_batch_rows(len(columns))
        _write(
            file,
            (
                batch
                for start in range(0, len(table), batch_rows)
                for batch in table.take(sorted_rows.slice(start, batch_rows)).to_batches()
            ),
            len(columns),
        )
        unsorted_file.unlink()


def _scatter_rows(
    source: TableSource,
    columns: list[str],
    shard_ranges: Sequence[range],
    files: Sequence[Path],
    order: IndexArray,
) -> None:
    """Append rows to the unsorted file of their shard, each with its position in the result."""
    position_of = np.full(int(order.max()) + 1, -1)
    position_of[order] = np.arange(len(order))
    stops = np.array([shard_range.stop for shard_range in shard_ranges])
    batches, end = source.iter_batches(columns), 0
    while pass_batches := list(itertools.islice(batches, _BATCHES_PER_PASS)):
        table = pa.Table.from_batches(pass_batches).combine_chunks()
        start, end = end, end + len(table)
        positions = position_of[start:end]
        wanted = np.flatnonzero(positions >= 0)
        shard_of = np.searchsorted(stops, positions[wanted], side="right")
        for shard in np.unique(shard_of).tolist():
            chosen = wanted[shard_of == shard]
            piece = table.take(pa.array(chosen)).append_column(
                _POSITION_COLUMN, pa.array(positions[chosen])
            )
            _add_stream(files[shard], piece)
    if end < len(position_of):
        raise _make_changed_error(source)


def _add_stream(file: Path, table: pa.Table) -> None:
    """Append a table to a file, and close the file again: there can be many files."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with file.open("ab") as end, pa.ipc.new_stream(end, table.schema, options=options) as writer:
        writer.write_table(table)


def _iter_streams(file: Path) -> Iterator[pa.Table]:
    with file.open("rb") as streams:
        while streams.peek(1):
            with pa.ipc.open_stream(streams) as reader:
                yield reader.read_all()


def _write(file: Path, batches: Iterable[pa.RecordBatch], n_columns: int) -> None:
    """Write a Parquet file with row groups of a size that does not depend on the batches."""
    group_rows = min(_ROWS_IN_A_GROUP, 8 * compute_batch_rows(n_columns))
    with contextlib.ExitStack() as stack:
        writer, pending, rows = None, list[pa.RecordBatch](), 0
        for batch in batches:
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, batch.schema))
            pending.append(batch)
            rows += batch.num_rows
            if rows >= group_rows:
                whole = rows - rows % group_rows
                table = pa.Table.from_batches(pending)
                writer.write_table(table.slice(0, whole), row_group_size=group_rows)
                pending, rows = table.slice(whole).to_batches(), rows - whole
        if writer is not None and rows:
            writer.write_table(pa.Table.from_batches(pending), row_group_size=group_rows)


def _make_changed_error(source: TableSource) -> DataError:
    return DataError(
        f"{source.display_name}: has other rows than a moment ago: leave it alone, try again"
    )
