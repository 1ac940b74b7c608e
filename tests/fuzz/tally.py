"""What was tried, each thing once, and what was found."""

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
    """Counts cases, of those that are the same one."""

    def __init__(self, corpus: Path = CORPUS) -> None:
        self._corpus = corpus
        # A bit for each hash. A new case whose bit is another's is not counted, which one in a
        # hundred is when there are ten million: counts are low rather than high.
        self._seen = bytearray(1 << (_BITS - 3))
        self.tried: Counter[str] = Counter()
        """By what they were given to."""
        self.aside: Counter[str] = Counter()
        """Of what no peer sends."""
        self.found: dict[str, str] = {}
        """Problems, by what is the same for all that come of the same fault."""

    @property
    def cases(self) -> int:
        """How many different ones there were."""
        return self.tried.total()

    def is_new(self, name: str, content: bytes | str) -> bool:
        """Tell whether something was not tried before, and take note of it."""
        place, bit = divmod(hash((name, content)) & ((1 << _BITS) - 1), 8)
        if self._seen[place] >> bit & 1:
            return False
        self._seen[place] |= 1 << bit
        return True

    def keep(self, kind: str, record: dict[str, Any], problem: str) -> None:
        """Put the first of what comes of a fault into the corpus, where the tests will find it."""
        if kind in self.found:
            return
        self.found[kind] = problem
        text = json.dumps({**record, "problem": problem}, indent=1) + "\n"
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        (self._corpus / f"{name}.json").write_text(text)
        print(f"{kind}: {problem}\n{text[:1000]}", flush=True)  # noqa: T201


def packed(content: bytes) -> str:
    """Return bytes as the corpus has them: what is the same all over takes no room."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def unpacked(text: str) -> bytes:
    """Return the bytes."""
    return zlib.decompress(base64.b64decode(text))
