"""Counts of different cases, and the problems found."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
_BITS = 30


class Tally:
    """Count cases, each different one once."""

    def __init__(self, corpus: Path = CORPUS) -> None:
        self._corpus = corpus
        # A bit for each hash. A new case with the bit of another is not counted: one in a hundred
        # of ten million cases, so that counts are too low rather than too high.
        self._seen = bytearray(1 << (_BITS - 3))
        self.tried: Counter[str] = Counter()
        """Cases by target."""
        self.aside: Counter[str] = Counter()
        """Cases of files, which no peer sends."""
        self.found: dict[str, str] = {}
        """Problems by kind, which is the same for all problems with the same cause."""

    @property
    def cases(self) -> int:
        """The number of different cases."""
        return self.tried.total()

    def is_new(self, name: str, content: bytes | str) -> bool:
        """Return whether a case is new, and record it."""
        index, bit = divmod(hash((name, content)) & ((1 << _BITS) - 1), 8)
        if self._seen[index] >> bit & 1:
            return False
        self._seen[index] |= 1 << bit
        return True

    def keep(self, kind: str, record: dict[str, Any], problem: str) -> None:
        """Write the first case of a kind into the corpus, which the tests repeat."""
        if kind in self.found:
            return
        self.found[kind] = problem
        text = json.dumps({**record, "problem": problem}, indent=1) + "\n"
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        (self._corpus / f"{name}.json").write_text(text)
        print(f"{kind}: {problem}\n{text[:1000]}", flush=True)  # noqa: T201


def packed(content: bytes) -> str:
    """Compress and encode bytes for the corpus."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def unpacked(text: str) -> bytes:
    """Return the bytes of an encoded text."""
    return zlib.decompress(base64.b64decode(text))
