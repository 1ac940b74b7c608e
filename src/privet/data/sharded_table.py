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
from privet.config.table import DataDescription
from privet.data.sources.base import Source, naming, one_line, rows_in_a_batch
from privet.data.sources.open import numbered, open_source
from privet.errors import DataError, ParameterError, UnavailableError
from privet.spec.plan import MOST_SHARDS, cut_rows

_ROWS_IN_A_GROUP = 1 << 16
_AT_ONCE = 4  # batches, of which each shard gets its rows in one piece
_PLACE = ""
"""The column of rows' places, while they are put in order: no other column has no name."""


def rewrite_table(
    described: DataDescription, folder: Path, shards: int, order: IndexArray | None = None
) -> DataDescription:
    """Write the columns that are used into a new folder; return the description of what is there.

    `order` are the rows to be written, by their numbers from 0; None: all, as they are.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ParameterError(f"shards: {shards} is not 1 to {MOST_SHARDS}")
    source = open_source(described.table, described)
    with naming(source.where):
        used = {*described.id_columns, *described.features(source.names()), *described.answers}
    columns = [name for name in source.names() if name in used]
    with _new_folder(folder) as place:
        rows = _count(source, columns) if order is None else len(order)
        stretches = [shard.trained for shard in cut_rows(rows, 0, shards)]
        files = [place / name for name in numbered(shards)]
        if order is None:
            _copy(source, columns, stretches, files)
        else:
            _put_in_order(source, columns, stretches, files, order)
    return described.rewritten(folder.resolve(), columns)


def _count(source: Source, columns: list[str]) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(batch.num_rows for batch in source.batches(columns[:1]))


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
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
        said = error.strerror or one_line(error)
        raise UnavailableError(f"{folder}: cannot be written: {said}") from None
    except pa.ArrowException as error:
        raise DataError(f"{folder}: cannot be written as Parquet: {one_line(error)}") from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copy(
    source: Source, columns: list[str], stretches: Sequence[range], files: Sequence[Path]
) -> None:
    """Write all rows as they come."""
    pieces = _pieces(source, columns, [stretch.stop for stretch in stretches])
    for number, found in itertools.groupby(pieces, key=lambda piece: piece[0]):
        _write(files[number], (batch for _, batch in found), len(columns))


def _pieces(
    source: Source, columns: list[str], stops: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches cut where a shard ends, each with the number of its shard."""
    number, done = 0, 0
    for batch in source.batches(columns):
        taken = 0
        while taken < batch.num_rows:
            if done == stops[number]:
                number += 1
            if number == len(stops):
                raise _changed(source)
            piece = batch.slice(taken, stops[number] - done)
            yield number, piece
            taken += piece.num_rows
            done += piece.num_rows
    if done < stops[-1]:
        raise _changed(source)


def _put_in_order(
    source: Source,
    columns: list[str],
    stretches: Sequence[range],
    files: Sequence[Path],
    order: IndexArray,
) -> None:
    """Write some rows, each to its place."""
    loose = [file.with_suffix(".rows") for file in files]
    _scatter(source, columns, stretches, loose, order)
    for stretch, found, file in zip(stretches, loose, files, strict=True):
        table = pa.concat_tables(_streams(found)).combine_chunks()
        if len(table) != len(stretch):
            raise _changed(source)
        turns = pc.sort_indices(table[_PLACE])
        table = table.select(columns)
        most = rows_in_a_batch(len(columns))
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


def _scatter(
    source: Source,
    columns: list[str],
    stretches: Sequence[range],
    files: Sequence[Path],
    order: IndexArray,
) -> None:
    """Write rows into the file of their shard as they come, each with its place."""
    place = np.full(int(order.max()) + 1, -1)
    place[order] = np.arange(len(order))
    stops = np.array([stretch.stop for stretch in stretches])
    batches, end = source.batches(columns), 0
    while some := list(itertools.islice(batches, _AT_ONCE)):
        table = pa.Table.from_batches(some).combine_chunks()
        start, end = end, end + len(table)
        places = place[start:end]
        wanted = np.flatnonzero(places >= 0)
        shard_of = np.searchsorted(stops, places[wanted], side="right")
        for shard in np.unique(shard_of).tolist():
            chosen = wanted[shard_of == shard]
            piece = table.take(pa.array(chosen)).append_column(_PLACE, pa.array(places[chosen]))
            _add_stream(files[shard], piece)
    if end < len(place):
        raise _changed(source)


def _add_stream(file: Path, table: pa.Table) -> None:
    """Add a table to a file, which is open for as long as that takes: there may be many files."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with file.open("ab") as end, pa.ipc.new_stream(end, table.schema, options=options) as writer:
        writer.write_table(table)


def _streams(file: Path) -> Iterator[pa.Table]:
    with file.open("rb") as streams:
        while streams.peek(1):
            with pa.ipc.open_stream(streams) as reader:
                yield reader.read_all()


def _write(file: Path, batches: Iterable[pa.RecordBatch], n_columns: int) -> None:
    """Write a file, in row groups of a size that does not depend on that of batches."""
    most = min(_ROWS_IN_A_GROUP, 8 * rows_in_a_batch(n_columns))
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


def _changed(source: Source) -> DataError:
    return DataError(f"{source.where}: has other rows than a moment ago: leave it alone, try again")
