"""Lines of Markdown: tables, and wrapped paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty line."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def wrapped(lines: Iterable[str]) -> str:
    """Return a text whose paragraphs, a line each, are wrapped at 100 columns."""
    text = "\n".join(lines).rstrip()
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    """Wrap a paragraph, which is one line; do not change tables, images and titles."""
    if line.startswith(("|", "#", "!", "    ")):
        return [line]
    return textwrap.wrap(line, 100, break_long_words=False, break_on_hyphens=False) or [""]
