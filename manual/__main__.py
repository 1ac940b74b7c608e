"""`python -m manual`: rewrite the reference and the outputs of notebooks."""

from __future__ import annotations

import sys

from manual.notebooks import NOTEBOOKS, write_outputs
from manual.reference import FOLDER, render_pages


def main() -> int:
    """Write every page and every notebook."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in render_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        write_outputs(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
