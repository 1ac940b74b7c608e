"""Blocks of code in docs, and which test runs their commands.

The first word after the fence is the language. The rest names the runner of the block:

    ```sh                            tests/test_docs.py, page by page, in order
    ```sh bank                       the same, in parallel with adjacent blocks that have a name
    ```sh run by tests/test_x.py     that test, with these commands or similar ones
    ```sh not run: takes an hour     no test, and why

`console` is for commands after a `$`, followed by their output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"(^ *```[^\n]*\n.*?^ *```$)", re.DOTALL | re.MULTILINE)
LANGUAGES = ("sh", "console")
"""Languages of blocks with commands."""


@dataclass(frozen=True)
class Block:
    """One block of code."""

    language: str
    runner: str
    """Text after the language: empty, a name, or a mark."""
    text: str
    """Content, with the last line end."""

    @classmethod
    def parse(cls, fenced: str) -> Block:
        """Parse a block with its fences."""
        first, rest = fenced.lstrip().split("\n", 1)
        language, _, runner = first.removeprefix("```").strip().partition(" ")
        return cls(language, runner.strip(), rest.rstrip().removesuffix("```").rstrip(" "))

    @property
    def not_run(self) -> str | None:
        """Why no test runs the block, if none does."""
        mark, colon, reason = self.runner.partition(":")
        return reason.strip() if colon and mark == "not run" else None

    @property
    def run_by(self) -> str | None:
        """Path of the test that runs the block, if it is not that of the docs."""
        return self.runner.removeprefix("run by ") if self.runner.startswith("run by ") else None

    @property
    def script(self) -> str:
        """The commands: all of the text, or the lines after a `$` with their continuation lines."""
        if self.language == "sh":
            return self.text
        lines, in_command = [], False
        for line in self.text.splitlines():
            in_command = in_command or line.startswith("$ ")
            if in_command:
                lines.append(line.removeprefix("$ "))
                in_command = line.endswith("\\")
        return "".join(f"{line}\n" for line in lines)


def iter_blocks(document: str) -> Iterator[Block]:
    """Yield the blocks of a document."""
    for fenced in FENCE.findall(document):
        yield Block.parse(fenced)


def find_code_spans(document: str) -> list[str]:
    """Return the texts in single backticks outside of blocks, each on one line."""
    prose = FENCE.sub("", document)
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
