"""Everything that parses bytes of a stranger, given any."""

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
    """What a peer sends, what reads it, and what may come of anything else."""

    samples: Sequence[bytes]
    """Such as it is when nobody lies."""
    read: Callable[[bytes], object]
    named: str = ""
    """Who sent it: an error must name it."""
    allowed: tuple[type[Exception], ...] = (PrivetError,)
    size: int | None = None
    """How many bytes it always has, if it always has as many."""
    share: int = 1
    """How many cases there are for each of a reader with a share of one."""
    trees: list[Any] = field(default_factory=list)
    """The samples as JSON, of those that are."""

    def __post_init__(self) -> None:
        for sample in self.samples:
            with contextlib.suppress(ValueError):
                self.trees.append(json.loads(sample))

    def draw(self, chance: random.Random) -> bytes:
        """Return something like a sample."""
        if self.trees and chance.random() < 0.6:
            return damage_values(chance, self.trees[int(len(self.trees) * chance.random())])
        sample = self.samples[int(len(self.samples) * chance.random())]
        return self.fitted(damage(chance, sample))

    def fitted(self, content: bytes) -> bytes:
        """Return as many bytes as are read."""
        return content if self.size is None else content[: self.size].ljust(self.size, b"\x00")


@dataclass(frozen=True)
class Problem:
    """What should not have come of something."""

    kind: str
    """The same for all that come of the same fault."""
    text: str


def misread(reader: Reader, content: bytes) -> Problem | None:
    """Return what is wrong with how something was read; None if that is as it should be."""
    try:
        reader.read(content)
    except reader.allowed as error:
        if reader.named in str(error) or getattr(error, "peer", None) == reader.named:
            return None
        return Problem("unnamed " + _place(error), f"does not name {reader.named}: {error!r:.200}")
    except Exception as error:  # noqa: BLE001
        return Problem(f"{type(error).__name__} {_place(error)}", f"{error!r:.200}")
    return None


def _place(error: BaseException) -> str:
    """Say in which line of ours an error came up."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "privet" in f.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""


def readers(local: LocalFederation) -> dict[str, Reader]:
    """Return all readers of what peers send, for a federation that has trained."""
    from tests.fuzz import greeted, numbers, served, sharded, stated  # these need a Reader

    job = Job.read(local.job_path)
    return {
        **greeted.readers(local, job),
        **stated.readers(local, job),
        **numbers.readers(job),
        **sharded.readers(local, job),
        **served.readers(local, job),
    }
