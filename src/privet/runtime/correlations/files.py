"""Preprocessing files: correlated randomness, signed by the dealer and used once.

    "PVCORR04", the length of the manifest (4 bytes), the manifest as JSON
    frames: the seed, or two seeds, the corrections in order, a closing tag
    the dealer's signature of all preceding bytes

The manifest contains the participant, the preprocessing run and its settings. The dealer signs with
the key whose certificate the job names, because no dealer is online to prove its identity.

A file is checked completely when it is opened, and can be consumed once. First, the mark of its
seed goes into the participant's record, which refuses every copy of the file and every
preprocessing run that repeats the seed. Then the file is removed, so that the seed does not stay on
disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, ValidationError

from privet.arithmetic.prg import SEED_BYTES
from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import N_HOLDERS
from privet.errors import CorrelationError, UnavailableError
from privet.runtime.correlations.replicated import DealerPeers
from privet.runtime.correlations.seeds import (
    compute_seed_mark,
    draw_seeds_offline,
    require_equal_seeds,
)
from privet.runtime.correlations.source import (
    CorrelationReceiver,
    CorrelationSender,
    check_participant_index,
)
from privet.schema import StrictSchema
from privet.transport.channel import Expected
from privet.transport.frames import (
    ARRAY,
    HEADER_BYTES,
    FrameError,
    Header,
    assemble_frames,
    pack_array_header,
    parse_header,
    split_into_frames,
)
from privet.transport.tls import SIGNATURE_BYTES, Identity, compute_fingerprint, is_signature_valid

FILE_MAGIC = b"PVCORR04"
MANIFEST_LENGTH_STRUCT = struct.Struct("<I")
SIGNATURE_CONTEXT = b"correlations dealt ahead: "
"""Prefix of the signed digest, so that the signature is valid in no other context."""
_SUFFIX = ".correlations"


class PreprocessingManifest(StrictSchema):
    """The manifest of a preprocessing file."""

    dealing: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """The dealing's name: the same in the files of all participants."""
    participant: Annotated[str, Field(max_length=1000)]
    number: Annotated[int, Field(ge=0)]
    """Which of the participants it is."""
    certificate: Annotated[str, Field(pattern="^([0-9a-f]{2})+$")]
    """The dealer's."""
    dealer: Annotated[int, Field(ge=0, lt=N_HOLDERS)] = 0
    """Which of the dealers made it."""
    dealers: Literal[1, 3] = 1
    """How many dealers there are: of three, each has made a file for each participant."""
    terms: dict[str, Any]
    """What it was dealt for: for whoever uses it to compare."""

    @property
    def seed_bytes(self) -> int:
        """Bytes of seeds in a file: each of three dealers has two seeds for a participant."""
        return SEED_BYTES * (1 if self.dealers == 1 else 2)

    def pack(self) -> bytes:
        """Return the first bytes of a file, up to the frames."""
        content = self.model_dump_json().encode()
        return FILE_MAGIC + MANIFEST_LENGTH_STRUCT.pack(len(content)) + content


def count_framing_bytes(
    participants: Sequence[str],
    identity: Identity,
    settings: Mapping[str, Any],
    dealer_peers: DealerPeers | None = None,
) -> int:
    """Return the bytes of a dealer's files besides corrections and their headers."""
    manifests = _make_manifests("0" * 32, participants, identity, settings, dealer_peers)
    frames = 2 * HEADER_BYTES + SIGNATURE_BYTES
    return sum(len(manifest.pack()) + manifest.seed_bytes + frames for manifest in manifests)


def _make_manifests(
    randomness_id: str,
    participants: Sequence[str],
    identity: Identity,
    settings: Mapping[str, Any],
    dealer_peers: DealerPeers | None,
) -> list[PreprocessingManifest]:
    return [
        PreprocessingManifest(
            dealing=randomness_id,
            participant=name,
            number=number,
            certificate=identity.certificate.hex(),
            dealer=0 if dealer_peers is None else dealer_peers.dealer_index,
            dealers=1 if dealer_peers is None else 3,
            terms=dict(settings),
        )
        for number, name in enumerate(participants)
    ]


