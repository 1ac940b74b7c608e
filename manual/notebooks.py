"""Notebooks, run cell by cell without Jupyter, and rendered as pages.

The output of a cell is its stdout and the value of its last line. It is stored in the notebook for
readers without Python. The output of a cell with the tag `varies` can differ between runs.
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
    """Run the code cells in order; yield each with its output."""
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(path.read_text())["cells"], start=1):
        if cell["cell_type"] == "code":
            yield cell, _output("".join(cell["source"]), f"{path.name}, cell {number}", namespace)


def _output(source: str, name: str, namespace: dict[str, Any]) -> str:
    """Run one cell; return its stdout and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    last_expression = last.value if isinstance(last, ast.Expr) else None
    if last_expression is not None:
        tree.body.pop()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(tree, name, "exec"), namespace)  # noqa: S102
        if last_expression is not None:
            value = eval(compile(ast.Expression(last_expression), name, "eval"), namespace)  # noqa: S307
            if value is not None:
                output.write(f"{value!r}\n")
    return output.getvalue()


def varies(cell: dict[str, Any]) -> bool:
    """Return whether the output of a cell can differ between runs."""
    return VARIES in cell["metadata"].get("tags", ())


def get_stored_output(cell: dict[str, Any]) -> str:
    """Return the output of a cell in its file."""
    return "".join(line for output in cell["outputs"] for line in output["text"])


def write_outputs(path: Path) -> None:
    """Run a notebook and store the outputs in it."""
    book = json.loads(path.read_text())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for cell, (_, output) in zip(code, run(path), strict=True):
        lines = output.splitlines(keepends=True)
        stream = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"] = [stream] if lines else []
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def render_markdown(path: Path) -> str:
    """Return a notebook as a page."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if get_stored_output(cell):
            parts.append(f"```text\n{get_stored_output(cell)}```")
    return "\n\n".join(parts) + "\n"
