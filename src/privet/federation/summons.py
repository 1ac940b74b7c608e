"""What a worker is called with: how it reaches its head, and with which key. No data, no shares.

It travels with the task that an engine places. All else comes over the channel to the head, which
both ends of prove to be who they are: by keys that the head made for this run, and for each worker.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from privet.runtime.roles import worker_name
from privet.transport.identity import Identity, create_identity, load_identity
from privet.transport.mesh import Member


@dataclass(frozen=True)
class Summons:
    """What one worker is called with."""

    shard: int
    head: Member
    session: bytes
    key: bytes = field(repr=False)
    certificate: bytes
    host: str
    """What it listens on, for the other workers of its group."""
    advertise: str
    """The host under which they reach it; nothing: the name of the machine that it is on."""
    ports: Sequence[int] | None
    """The first and the last port that it may listen on, if not all will do."""
    wait: float

    @property
    def name(self) -> str:
        """What the worker is called."""
        return worker_name(self.shard)

    @contextlib.contextmanager
    def identity(self) -> Iterator[Identity]:
        """Yield the worker's identity, whose files are there for as long."""
        with tempfile.TemporaryDirectory(prefix="privet-worker-") as folder:
            files = Path(folder) / "worker.key", Path(folder) / "worker.crt"
            for path, content in zip(files, (self.key, self.certificate), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            yield load_identity(*files)


def make_identity(name: str, folder: Path) -> tuple[Identity, bytes, bytes]:
    """Return an identity that lasts for a run, and its key and certificate, to be sent."""
    made = create_identity(name, folder, valid_days=30)
    return made, made.key_file.read_bytes(), made.certificate_file.read_bytes()
