"""A participant's file of correlations, which the dealer made before anybody was there.

A file is checked as a whole when it is opened, and used up when it is taken. First the seed's mark
goes into the participant's record, which refuses every copy of the file and every dealing that
repeats the seed; then the file loses its name, so that the seed does not stay on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from privet.arithmetic.prg import SEED_BYTES
from privet.arithmetic.rings import RingArray
from privet.errors import CorrelationError
from privet.runtime.correlations import Source, check_number
from privet.runtime.dealing_ahead import CONTEXT, LENGTH, MAGIC, Cover
from privet.runtime.seeds import mark_of
from privet.transport.channel import Expected
from privet.transport.frames import (
    ARRAY,
    HEADER_BYTES,
    FrameError,
    Header,
    from_frames,
    parse_header,
)
from privet.transport.identity import SIGNATURE_BYTES, fingerprint_of, has_signed

NEW_DEALING = "ask the dealer for a new dealing"
_LONGEST_COVER = 1 << 20
_PIECE = 1 << 20


class FileSource(Source):
    """A file from the dealer: checked when it is opened, used up when it is taken."""

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        """Open the file that the dealer of that fingerprint has signed, and check all of it."""
        self.path = Path(path)
        self._count = 0
        self._taken = False
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise CorrelationError(
                f"{path}: {error.strerror}: put the dealer's file there, or {NEW_DEALING}"
            ) from None
        try:
            self.cover = self._check(fingerprint)
            seeds = Expected(np.dtype(np.uint8), (self.cover.seed_bytes,))
            self._seed = self.receive(seeds, 0, "start").tobytes()
        except BaseException:
            self.close()
            raise

    def _check(self, fingerprint: str) -> Cover:
        """Return the cover, and stand behind it, if the whole file is as the dealer signed it."""
        cover = self._read_cover()
        certificate = bytes.fromhex(cover.certificate)
        if fingerprint_of(certificate) != fingerprint:
            raise self._complaint(
                f"was signed with the certificate {fingerprint_of(certificate)[:16]}…, and the "
                f"job's dealer has {fingerprint[:16]}…: {NEW_DEALING}"
            )
        start, left = self._file.tell(), os.fstat(self._file.fileno()).st_size - SIGNATURE_BYTES
        self._file.seek(0)
        digest = hashlib.sha256()
        while left > 0:
            piece = self._file.read(min(_PIECE, left))
            if not piece:
                break
            digest.update(piece)
            left -= len(piece)
        signature = self._file.read(SIGNATURE_BYTES)
        if not has_signed(certificate, signature, CONTEXT + digest.digest()):
            raise self._complaint(
                "was cut short or changed since the dealer signed it: fetch it from the dealer "
                f"again, or {NEW_DEALING}"
            )
        self._file.seek(start)
        return cover

    def _read_cover(self) -> Cover:
        magic = self._file.read(len(MAGIC))
        if magic[:-2] != MAGIC[:-2]:
            raise self._complaint(f"does not hold a dealer's correlations; {NEW_DEALING}")
        if magic != MAGIC:
            raise self._complaint(
                f"is of another version of this software: {NEW_DEALING}, with this version"
            )
        length = self._file.read(LENGTH.size)
        if len(length) == LENGTH.size and LENGTH.unpack(length)[0] <= _LONGEST_COVER:
            with contextlib.suppress(ValidationError, ValueError):
                return Cover.model_validate_json(self._file.read(LENGTH.unpack(length)[0]))
        raise self._complaint(
            f"was cut short or changed: fetch it from the dealer again, or {NEW_DEALING}"
        )

    def take(self, record: Path) -> None:
        """Use the file up; raise CorrelationError if its seed is in the record already."""
        try:
            record.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._mark(record), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.close(descriptor)
            folder = os.open(record, os.O_RDONLY)  # the name must survive a power cut
            os.fsync(folder)
            os.close(folder)
            self.path.unlink()
        except FileExistsError:
            raise self._used() from None
        except OSError as error:
            raise self._complaint(f"cannot be used up: {error.strerror}") from None
        self._taken = True

    def check_unused(self, record: Path) -> None:
        """Raise CorrelationError if the file, or a copy of it, was used before."""
        if self._mark(record).exists():
            raise self._used()

    def _used(self) -> CorrelationError:
        return self._complaint(
            f"was used before, under this or another name: remove it, and {NEW_DEALING}"
        )

    def _mark(self, record: Path) -> Path:
        return record / mark_of(self._seed)

    def _complaint(self, problem: str) -> CorrelationError:
        return CorrelationError(f"{self.path}: {problem}")

    def start(self, index: int) -> tuple[str, list[bytes]]:
        """Return the dealing's name and the seed, or seeds, of a file that was taken."""
        assert self._taken, "a file is taken before its seed is used"
        check_number(self.cover.number, index)
        seeds = range(0, len(self._seed), SEED_BYTES)
        return self.cover.dealing, [self._seed[k : k + SEED_BYTES] for k in seeds]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def receive(self, expected: Expected, tag: int, step: str, dealer: int = 0) -> RingArray:
        """Read the next array."""

        def receive(*due: Any) -> RingArray:
            return self._receive(Expected(*due), tag, step)

        return from_frames(*expected, receive)

    def _receive(self, expected: Expected, tag: int, step: str) -> RingArray:
        """Read the next frame."""
        try:
            header = parse_header(self._file.read(HEADER_BYTES))
        except FrameError as error:
            raise self._complaint(f"ran out at step {step!r}: {error}") from None
        due = Header(ARRAY, expected.dtype, expected.shape, self._count, tag)
        if header != due:
            raise self._complaint(
                f"holds {header.describe()} where {due.describe()} is due at step {step!r}: it was "
                "made for another program"
            )
        self._count += 1
        array: RingArray = np.empty(expected.shape, dtype=expected.dtype)
        view: Any = array.reshape(-1).view(np.uint8).data
        if self._file.readinto(view) != array.nbytes:
            raise self._complaint(f"ran out in the middle of step {step!r}")
        return array
