"""How the dealer's randomness reaches the participants, and what keeps them in step.

Uniform values cost nothing: the dealer shares a seed with each participant, who draws its own
shares from it. A derived value (a product of masks, say) is drawn the same way, and the difference
between what was drawn and what it should be, the *correction*, goes to one participant: whoever has
got the fewest bytes so far.

Both sides hash what they draw, its purpose, ring and shape, into a running *tag*. A correction
carries the dealer's tag: if the participant's differs, they have not been running the same program,
and nothing is computed. The last thing sent is a closing tag, so nothing is left over unnoticed.
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from privet.arithmetic.prg import SEED_BYTES, fresh_seed
from privet.arithmetic.rings import Ring, RingArray
from privet.errors import CorrelationError, PeerMisbehavedError, UnavailableError
from privet.runtime.seeds import START_BYTES, Start
from privet.transport.channel import Channel, Expected
from privet.transport.frames import (
    ARRAY,
    HEADER_BYTES,
    FrameError,
    Header,
    array_header,
    parse_header,
)

CLOSING = Expected(np.dtype(np.uint8), (0,))
_START = Expected(np.dtype(np.uint8), (START_BYTES,))
_NONCE = Expected(np.dtype(np.uint8), (SEED_BYTES,))
_FILE_MAGIC = b"PVCORR02"


class Tag:
    """The running hash of what was drawn."""

    def __init__(self) -> None:
        self.value = 0

    def note(self, step: str, kind: str, shape: tuple[int, ...], ring: Ring) -> None:
        """Hash one draw in."""
        self.value = zlib.crc32(f"{step}|{kind}|{shape}|{ring.name}".encode(), self.value)


class Sink(ABC):
    """Where the dealer puts what it sends: live connections, or a file for each participant."""

    @abstractmethod
    def nonces(self) -> list[bytes]:
        """Return what each participant put into its seed."""

    @abstractmethod
    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send an array to one participant."""

    @abstractmethod
    def close(self, tag: int) -> None:
        """Send the closing tag to all."""


class Source(ABC):
    """Where a participant gets what the dealer sent it."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce

    @abstractmethod
    def receive(self, expected: Expected, tag: int, step: str) -> RingArray:
        """Return the next array, which must be that one."""

    def start(self, index: int) -> tuple[str, bytes]:
        """Return what comes first: the name of the dealing, and the seed shared with the dealer."""
        start = self._first()
        if start.number != index:
            raise CorrelationError(
                f"the dealer's randomness is for participant {start.number + 1}, not {index + 1}"
            )
        return start.dealing, start.seed(self._nonce)

    def _first(self) -> Start:
        return Start.unpack(self.receive(_START, 0, "start").tobytes())


class LiveSink(Sink):
    """A stream to each participant, which the dealer runs ahead on as far as memory allows."""

    def __init__(self, channel: Channel, parties: Sequence[str], ahead: int = 64 << 20) -> None:
        self._channel = channel
        self._parties = tuple(parties)
        self._ahead = ahead

    def nonces(self) -> list[bytes]:
        """Wait for every participant's."""
        return [self._channel.receive(name, _NONCE).tobytes() for name in self._parties]

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send, and then wait while every participant has plenty to take.

        To wait for the *fullest* would deadlock: it may be waiting for another participant, who
        waits for us. The participants move in step, so none falls far behind the emptiest.
        """
        self._channel.send(self._parties[party], array, tag)
        self._channel.wait_for_room(self._ahead)

    def close(self, tag: int) -> None:
        """Send the closing tag to all, and wait until everything has left."""
        for name in self._parties:
            self._channel.send(name, np.empty(0, dtype=np.uint8), tag)
        self._channel.flush()


class LiveSource(Source):
    """The stream from the dealer."""

    def __init__(self, channel: Channel, dealer: str) -> None:
        super().__init__(fresh_seed())
        self._channel = channel
        self._dealer = dealer

    def _first(self) -> Start:
        self._channel.send(self._dealer, np.frombuffer(self._nonce, dtype=np.uint8))
        return super()._first()

    def receive(self, expected: Expected, tag: int, step: str) -> RingArray:
        """Wait for the next array from the dealer."""
        try:
            return self._channel.receive(self._dealer, expected, tag)
        except PeerMisbehavedError as error:
            raise CorrelationError(str(error)) from None


class FileSink(Sink):
    """A file for each participant, to be carried to it and used once.

    Participants send their nonces when they order the files.
    """

    def __init__(self, paths: Sequence[str | Path], nonces: Sequence[bytes]) -> None:
        assert len(paths) == len(nonces)
        self._nonces = list(nonces)
        self._files: list[IO[bytes]] = []
        self._counts = [0] * len(paths)
        for path in paths:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
            file = os.fdopen(descriptor, "wb")
            file.write(_FILE_MAGIC)
            self._files.append(file)

    def nonces(self) -> list[bytes]:
        """Return those that the files were ordered with."""
        return self._nonces

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Append an array to one participant's file."""
        file = self._files[party]
        file.write(array_header(array, self._counts[party], tag))
        file.write(np.ascontiguousarray(array).data)
        self._counts[party] += 1

    def close(self, tag: int) -> None:
        """Append the closing tag everywhere and make sure that all is on disk."""
        for party, file in enumerate(self._files):
            self.send(party, np.empty(0, dtype=np.uint8), tag)
            file.flush()
            os.fsync(file.fileno())
            file.close()


class FileSource(Source):
    """A file from the dealer, which is used up by opening it.

    First a tombstone with the name of the dealing is put beside it, which refuses every copy; then
    the file loses its name, so that the seed does not stay on disk.
    """

    def __init__(self, path: str | Path, nonce: bytes) -> None:
        super().__init__(nonce)
        self._path = Path(path)
        self._count = 0
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise CorrelationError(f"{path}: cannot be used: {error.strerror}") from None
        try:
            if self._file.read(len(_FILE_MAGIC)) != _FILE_MAGIC:
                raise CorrelationError(f"{path} does not hold a dealer's correlations")
            self._start = super()._first()
            self._start.seed(nonce)  # before it is used up: it may be somebody else's
            self._bury()
        except BaseException:
            self.close()
            raise

    def _bury(self) -> None:
        start = self._start
        tombstone = self._path.with_name(f"{start.dealing}-{start.number + 1}.spent")
        try:
            descriptor = os.open(tombstone, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.fsync(descriptor)
            os.close(descriptor)
            self._path.unlink()
        except FileExistsError:
            raise CorrelationError(
                f"{self._path} was used before: ask the dealer for a new one"
            ) from None
        except OSError as error:
            raise CorrelationError(f"{self._path}: cannot be used: {error.strerror}") from None

    def _first(self) -> Start:
        return self._start

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def receive(self, expected: Expected, tag: int, step: str) -> RingArray:
        """Read the next array."""
        try:
            header = parse_header(self._file.read(HEADER_BYTES))
        except FrameError as error:
            raise CorrelationError(
                f"{self._path} ran out or is damaged at step {step!r}: {error}"
            ) from None
        due = Header(ARRAY, expected.dtype, expected.shape, self._count, tag)
        if header != due:
            raise CorrelationError(
                f"{self._path} holds {header.describe()} where {due.describe()} is due at step "
                f"{step!r}: it was made for another program"
            )
        self._count += 1
        array: RingArray = np.empty(expected.shape, dtype=expected.dtype)
        view: Any = array.reshape(-1).view(np.uint8).data
        if self._file.readinto(view) != array.nbytes:
            raise CorrelationError(f"{self._path} ran out in the middle of step {step!r}")
        return array
