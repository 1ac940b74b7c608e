"""Everything that parses bytes of a stranger, given any."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from privet.errors import InputError, PeerMisbehavedError
from privet.federation.agreement import Statement
from privet.federation.differences import parse
from privet.federation.holdings import Holding
from privet.federation.numbers import Numbers
from privet.files.audit import AuditLog
from privet.files.checkpoint import Checkpoints
from privet.files.job import Job
from privet.files.part_file import load_part
from privet.laboratory.local_federation import LocalFederation
from privet.transport.frames import FrameError, FrameReader, array_header, control_header
from privet.transport.greeting import Failure, Greeter, RefusedError
from privet.transport.identity import known_by, load_identity, vouched_for
from privet.transport.messages import pack, unpack

Reader = tuple[bytes, Callable[[bytes], object], tuple[type[Exception], ...]]
"""Something that can be read, what reads it, and what that may raise of anything else."""


def readers(local: LocalFederation, folder: Path) -> dict[str, Reader]:
    """Return all readers, for a federation that has trained."""
    job = Job.read(local.job)
    keys = local.folder / "bank" / "bank.key", local.folder / "bank" / "bank.crt"
    identity = load_identity(*keys)
    pinned = {name: job.contact(name).fingerprint for name in local.everybody}
    greeter = Greeter("shop", pinned, bytes(32), None, Failure("bank", 4))
    statement = Statement.of(job, command="train").model_dump_json().encode()
    holding = Holding(samples=3, n_features=1, features=["a"], cuts=[7]).model_dump_json().encode()
    numbers = Numbers(digests={"a": "b"}).model_dump_json().encode()
    array = np.arange(20, dtype=np.uint64)
    frames = array_header(array, 0, 7) + array.tobytes() + control_header(2) * 3
    part = local.part("bank").read_bytes()
    checkpoints = local.part("bank").parent / "rehearsal.checkpoints"
    (ended,) = checkpoints.glob("*.ended")
    log = AuditLog(folder / "audit.log")
    log.add("began", job="a")
    log.add("ended", outcome={"code": 0})
    file = folder / "file"

    def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def written(content: bytes) -> object:
            file.write_bytes(content)
            return read(file)

        return written

    def stages(content: bytes) -> object:
        ended.write_bytes(content)
        return Checkpoints(checkpoints, job.digest, "x").ended(job.length)

    def read_note(content: bytes) -> object:
        return greeter._read_note("bank", content[:5].ljust(5))

    def verify(path: Path) -> object:
        return AuditLog(path).verify()

    whole = ended.read_bytes()
    return {
        "frames": (frames, _cut, (FrameError,)),
        "notes": (
            greeter._note(),
            lambda c: greeter._read_note("bank", c[:5].ljust(5)),
            (RefusedError,),
        ),
        "certificates": (identity.shown, lambda c: vouched_for(c, identity.fingerprint), ()),
        "fingerprints": (identity.shown, known_by, ()),
        "statements": (statement, lambda c: parse(Statement, "bank", c), (PeerMisbehavedError,)),
        "holdings": (holding, lambda c: parse(Holding, "bank", c), (PeerMisbehavedError,)),
        "numbers": (numbers, lambda c: parse(Numbers, "bank", c), (PeerMisbehavedError,)),
        "texts": (pack(["a", "b"]), unpack, (ValueError,)),
        "parts": (part, from_file(load_part), (InputError,)),
        "stages": (whole, stages, (InputError,)),
        "jobs": (local.job.read_bytes(), from_file(Job.read), (InputError,)),
        "logs": (
            log.path.read_bytes(),
            from_file(lambda path: AuditLog(path).verify()),
            (InputError,),
        ),
    }


def _cut(content: bytes) -> None:
    """Cut a stream into frames, as it comes in pieces."""
    reader = FrameReader(limit=1 << 20)
    while content:
        target = reader.target()
        count = min(len(target), len(content), 1 + len(content) // 3)
        target[:count] = content[:count]
        content = content[count:]
        reader.advance(count)


def damage(chance: random.Random, content: bytes) -> bytes:
    """Return something like it: changed, cut, doubled, mixed up, or nothing like it at all."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(changed) + 1)
        what = chance.randrange(6)
        if what == 0 and changed:
            changed[place % len(changed)] ^= 1 << chance.randrange(8)
        elif what == 1:
            del changed[place : place + chance.randrange(1, 40)]
        elif what == 2:
            changed[place:place] = changed[place : place + chance.randrange(1, 40)]
        elif what == 3:
            changed[place:place] = chance.randbytes(chance.randrange(1, 20))
        elif what == 4:
            words = [b"\xff" * 8, b"0" * 400, b"[" * 3000, b'{"a":', b"NaN", b"1e999", b"\x00"]
            changed[place:place] = chance.choice(words)
        elif chance.random() < 0.05:
            changed = bytearray(chance.randbytes(chance.randrange(200)))
    return bytes(changed)


def misread(reader: Reader, content: bytes) -> str | None:
    """Return what is wrong with how something was read; None if that is as it should be."""
    _, read, allowed = reader
    try:
        read(content)
    except allowed:
        return None
    except Exception as error:  # noqa: BLE001
        return repr(error)
    return None