class PreprocessingFileWriter(CorrelationSender):
    """Writes a file for each participant.

    One of three dealers draws seeds with its `dealer_peers`, which write their own files.
    """

    def __init__(
        self,
        folder: str | Path,
        participants: Sequence[str],
        identity: Identity,
        settings: Mapping[str, Any],
        dealer_peers: DealerPeers | None = None,
    ) -> None:
        self.paths = [Path(folder) / f"{name}{_SUFFIX}" for name in participants]
        self._identity = identity
        self._manifest_arguments = participants, identity, settings, dealer_peers
        self._files: list[_SignedFile] = []
        try:
            for path in self.paths:
                self._files.append(_SignedFile(path))
        except UnavailableError:
            self.discard()
            raise

    def distribute_seeds(self) -> tuple[str, Any]:
        """Draw seeds; write manifests and seeds."""
        participants, *_, dealer_peers = self._manifest_arguments
        seeds: Any
        if dealer_peers is None:
            randomness_id, seeds = draw_seeds_offline(len(participants))
            seeds_by_file = seeds
        else:
            randomness_id, seeds = dealer_peers.exchange_seeds(len(participants), b"")
            seeds_by_file = [b"".join(parts) for parts in zip(*seeds, strict=True)]
        manifests = _make_manifests(randomness_id, *self._manifest_arguments)
        for party, (manifest, file_seeds) in enumerate(zip(manifests, seeds_by_file, strict=True)):
            self._files[party].write(manifest.pack())
            self.send(party, np.frombuffer(file_seeds, dtype=np.uint8), 0)
        return randomness_id, seeds

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Append an array to one participant's file."""
        file = self._files[party]
        for frame in split_into_frames(array):
            file.write(pack_array_header(frame, file.n_frames, tag))
            file.write(np.ascontiguousarray(frame).data.cast("B") if frame.size else b"")
            file.n_frames += 1

    def close(self, tag: int) -> None:
        """Append the closing tag and the signature to all files, and flush them to the disk."""
        for party, file in enumerate(self._files):
            self.send(party, np.empty(0, dtype=np.uint8), tag)
            file.finish(self._identity)

    def discard(self) -> None:
        """Remove the incomplete files."""
        for file in self._files:
            file.remove()


