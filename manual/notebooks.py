"""Notebooks: run cell by cell, as Jupyter would, without needing it; and shown as pages.

What a cell prints, and the value of its last line, are kept as its output, so that a reader without
Python sees it. A cell whose metadata has the tag `varies` may print something else every time.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
VARIES = "varies"


def run(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Run the cells of code, in order; yield each with what it printed."""
    space: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(path.read_text())["cells"], start=1):
        if cell["cell_type"] == "code":
            yield cell, _output("".join(cell["source"]), f"{path.name}, cell {number}", space)


def _output(source: str, name: str, space: dict[str, Any]) -> str:
    """Run one cell; return what it prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    shown = last.value if isinstance(last, ast.Expr) else None
    if shown is not None:
        tree.body.pop()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, name, "exec"), space)  # noqa: S102
        if shown is not None:
            value = eval(compile(ast.Expression(shown), name, "eval"), space)  # noqa: S307
            if value is not None:
                said.write(f"{value!r}\n")
    return said.getvalue()


def varies(cell: dict[str, Any]) -> bool:
    """Tell whether a cell prints something else every time."""
    return VARIES in cell["metadata"].get("tags", ())


def kept(cell: dict[str, Any]) -> str:
    """Return the output that a cell has in its file."""
    return "".join(line for output in cell["outputs"] for line in output["text"])


def keep_outputs(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    book = json.loads(path.read_text())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for cell, (_, said) in zip(code, run(path), strict=True):
        lines = said.splitlines(keepends=True)
        stream = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"] = [stream] if lines else []
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def as_markdown(path: Path) -> str:
    """Return a notebook as a page."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if kept(cell):
            parts.append(f"```text\n{kept(cell)}```")
    return "\n\n".join(parts) + "\n"
