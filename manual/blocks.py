"""Blocks of code in documents, and which test runs the commands in them.

The first word behind the fence is the language. What follows it says who runs the block:

    ```sh                            tests/test_documents.py does, page by page, in order
    ```sh bank                       the same, side by side with its neighbours that have a name
    ```sh run by tests/test_x.py     that test does, with these commands or the like
    ```sh not run: takes an hour     nobody does, and why

`console` is for commands after a `$`, with what they print below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"(^ *```[^\n]*\n.*?^ *```$)", re.DOTALL | re.MULTILINE)
LANGUAGES = ("sh", "console")
"""Of blocks with commands."""


@dataclass(frozen=True)
class Block:
    """One block of code."""

    language: str
    who: str
    """What is said of who runs it; nothing, a name, or more words."""
    text: str
    """What is in it, with the last line end."""

    @classmethod
    def of(cls, fenced: str) -> Block:
        """Read a block with its fences."""
        first, rest = fenced.lstrip().split("\n", 1)
        language, _, who = first.removeprefix("```").strip().partition(" ")
        return cls(language, who.strip(), rest.rstrip().removesuffix("```").rstrip(" "))

    @property
    def not_run(self) -> str | None:
        """Why nobody runs it, if nobody does."""
        said, colon, why = self.who.partition(":")
        return why.strip() if colon and said == "not run" else None

    @property
    def run_by(self) -> str | None:
        """The test that runs it, if it is another than that of the documents."""
        return self.who.removeprefix("run by ") if self.who.startswith("run by ") else None

    @property
    def script(self) -> str:
        """What is typed: all of it, or what comes after a `$` and what continues that."""
        if self.language == "sh":
            return self.text
        lines, typing = [], False
        for line in self.text.splitlines():
            typing = typing or line.startswith("$ ")
            if typing:
                lines.append(line.removeprefix("$ "))
                typing = line.endswith("\\")
        return "".join(f"{line}\n" for line in lines)


def blocks(document: str) -> Iterator[Block]:
    """Yield the blocks of a document."""
    for fenced in FENCE.findall(document):
        yield Block.of(fenced)


def spans(document: str) -> list[str]:
    """Return what stands in single backticks, outside of blocks, each on one line."""
    prose = FENCE.sub("", document)
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