class _SignedFile:
    """A file that is signed when it is finished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.n_frames = 0
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
        with self._raising_unavailable():
            self._file.write(content)

    def finish(self, identity: Identity) -> None:
        with self._raising_unavailable():
            self._file.write(identity.sign(SIGNATURE_CONTEXT + self._digest.digest()))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # a failed write also fails the flush
            self._file.close()
        self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _raising_unavailable(self) -> Any:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self._path}: cannot be written: {error.strerror}") from None


NEW_RUN_ADVICE = "ask the dealer for a new dealing"
_MAX_MANIFEST_BYTES = 1 << 20
_PIECE = 1 << 20


class PreprocessingFile(CorrelationReceiver):
    """A file from the dealer: checked when it is opened, and consumed once."""

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        """Open a file, and check that the dealer with that fingerprint has signed all of it."""
        self.path = Path(path)
        self._n_frames = 0
        self._is_consumed = False
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise CorrelationError(
                f"{path}: {error.strerror}: put the dealer's file there, or {NEW_RUN_ADVICE}"
            ) from None
        try:
            self.manifest = self._check(fingerprint)
            seeds = Expected(np.dtype(np.uint8), (self.manifest.seed_bytes,))
            self._seed = self.receive(seeds, 0, "start").tobytes()
        except BaseException:
            self.close()
            raise

    def _check(self, fingerprint: str) -> PreprocessingManifest:
        """Check the signature of the whole file; return the manifest, and stay behind it."""
        manifest = self._read_manifest()
        certificate = bytes.fromhex(manifest.certificate)
        if compute_fingerprint(certificate) != fingerprint:
            raise self._make_error(
                f"was signed with the certificate {compute_fingerprint(certificate)[:16]}…, and "
                f"the job's dealer has {fingerprint[:16]}…: {NEW_RUN_ADVICE}"
            )
        start, n_left = self._file.tell(), os.fstat(self._file.fileno()).st_size - SIGNATURE_BYTES
        self._file.seek(0)
        digest = hashlib.sha256()
        while n_left > 0:
            piece = self._file.read(min(_PIECE, n_left))
            if not piece:
                break
            digest.update(piece)
            n_left -= len(piece)
        signature = self._file.read(SIGNATURE_BYTES)
        if not is_signature_valid(certificate, signature, SIGNATURE_CONTEXT + digest.digest()):
            raise self._make_error(
                "was cut short or changed since the dealer signed it: fetch it from the dealer "
                f"again, or {NEW_RUN_ADVICE}"
            )
        self._file.seek(start)
        return manifest

    def _read_manifest(self) -> PreprocessingManifest:
        magic = self._file.read(len(FILE_MAGIC))
        if magic[:-2] != FILE_MAGIC[:-2]:
            raise self._make_error(f"does not hold a dealer's correlations; {NEW_RUN_ADVICE}")
        if magic != FILE_MAGIC:
            raise self._make_error(
                f"is of another version of this software: {NEW_RUN_ADVICE}, with this version"
            )
        length = self._file.read(MANIFEST_LENGTH_STRUCT.size)
        if (
            len(length) == MANIFEST_LENGTH_STRUCT.size
            and MANIFEST_LENGTH_STRUCT.unpack(length)[0] <= _MAX_MANIFEST_BYTES
        ):
            with contextlib.suppress(ValidationError, ValueError):
                return PreprocessingManifest.model_validate_json(
                    self._file.read(MANIFEST_LENGTH_STRUCT.unpack(length)[0])
                )
        raise self._make_error(
            f"was cut short or changed: fetch it from the dealer again, or {NEW_RUN_ADVICE}"
        )

    def consume(self, used_seeds_folder: Path) -> None:
        """Record the seed and remove the file; raise CorrelationError if it was recorded before."""
        try:
            used_seeds_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._locate_mark(used_seeds_folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
            )
            os.close(descriptor)
            folder = os.open(
                used_seeds_folder, os.O_RDONLY
            )  # the mark must survive a power failure
            os.fsync(folder)
            os.close(folder)
            self.path.unlink()
        except FileExistsError:
            raise self._make_reuse_error() from None
        except OSError as error:
            raise self._make_error(f"cannot be used up: {error.strerror}") from None
        self._is_consumed = True

    def check_unused(self, used_seeds_folder: Path) -> None:
        """Raise CorrelationError if the file, or a copy of it, was consumed before."""
        if self._locate_mark(used_seeds_folder).exists():
            raise self._make_reuse_error()

    def _make_reuse_error(self) -> CorrelationError:
        return self._make_error(
            f"was used before, under this or another name: remove it, and {NEW_RUN_ADVICE}"
        )

    def _locate_mark(self, used_seeds_folder: Path) -> Path:
        return used_seeds_folder / compute_seed_mark(self._seed)

    def _make_error(self, problem: str) -> CorrelationError:
        return CorrelationError(f"{self.path}: {problem}")

    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        """Return the randomness id and the seed, or seeds, of a consumed file."""
        assert self._is_consumed, "a file must be consumed before its seed is used"
        check_participant_index(self.manifest.number, participant_index)
        seeds = range(0, len(self._seed), SEED_BYTES)
        return self.manifest.dealing, [self._seed[k : k + SEED_BYTES] for k in seeds]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        """Read the next array."""

        def receive(*frame: Any) -> RingArray:
            return self._receive(Expected(*frame), tag, step)

        return assemble_frames(*expected, receive)

    def _receive(self, expected: Expected, tag: int, step: str) -> RingArray:
        """Read the next frame."""
        try:
            header = parse_header(self._file.read(HEADER_BYTES))
        except FrameError as error:
            raise self._make_error(f"ran out at step {step!r}: {error}") from None
        expected_header = Header(ARRAY, expected.dtype, expected.shape, self._n_frames, tag)
        if header != expected_header:
            raise self._make_error(
                f"holds {header.describe()} where {expected_header.describe()} is due at step "
                f"{step!r}: it was made for another program"
            )
        self._n_frames += 1
        array: RingArray = np.empty(expected.shape, dtype=expected.dtype)
        view: Any = array.reshape(-1).view(np.uint8).data
        if self._file.readinto(view) != array.nbytes:
            raise self._make_error(f"ran out in the middle of step {step!r}")
        return array


def open_preprocessing(
    paths: Sequence[str | Path], dealers: dict[str, str]
) -> PreprocessingReceiver:
    """Open the files of a job's dealers: `dealers` maps their names to fingerprints."""
    if len(paths) != len(dealers):
        raise CorrelationError(
            f"{', '.join(map(str, paths))}: the job has {len(dealers)} dealers, and each of them "
            f"makes a file for us: name {len(dealers)} of them"
        )
    if len(paths) == 1:
        return PreprocessingFile(paths[0], *dealers.values())
    return PreprocessingFileSet(paths, dealers)


