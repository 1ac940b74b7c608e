"""Indicators that outlast a training: our own seeds, and what others have published.

    NAME.seed                  ours: the seed of the masks, and a digest of what they hide
    NAME-POSITION.indicators   another's: the rows of one of its features, as they were sent

A name is random, and new for every publication. The digest never leaves: others could search it.
Only what has the same digest is offered again, so one mask never hides two different things.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from privet.arithmetic.prg import fresh_seed
from privet.arithmetic.rings import Ring, RingArray
from privet.boosting.binning import BucketedColumns
from privet.data.frame import Ids
from privet.errors import ModelError
from privet.filesystem import make_folder, remove_file, write_atomically
from privet.runtime.opening import Payload
from privet.schema import StrictSchema
from privet.storage.arrow_streams import (
    ArrayColumn,
    ArrayColumns,
    append_seal,
    read_sealed,
    serialise_batch,
    serialise_header,
)
from privet.storage.json_records import read_record

FOLDER = "indicators"
"""The folder, beside a participant's models."""
SEED_FORMAT: Final = "privet-seed"
ROWS_FORMAT: Final = "privet-indicators"
VERSION = 1
NAME_PATTERN = "^[0-9a-f]{32}$"
_Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_Key = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Version = Annotated[int, Field(ge=VERSION, le=VERSION)]


class _SeedRecord(StrictSchema):
    format: Literal["privet-seed"] = SEED_FORMAT
    version: _Version = VERSION
    name: _Name
    digest: _Key
    seed: _Key


class _RowsHeader(StrictSchema):
    format: Literal["privet-indicators"]
    version: _Version
    name: _Name
    position: Annotated[int, Field(ge=0)]
    bits: Annotated[int, Field(ge=1, le=64)]
    """Of the ring."""
    shape: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    """Cuts and columns."""
    nbytes: Annotated[int, Field(ge=1)]

    def columns(self) -> ArrayColumns:
        """Return what the one row holds."""
        return (ArrayColumn("content", np.dtype(np.uint8), (self.nbytes,)),)


@dataclass(frozen=True, repr=False)
class Masks:
    """Masks of our own that last: what they are called, and what they are drawn from."""

    name: str
    seed: bytes

    @classmethod
    def fresh(cls) -> Masks:
        """Draw new ones."""
        return cls(secrets.token_hex(16), fresh_seed())


def indicator_digest(
    columns: BucketedColumns,
    ids: Ids,
    cuts: Sequence[int],
    ring: Ring,
    participants: Sequence[str],
    dealers: Sequence[str] = (),
    made_with: str = "",
) -> str:
    """Return a digest of all that our indicators are made of, and of who has them.

    Of three `dealers`, each has two parts of the masks' seed: others, or the same in another order,
    must not have parts of the same. `made_with` is what else they are made of, if anything.
    """
    buckets = np.ascontiguousarray(columns.buckets)
    digest = hashlib.sha256()
    about = repr((columns.owner, list(participants), ring.bits, list(cuts), buckets.shape))
    about += repr(list(dealers)) if len(dealers) > 1 else ""
    about += made_with
    digest.update(hashlib.sha256(about.encode()).digest())
    digest.update(ids.digest())
    digest.update(buckets.tobytes())
    return digest.hexdigest()


class KeptIndicators:
    """The folder of one participant's kept indicators."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def masks(self, digest: str) -> Masks | None:
        """Return the masks that hide what has this digest; None if there are none."""
        for path in sorted(self._folder.glob("*.seed")):
            # One that is damaged is none: what it hid is published anew.
            with contextlib.suppress(ModelError):
                record = read_record(path, SEED_FORMAT, {VERSION: _SeedRecord})
                if record.digest == digest:
                    return Masks(record.name, bytes.fromhex(record.seed))
        return None

    def keep(self, masks: Masks, digest: str) -> None:
        """Keep masks of our own, instead of those that hid the same."""
        make_folder(self._folder)
        earlier = self.masks(digest)
        record = _SeedRecord(name=masks.name, digest=digest, seed=masks.seed.hex())
        path = self._folder / f"{masks.name}.seed"
        write_atomically(path, record.model_dump_json().encode() + b"\n", private=True)
        if earlier is not None:
            remove_file(self._folder / f"{earlier.name}.seed")

    def problem(self, name: str, shapes: Sequence[tuple[int, int]], ring: Ring) -> str:
        """Say why another's indicators are not all here; nothing, if they are."""
        try:
            for position, shape in enumerate(shapes):
                self.load(name, position, shape, ring)
        except ModelError as error:
            return str(error)
        return ""

    def load(self, name: str, position: int, shape: tuple[int, int], ring: Ring) -> RingArray:
        """Return the rows of one feature; raise ModelError if they are not here."""
        if not shape[0]:  # of a constant column, of which there is nothing to keep
            return ring.zeros(shape)
        path = self._path(name, position)
        header, batches = read_sealed(path, _RowsHeader, _RowsHeader.columns, ROWS_FORMAT, VERSION)
        due = _header(name, position, shape, ring)
        if header != due or len(batches) != 1 or len(batches[0]["content"]) != 1:
            raise ModelError(f"{path}: holds something else than its name says")
        letter = Payload.for_array(ring, shape)
        content = batches[0]["content"][0].view(letter.expected.dtype)
        return letter.decode(content)[0].reshape(shape)

    def save(self, name: str, position: int, rows: RingArray, ring: Ring) -> None:
        """Keep the rows of one feature."""
        cuts, samples = rows.shape
        if not cuts:
            return
        make_folder(self._folder)
        header = _header(name, position, (cuts, samples), ring)
        content = np.ascontiguousarray(Payload.for_array(ring, rows.shape).encode([rows])).view(
            np.uint8
        )
        columns = header.columns()
        stream = serialise_header(header, columns) + serialise_batch(
            {"content": content[None]}, columns
        )
        write_atomically(self._path(name, position), append_seal(stream), private=True)

    def forget(self) -> int:
        """Remove everything; return how many files that was."""
        paths = [path for path in self._folder.glob("*") if path.is_file()]
        for path in paths:
            remove_file(path)
        if self._folder.is_dir():
            self._folder.rmdir()
        return len(paths)

    def _path(self, name: str, position: int) -> Path:
        return self._folder / f"{name}-{position:05d}.indicators"


def _header(name: str, position: int, shape: tuple[int, int], ring: Ring) -> _RowsHeader:
    return _RowsHeader(
        format=ROWS_FORMAT,
        version=VERSION,
        name=name,
        position=position,
        bits=ring.bits,
        shape=shape,
        nbytes=Payload.for_array(ring, shape).nbytes,
    )
