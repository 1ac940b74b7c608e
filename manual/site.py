"""mkdocs hook that adds pages from outside docs to the site, and adapts links.

Documents have links that work in the repository. On the site the README is the first page, and
documents outside docs and notebooks are pages. Links lead to these pages; links to code, which has
no page, become plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from manual.blocks import FENCE, Block
from manual.notebooks import NOTEBOOKS, render_markdown

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
"""Documents outside docs, and their pages on the site."""
_LINK = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the documents from outside docs, and the notebooks as pages."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=render_markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Adapt links to pages, and mark commands that no test runs."""
    source_path = _get_source_path(page.file.src_uri)

    def replace_link(match: re.Match[str]) -> str:
        sign, text, target = match.groups()
        path, mark, part = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        page_path = _get_page_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(source_path), path))
        )
        if page_path is None or files.get_file_from_path(page_path) is None:
            return text
        start = posixpath.dirname(page.file.src_uri)
        return f"{sign}[{text}]({posixpath.relpath(page_path, start or '.')}{mark}{part})"

    pieces = re.split(FENCE, markdown)
    return "".join(
        _render_block(Block.parse(piece)) if FENCE.match(piece) else _LINK.sub(replace_link, piece)
        for piece in pieces
    )


def _get_source_path(page: str) -> str:
    """Return the repository path of the source of a page."""
    sources = {page_path: source for source, page_path in OUTSIDE.items()}
    return sources.get(page, f"docs/{page}")


def _get_page_path(path: str) -> str | None:
    """Return the site path of a file of the repository, or None."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if not path.startswith("docs/"):
        return None
    inside = path.removeprefix("docs/")
    return inside.removesuffix(".ipynb") + ".md" if inside.endswith(".ipynb") else inside


def _render_block(block: Block) -> str:
    """Render a block for the site, with a note below it if no test runs it."""
    text = f"```{block.language}\n{block.text}```"
    if block.not_run is None:
        return text
    return f'{text}\n\n<p class="not-run">Not run by a test: {block.not_run}.</p>\n'
