"""`src/privet/README.md` describes the architecture, so it is checked against the code."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import tomlkit

import privet

PACKAGE = Path(privet.__file__).parent
MAX_LINES = 600


def _layers() -> list[set[str]]:
    """Return the layers of the import contract, from the top."""
    settings = tomlkit.parse((PACKAGE.parents[1] / "pyproject.toml").read_text()).unwrap()
    (contract,) = (
        each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"
    )
    return [set(layer.split(" | ")) for layer in contract["layers"]]


def test_readme_lists_the_layers_of_the_import_contract() -> None:
    rows = re.findall(r"^\| ([`\w, ]+) \|", (PACKAGE / "README.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    for layer in _layers():
        here, listed = listed[: len(layer)], listed[len(layer) :]
        assert set(here) == layer
    assert listed == []


def test_the_readme_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (PACKAGE / "README.md").read_text())
    assert named
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_no_imports_form_a_cycle() -> None:
    """Not even those inside functions, or for types only."""
    graph = grimp.build_graph("privet")
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 100
    TopologicalSorter(imports).prepare()


def test_no_module_is_too_long() -> None:
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text().splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}
