"""Lines of Markdown: tables, and wrapped paragraphs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty line."""
    for row in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def wrapped(lines: Iterable[str]) -> str:
    """Wrap the paragraphs of a text at 100 columns; do not change code."""
    parts = re.split(r"(^```.*?^```$)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):
        parts[number] = "\n".join(_wrapped(line) for line in parts[number].split("\n"))
    return "".join(parts).rstrip() + "\n"


def _wrapped(line: str) -> str:
    """Wrap a paragraph, which is one line; do not change tables, images and titles."""
    if line.startswith(("|", "#", "!", "<", "    ")):
        return line
    return textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)
