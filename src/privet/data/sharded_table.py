"""A table written anew as Parquet, a file for each shard, its rows in an order that is given.

Row groups are small, so that whoever needs some rows reads little more than these. Rows that stay
in their order go through memory a batch at a time. Others go into a file for each shard first, and
then through memory a shard at a time.
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
_BATCHES_PER_PASS = 4  # batches, of which each shard gets its rows in one piece
_POSITION_COLUMN = ""
"""The column of rows' places, while they are put in order: no other column has no name."""


def write_sharded_table(
    table_spec: TableSpec, folder: Path, shards: int, order: IndexArray | None = None
) -> TableSpec:
    """Write the columns that are used into a new folder; return the description of what is there.

    `order` are the rows to be written, by their numbers from 0; None: all, as they are.
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
    with _create_folder(folder) as place:
        rows = _count(source, columns) if order is None else len(order)
        stretches = [shard.training_rows for shard in split_into_shards(rows, 0, shards)]
        files = [place / name for name in make_shard_names(shards)]
        if order is None:
            _copy(source, columns, stretches, files)
        else:
            _write_reordered(source, columns, stretches, files, order)
    return table_spec.for_rewritten_table(folder.resolve(), columns)


def _count(source: TableSource, columns: list[str]) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(batch.num_rows for batch in source.iter_batches(columns[:1]))


@contextlib.contextmanager
def _create_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that gets its name when all is in it, and is gone if something fails."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnavailableError(f"{folder}: is there already; give the name of a new folder")
    place = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        place.mkdir(mode=0o700)
        yield place
        place.replace(folder)
    except OSError as error:
        said = error.strerror or get_first_line(error)
        raise UnavailableError(f"{folder}: cannot be written: {said}") from None
    except pa.ArrowException as error:
        raise DataError(
            f"{folder}: cannot be written as Parquet: {get_first_line(error)}"
        ) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copy(
    source: TableSource, columns: list[str], shard_ranges: Sequence[range], files: Sequence[Path]
) -> None:
    """Write all rows as they come."""
    pieces = _iter_pieces(source, columns, [stretch.stop for stretch in shard_ranges])
    for number, found in itertools.groupby(pieces, key=lambda piece: piece[0]):
        _write(files[number], (batch for _, batch in found), len(columns))


def _iter_pieces(
    source: TableSource, columns: list[str], shard_ends: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches cut where a shard ends, each with the number of its shard."""
    number, done = 0, 0
    for batch in source.iter_batches(columns):
        taken = 0
        while taken < batch.num_rows:
            if done == shard_ends[number]:
                number += 1
            if number == len(shard_ends):
                raise _make_changed_error(source)
            piece = batch.slice(taken, shard_ends[number] - done)
            yield number, piece
            taken += piece.num_rows
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
    """Write some rows, each to its place."""
    loose = [file.with_suffix(".rows") for file in files]
    _scatter_rows(source, columns, shard_ranges, loose, order)
    for stretch, found, file in zip(shard_ranges, loose, files, strict=True):
        table = pa.concat_tables(_iter_streams(found)).combine_chunks()
        if len(table) != len(stretch):
            raise _make_changed_error(source)
        turns = pc.sort_indices(table[_POSITION_COLUMN])
        table = table.select(columns)
        most = compute_batch_rows(len(columns))
        _write(
            file,
            (
                batch
                for start in range(0, len(table), most)
                for batch in table.take(turns.slice(start, most)).to_batches()
            ),
            len(columns),
        )
        found.unlink()


def _scatter_rows(
    source: TableSource,
    columns: list[str],
    shard_ranges: Sequence[range],
    files: Sequence[Path],
    order: IndexArray,
) -> None:
    """Write rows into the file of their shard as they come, each with its place."""
    place = np.full(int(order.max()) + 1, -1)
    place[order] = np.arange(len(order))
    stops = np.array([stretch.stop for stretch in shard_ranges])
    batches, end = source.iter_batches(columns), 0
    while some := list(itertools.islice(batches, _BATCHES_PER_PASS)):
        table = pa.Table.from_batches(some).combine_chunks()
        start, end = end, end + len(table)
        places = place[start:end]
        wanted = np.flatnonzero(places >= 0)
        shard_of = np.searchsorted(stops, places[wanted], side="right")
        for shard in np.unique(shard_of).tolist():
            chosen = wanted[shard_of == shard]
            piece = table.take(pa.array(chosen)).append_column(
                _POSITION_COLUMN, pa.array(places[chosen])
            )
            _add_stream(files[shard], piece)
    if end < len(place):
        raise _make_changed_error(source)


def _add_stream(file: Path, table: pa.Table) -> None:
    """Add a table to a file, which is open for as long as that takes: there may be many files."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with file.open("ab") as end, pa.ipc.new_stream(end, table.schema, options=options) as writer:
        writer.write_table(table)


def _iter_streams(file: Path) -> Iterator[pa.Table]:
    with file.open("rb") as streams:
        while streams.peek(1):
            with pa.ipc.open_stream(streams) as reader:
                yield reader.read_all()


def _write(file: Path, batches: Iterable[pa.RecordBatch], n_columns: int) -> None:
    """Write a file, in row groups of a size that does not depend on that of batches."""
    most = min(_ROWS_IN_A_GROUP, 8 * compute_batch_rows(n_columns))
    with contextlib.ExitStack() as stack:
        writer, waiting, rows = None, list[pa.RecordBatch](), 0
        for batch in batches:
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, batch.schema))
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= most:
                whole = rows - rows % most
                table = pa.Table.from_batches(waiting)
                writer.write_table(table.slice(0, whole), row_group_size=most)
                waiting, rows = table.slice(whole).to_batches(), rows - whole
        if writer is not None and rows:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=most)


def _make_changed_error(source: TableSource) -> DataError:
    return DataError(
        f"{source.display_name}: has other rows than a moment ago: leave it alone, try again"
    )
