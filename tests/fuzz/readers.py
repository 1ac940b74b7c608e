"""All functions that parse a peer's bytes, and the check of their errors."""

from __future__ import annotations

import contextlib
import json
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet.config.job import Job
from privet.errors import PrivetError
from privet.experiments.local_federation import LocalFederation
from tests.fuzz.damage import damage, damage_values


@dataclass(frozen=True)
class Reader:
    """Sample messages, the function that reads them, and the errors that it can raise."""

    samples: Sequence[bytes]
    """Valid messages."""
    read: Callable[[bytes], object]
    named: str = ""
    """The sender, which an error must name."""
    allowed: tuple[type[Exception], ...] = (PrivetError,)
    size: int | None = None
    """The size of a message in bytes, if it is fixed."""
    share: int = 1
    """The number of cases relative to a reader with a share of one."""
    trees: list[Any] = field(default_factory=list)
    """The samples that are JSON, parsed."""

    def __post_init__(self) -> None:
        for sample in self.samples:
            with contextlib.suppress(ValueError):
                self.trees.append(json.loads(sample))

    def draw(self, chance: random.Random) -> bytes:
        """Return a damaged sample."""
        if self.trees and chance.random() < 0.6:
            return damage_values(chance, self.trees[int(len(self.trees) * chance.random())])
        sample = self.samples[int(len(self.samples) * chance.random())]
        return self.fitted(damage(chance, sample))

    def fitted(self, content: bytes) -> bytes:
        """Cut or pad content to the fixed size."""
        return content if self.size is None else content[: self.size].ljust(self.size, b"\x00")


@dataclass(frozen=True)
class Problem:
    """An unexpected result of a case."""

    kind: str
    """The same for all problems with the same cause."""
    text: str


def find_problem(reader: Reader, content: bytes) -> Problem | None:
    """Read content; return the problem, or None if the reader behaves correctly."""
    try:
        reader.read(content)
    except reader.allowed as error:
        if reader.named in str(error) or getattr(error, "peer", None) == reader.named:
            return None
        return Problem(
            "unnamed " + _source_line(error), f"does not name {reader.named}: {error!r:.200}"
        )
    except Exception as error:  # noqa: BLE001
        return Problem(f"{type(error).__name__} {_source_line(error)}", f"{error!r:.200}")
    return None


def _source_line(error: BaseException) -> str:
    """Return the line of Privet that raised an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "privet" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def readers(local: LocalFederation) -> dict[str, Reader]:
    """Return all readers of peers' messages, for a trained federation."""
    from tests.fuzz import arrays, handshakes, serving, statements, workers  # these need a Reader

    job = Job.read(local.job_path)
    return {
        **handshakes.readers(local, job),
        **statements.readers(local, job),
        **arrays.readers(job),
        **workers.readers(local, job),
        **serving.readers(local, job),
    }
