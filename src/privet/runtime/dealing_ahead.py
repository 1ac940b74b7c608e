"""Correlations dealt ahead: a file for each participant, signed by the dealer, used once.

    "PVCORR04", the length of the cover (4 bytes), the cover as JSON
    frames: the seed, or two, the corrections in order, a closing tag
    the dealer's signature of all that

The cover says whose file it is, of which dealing, and what it was dealt for. The signature is made
with the key whose certificate the job names: no dealer is there to prove who it is.

`runtime.dealt_file` is the participant's side.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from privet.arithmetic.prg import SEED_BYTES
from privet.arithmetic.replicated import HOLDERS
from privet.arithmetic.rings import RingArray
from privet.config import Checked
from privet.errors import UnavailableError
from privet.runtime.correlations import Sink
from privet.runtime.fellows import Fellows
from privet.runtime.seeds import draw_seeds_alone
from privet.transport.frames import HEADER_BYTES, array_header, in_frames
from privet.transport.identity import SIGNATURE_BYTES, Identity

MAGIC = b"PVCORR04"
LENGTH = struct.Struct("<I")
CONTEXT = b"correlations dealt ahead: "
"""Goes before the digest that is signed, so that the signature stands for nothing else."""
_SUFFIX = ".correlations"


class Cover(Checked):
    """What a file of correlations says of itself."""

    dealing: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """The dealing's name: the same in the files of all participants."""
    participant: Annotated[str, Field(max_length=1000)]
    number: Annotated[int, Field(ge=0)]
    """Which of the participants it is."""
    certificate: Annotated[str, Field(pattern="^([0-9a-f]{2})+$")]
    """The dealer's."""
    dealer: Annotated[int, Field(ge=0, lt=HOLDERS)] = 0
    """Which of the dealers made it."""
    dealers: Literal[1, 3] = 1
    """How many dealers there are: of three, each has made a file for each participant."""
    terms: dict[str, Any]
    """What it was dealt for: for whoever uses it to compare."""

    @property
    def seed_bytes(self) -> int:
        """How many bytes of seeds a file has: of three dealers, each has two for a participant."""
        return SEED_BYTES * (1 if self.dealers == 1 else 2)

    def pack(self) -> bytes:
        """Return what a file starts with."""
        content = self.model_dump_json().encode()
        return MAGIC + LENGTH.pack(len(content)) + content


def framing_bytes(
    participants: Sequence[str],
    identity: Identity,
    terms: Mapping[str, Any],
    fellows: Fellows | None = None,
) -> int:
    """Return how many bytes a dealer's files take beside corrections and their headers."""
    covers = _covers("0" * 32, participants, identity, terms, fellows)
    frames = 2 * HEADER_BYTES + SIGNATURE_BYTES
    return sum(len(cover.pack()) + cover.seed_bytes + frames for cover in covers)


def _covers(
    dealing: str,
    participants: Sequence[str],
    identity: Identity,
    terms: Mapping[str, Any],
    fellows: Fellows | None,
) -> list[Cover]:
    return [
        Cover(
            dealing=dealing,
            participant=name,
            number=number,
            certificate=identity.certificate.hex(),
            dealer=0 if fellows is None else fellows.number,
            dealers=1 if fellows is None else 3,
            terms=dict(terms),
        )
        for number, name in enumerate(participants)
    ]


class FileSink(Sink):
    """A file for each participant, to be carried to it.

    One of three dealers draws seeds with its `fellows`, who write files of their own.
    """

    def __init__(
        self,
        folder: str | Path,
        participants: Sequence[str],
        identity: Identity,
        terms: Mapping[str, Any],
        fellows: Fellows | None = None,
    ) -> None:
        self.paths = [Path(folder) / f"{name}{_SUFFIX}" for name in participants]
        self._identity = identity
        self._about = participants, identity, terms, fellows
        self._files: list[_Signed] = []
        try:
            for path in self.paths:
                self._files.append(_Signed(path))
        except UnavailableError:
            self.abandon()
            raise

    def start(self) -> tuple[str, Any]:
        """Draw seeds; write covers and seeds."""
        participants, *_, fellows = self._about
        seeds: Any
        if fellows is None:
            dealing, seeds = draw_seeds_alone(len(participants))
            written = seeds
        else:
            dealing, seeds = fellows.meet(len(participants), b"")
            written = [b"".join(parts) for parts in zip(*seeds, strict=True)]
        covers = _covers(dealing, *self._about)
        for party, (cover, seed) in enumerate(zip(covers, written, strict=True)):
            self._files[party].write(cover.pack())
            self.send(party, np.frombuffer(seed, dtype=np.uint8), 0)
        return dealing, seeds

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Append an array to one participant's file."""
        file = self._files[party]
        for frame in in_frames(array):
            file.write(array_header(frame, file.frames, tag))
            file.write(np.ascontiguousarray(frame).data.cast("B") if frame.size else b"")
            file.frames += 1

    def close(self, tag: int) -> None:
        """Append the closing tag and the signature everywhere, and see all of it onto the disk."""
        for party, file in enumerate(self._files):
            self.send(party, np.empty(0, dtype=np.uint8), tag)
            file.finish(self._identity)

    def abandon(self) -> None:
        """Remove the files: they are not whole, and never will be."""
        for file in self._files:
            file.remove()


class _Signed:
    """A file that is signed when it is finished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.frames = 0
        self._digest = hashlib.sha256()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise UnavailableError(
                f"{path}: exists already, and is never overwritten: choose another folder"
            ) from None
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "wb")

    def write(self, content: bytes | memoryview) -> None:
        self._digest.update(content)
        with self._blaming():
            self._file.write(content)

    def finish(self, identity: Identity) -> None:
        with self._blaming():
            self._file.write(identity.sign(CONTEXT + self._digest.digest()))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written need not be flushed
            self._file.close()
        self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _blaming(self) -> Any:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self._path}: cannot be written: {error.strerror}") from None
