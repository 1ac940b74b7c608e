"""Time and memory of reading an input table: Parquet, CSV and CSV in gzip.

    python benchmarks/reading.py                     10,000,000 rows of 20 numbers: 3.2 GB of disk
    python benchmarks/reading.py 1000000 20          fewer

A subprocess reads each file twice: once by batches, which shows the memory of reading itself, and
once into a frame with 8 bytes a cell.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from privet.data.reader import read_frame
from privet.data.sources.open import open_source
from privet.runtime.run import measure_peak_rss_mb

WRITTEN_AT_ONCE = 500_000


def tables(rows: int, columns: int) -> Iterator[pa.Table]:
    """Yield a table in batches: every fourth column contains integers, the others floats."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, WRITTEN_AT_ONCE):
        n = min(WRITTEN_AT_ONCE, rows - start)
        yield pa.table(
            {
                f"column {j}": rng.normal(size=n) if j % 4 else rng.integers(0, 100_000, n)
                for j in range(columns)
            }
        )


def write_parquet(path: Path, rows: int, columns: int) -> None:
    """Write a Parquet file with a row group for each batch."""
    writer = None
    for table in tables(rows, columns):
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def write_csv(path: Path, rows: int, columns: int) -> None:
    """Write a CSV file, compressed if its name says so."""
    with pa.output_stream(path) as stream:
        for number, table in enumerate(tables(rows, columns)):
            options = pacsv.WriteOptions(include_header=number == 0)
            pacsv.write_csv(table, stream, options)


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "table.parquet": write_parquet,
    "table.csv": write_csv,
    "table.csv.gz": write_csv,
}


def read(path: Path, rows: int, keep: bool) -> None:
    """Read all batches, or the table into a frame, and print time and memory."""
    started = time.perf_counter()
    if keep:
        assert read_frame(path).n_samples == rows
    else:
        source = open_source(path)
        assert sum(batch.num_rows for batch in source.iter_batches(source.list_columns())) == rows
    seconds = time.perf_counter() - started
    label = "into a frame" if keep else "looked at"
    print(
        f"{path.name:<14} {label:<20} {seconds:7.1f} s  {rows / seconds:12,.0f} rows/s  "
        f"{measure_peak_rss_mb():7,.0f} MB at the peak"
    )


def main(rows: int = 10_000_000, columns: int = 20) -> None:
    """Write the files one after the other, and read each."""
    print(f"{rows:,} rows of {columns} columns: {rows * columns * 8 / 1e6:,.0f} MB as numbers")
    for name in WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            free = shutil.disk_usage(folder).free
            if free < 20 * rows * columns:
                sys.exit(f"{folder} has {free:,} bytes left: set TMPDIR, or ask for fewer rows")
            path = Path(folder) / name
            run_separately("write", path, rows, columns)
            print(f"{name:<14} {path.stat().st_size / 1e6:,.0f} MB", flush=True)
            run_separately("read", path, rows, 0)
            run_separately("read", path, rows, 1)


def run_separately(action: str, path: Path, rows: int, number: int) -> None:
    """Run an action in a subprocess, so that its peak memory is separate."""
    command = [sys.executable, __file__, action, str(path), str(rows), str(number)]
    subprocess.run(command, check=True)  # noqa: S603


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        WRITERS[Path(sys.argv[2]).name](Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]), int(sys.argv[3]), keep=sys.argv[4] == "1")
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
