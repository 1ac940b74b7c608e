"""`python -m manual`: write the reference, and what notebooks print, anew."""

from __future__ import annotations

import sys

from manual.notebooks import NOTEBOOKS, keep_outputs
from manual.reference import FOLDER, pages


def main() -> int:
    """Write every page and every notebook."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        keep_outputs(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
