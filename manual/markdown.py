"""Lines of Markdown: tables, and pages whose paragraphs are wrapped as documents are."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one."""
    for row in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def wrapped(lines: Iterable[str]) -> str:
    """Return a text whose paragraphs are wrapped at 100 columns; code stays as it is."""
    parts = re.split(r"(^```.*?^```$)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):
        parts[number] = "\n".join(_wrapped(line) for line in parts[number].split("\n"))
    return "".join(parts).rstrip() + "\n"


def _wrapped(line: str) -> str:
    """Wrap a paragraph, which is one line; tables, figures and titles stay as they are."""
    if line.startswith(("|", "#", "!", "<", "    ")):
        return line
    return textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)
