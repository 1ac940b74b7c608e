"""What the site has beyond the files in docs: a hook of mkdocs.

Documents are written to be read where they lie, in the repository. On the site the README is the
first page, documents from outside docs and notebooks are pages like the others, links follow them,
and links to code, which has no page, are plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from manual.blocks import FENCE, Block
from manual.notebooks import NOTEBOOKS, as_markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "src/privet/README.md": "modules.md",
    "deploy/README.md": "deploy.md",
}
"""Documents that lie outside docs, and the pages that they are on the site."""
_LINK = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the documents from outside docs, and the notebooks as pages."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=as_markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Make links lead to pages, and say which commands no test runs."""
    here = _lies_at(page.file.src_uri)

    def linked(found: re.Match[str]) -> str:
        sign, text, target = found.groups()
        path, mark, part = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        there = _page_of(posixpath.normpath(posixpath.join(posixpath.dirname(here), path)))
        if there is None or files.get_file_from_path(there) is None:
            return text
        start = posixpath.dirname(page.file.src_uri)
        return f"{sign}[{text}]({posixpath.relpath(there, start or '.')}{mark}{part})"

    pieces = re.split(FENCE, markdown)
    return "".join(
        _shown(Block.of(piece)) if FENCE.match(piece) else _LINK.sub(linked, piece)
        for piece in pieces
    )


def _lies_at(page: str) -> str:
    """Return where in the repository the source of a page lies."""
    outside = {there: here for here, there in OUTSIDE.items()}
    return outside.get(page, f"docs/{page}")


def _page_of(path: str) -> str | None:
    """Return the page or figure that a file of the repository is on the site, if it is any."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if not path.startswith("docs/"):
        return None
    inside = path.removeprefix("docs/")
    return inside.removesuffix(".ipynb") + ".md" if inside.endswith(".ipynb") else inside


def _shown(block: Block) -> str:
    """Return a block as the site has it, with a line below it if no test runs it."""
    text = f"```{block.language}\n{block.text}```"
    if block.not_run is None:
        return text
    return f'{text}\n\n<p class="not-run">Not run by a test: {block.not_run}.</p>\n'
