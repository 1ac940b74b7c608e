"""`src/privet/README.md` is the architecture document, so it is checked against the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import privet

PACKAGE = Path(privet.__file__).parent


def _modules() -> set[str]:
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return {str(path) for path in paths if path.name != "__init__.py"}


def _listed() -> list[str]:
    return re.findall(r"^\d+\. `([\w/]+\.py)`", (PACKAGE / "README.md").read_text(), re.MULTILINE)


def _imports(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.removeprefix("privet.").replace(".", "/") + ".py" for name in names}
    return found & _modules()


def test_every_module_is_listed_once() -> None:
    assert sorted(_listed()) == sorted(_modules())


def test_the_list_is_in_reading_order() -> None:
    """Whoever reads from top to bottom never meets an import that was not explained yet."""
    listed = _listed()
    for position, module in enumerate(listed):
        assert _imports(module) <= set(listed[:position]), module


def test_files_fit_in_a_head() -> None:
    lengths = {m: len((PACKAGE / m).read_text().splitlines()) for m in _modules()}
    assert {m: n for m, n in lengths.items() if n > 600} == {}