class PreprocessingFileSet(CorrelationReceiver):
    """One file from each of three dealers, in the dealers' order: consumed together, once."""

    def __init__(self, paths: Sequence[str | Path], dealers: dict[str, str]) -> None:
        self._names = tuple(dealers)
        self._files: list[PreprocessingFile] = []
        try:
            for path, fingerprint in zip(paths, dealers.values(), strict=True):
                self._files.append(PreprocessingFile(path, fingerprint))
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Raise CorrelationError unless the files are of one preprocessing run and participant."""
        first = self._files[0]
        for number, file in enumerate(self._files):
            if (file.manifest.dealers, file.manifest.dealer) != (len(self._files), number):
                raise CorrelationError(
                    f"{file.path}: is no file that {self._names[number]} made as one of three "
                    f"dealers: {NEW_RUN_ADVICE}"
                )
            for key in ("dealing", "participant", "number", "terms"):
                if getattr(file.manifest, key) != getattr(first.manifest, key):
                    raise CorrelationError(
                        f"{file.path}: is of another dealing than {first.path}, or for somebody "
                        "else: put our three files of one dealing there"
                    )

    @property
    def path(self) -> Path:
        """The path of the first file."""
        return self._files[0].path

    @property
    def manifest(self) -> PreprocessingManifest:
        """The manifest of the first file; the others differ only in the dealer."""
        return self._files[0].manifest

    def consume(self, used_seeds_folder: Path) -> None:
        """Consume all files; raise CorrelationError if one was consumed before."""
        self.check_unused(used_seeds_folder)
        for file in self._files:
            file.consume(used_seeds_folder)

    def check_unused(self, used_seeds_folder: Path) -> None:
        """Raise CorrelationError if one file, or a copy of it, was consumed before."""
        for file in self._files:
            file.check_unused(used_seeds_folder)

    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        """Return the randomness id and three seeds, each confirmed by two dealers."""
        seeds = [file.receive_seeds(participant_index)[1] for file in self._files]
        return self.manifest.dealing, require_equal_seeds(seeds, self._names)

    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        """Read the next array of one of the dealers."""
        return self._files[dealer_index].receive(expected, tag, step)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


PreprocessingReceiver: TypeAlias = PreprocessingFile | PreprocessingFileSet
"""A participant's files from one dealer, or from three."""
