"""Files, wherever they are: on this machine, or in a store that pyarrow knows by its address.

What a file is shows in its first bytes, not in its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.fs as pafs

from privet.data.sources.source import one_line
from privet.errors import DataError, ParameterError, UnavailableError

Kind = Literal["CSV", "Parquet", "Arrow file", "Arrow stream"]

_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_BZ2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # its first block, or an empty file's end
_KINDS: dict[bytes, Kind] = {
    b"PAR1": "Parquet",
    b"ARROW1\x00\x00": "Arrow file",
    b"\xff\xff\xff\xff": "Arrow stream",
}
_REFUSED = {
    b"PARE": "Parquet with an encrypted footer",
    b"FEA1": "Feather of version 1",
    b"ORC": "ORC",
    b"PK\x03\x04": "a zip archive, or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "HDF5",
}
_BEGINNING = 64
# A password may have a "/" in it that somebody forgot to escape; a port has only digits.
_PASSWORD = re.compile(r"[^:]+://[^/@]*:(?!\d*/)[^@]*@")


@dataclass(frozen=True)
class Location:
    """A file or a folder of a file system."""

    filesystem: pafs.FileSystem
    path: str
    """As the file system calls it."""
    where: str
    """As messages do."""

    def is_folder(self) -> bool:
        """Tell a folder from a file; refuse what is not there, or neither."""
        kind = self.filesystem.get_file_info(self.path).type
        if kind == pafs.FileType.NotFound:
            raise FileNotFoundError
        if kind == pafs.FileType.Unknown:
            raise DataError("neither a file nor a folder")
        return bool(kind == pafs.FileType.Directory)

    def stream(self) -> pa.NativeFile:
        """Open a file to read it from its beginning to its end, decompressed."""
        return self.filesystem.open_input_stream(self.path, compression=self._compression)

    def file(self) -> pa.NativeFile:
        """Open a file to read it here and there.

        One that is compressed as a whole is decompressed into memory first: its format compresses
        by itself, so that is rare.
        """
        if self._compression is None:
            return self.filesystem.open_input_file(self.path)
        with self.stream() as stream:
            return pa.BufferReader(stream.read_buffer())

    @cached_property
    def kind(self) -> Kind:
        """What a file is: CSV if nothing else."""
        with self.stream() as stream:
            beginning = stream.read(_BEGINNING)
        for mark, what in _REFUSED.items():
            if beginning.startswith(mark):
                raise DataError(f"this is {what}: write the table as CSV, Parquet or Arrow")
        kinds = (kind for mark, kind in _KINDS.items() if beginning.startswith(mark))
        return next(kinds, "CSV")

    @cached_property
    def _compression(self) -> str | None:
        with self.filesystem.open_input_stream(self.path, compression=None) as stream:
            beginning = stream.read(_BEGINNING)
        if _BZ2.match(beginning):
            return "bz2"
        names = (name for mark, name in _COMPRESSIONS.items() if beginning.startswith(mark))
        return next(names, None)


def is_address(path: str | Path) -> bool:
    """Tell an address such as s3://bucket/table from a path of this machine."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def _is_text(path: str) -> bool:
    """Tell whether a name can be given to Arrow, which takes fewer than the system does."""
    return "\0" not in path and path.encode(errors="replace").decode() == path


def locate(path: str | Path) -> Location:
    """Find the file system that a path or an address names.

    Keys and passwords come from the environment or the store's own configuration, never in the
    address.
    """
    if not is_address(path):
        if not _is_text(str(path)):
            raise DataError(f"{str(path)!r}: the name is no UTF-8, or has a 0 in it: rename it")
        return Location(pafs.LocalFileSystem(), str(path), str(path))
    where = re.sub(r"(?<=://)[^/]*:.*@", "", str(path)).partition("?")[0]
    if _PASSWORD.match(str(path)):
        raise ParameterError(
            f"path: the address of {where} has a password in it; leave it out, and give it by the "
            "environment or the store's own configuration"
        )
    try:
        filesystem, inside = pafs.FileSystem.from_uri(str(path))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        said = one_line(error).replace(str(path), where)
        raise ParameterError(f"path: {where}: {said}") from None
    except (OSError, ImportError) as error:
        raise UnavailableError(f"{where}: {one_line(error)}") from None
    return Location(filesystem, inside, where)
