"""The documents are true: reference, commands, notebooks, site."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manual.blocks import LANGUAGES, Block, blocks, spans
from manual.commands import known, options
from manual.notebooks import NOTEBOOKS, kept, run, varies
from manual.reference import FOLDER, pages

from privet import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation

ROOT = Path(__file__).parents[1]
WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/README.md"])
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text() for path in WRITTEN}
TUTORIAL = "docs/tutorial.md"
"""Has a test of its own."""
COMMANDS = known()
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _with_commands(document: str) -> list[Block]:
    return [block for block in blocks(DOCUMENTS[document]) if block.language in LANGUAGES]


def _run_here(document: str) -> list[Block]:
    found = _with_commands(document)
    return [block for block in found if block.not_run is None and block.run_by is None]


def _typed(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script as words, up to where the shell has its own."""
    joined = script.replace("\\\n", " ")
    for line in joined.splitlines():
        for command in re.split(r"&&|;|\|", line.split("  #")[0]):
            words = re.split(r"\s+[<>]|\s#", command.strip())[0].strip()
            if words:
                try:
                    yield shlex.split(words)
                except ValueError:  # a quote that goes on in another line is no command of ours
                    continue


ROOT_WORDS = ("COMMAND", "--version", "--help", "--install-completion", "--show-completion", "...")


def _complaint(words: list[str]) -> str | None:
    """Say what is wrong with a command of ours; None, if it is not ours or nothing is."""
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        return next((f"no target {t!r}" for t in targets if t not in TARGETS), None)
    if words[0].startswith("python") and len(words) > 1:
        path = words[2].replace(".", "/") if words[1] == "-m" else words[1].removesuffix(".py")
        ours = path.split("/")[0] in ("benchmarks", "tests", "manual")
        there = (ROOT / f"{path}.py").exists() or (ROOT / path / "__main__.py").exists()
        return f"no program {path!r}" if ours and not there else None
    if words[0] != "privet" or len(words) == 1 or words[1] in ROOT_WORDS:
        return None
    name = next((n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS), None)
    if name is None:
        within = any(each.startswith(f"{words[1]} ") for each in COMMANDS)
        return None if within else f"no command {words[1]!r}"
    typed = [word.split("=")[0] for word in words if word.startswith("--")]
    return next((f"{name}: no {t!r}" for t in typed if t not in options(COMMANDS[name])), None)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_commands_exist(document: str) -> None:
    scripts = [block.script for block in _with_commands(document)]
    scripts += [
        span for span in spans(DOCUMENTS[document]) if re.match(r"(privet|make|python) ", span)
    ]
    for words in (words for script in scripts for words in _typed(script)):
        assert _complaint(words) is None, words


@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_commands_are_run_or_marked(document: str) -> None:
    for block in _with_commands(document):
        if block.not_run is not None:
            assert len(block.not_run) > 10, f"say why nobody runs it: {block.text}"
        elif block.run_by is not None:
            test = (ROOT / block.run_by).read_text()
            test += DOCUMENTS[TUTORIAL] if "test_tutorial" in block.run_by else ""
            for words in _typed(block.script):
                if words[0] in ("privet", "make"):
                    assert words[1] in test, f"{block.run_by} does not run {' '.join(words)}"
        else:
            assert re.fullmatch(r"\w*", block.who), f"who runs it? {block.who!r}"
    other = {block.language for block in blocks(DOCUMENTS[document])} - {*LANGUAGES}
    assert other <= {"json", "python", "text", "toml"}, "commands are `sh` or `console`"
    for part in re.split(r"^```.*?^```$", DOCUMENTS[document], flags=re.DOTALL | re.MULTILINE):
        stray = re.findall(r"^ {4,}(?:\$ )?(?:privet|make|pip) .*", part, re.MULTILINE)
        assert not stray, "commands stand in fenced blocks, which say who runs them"


def test_all_extras_exist() -> None:
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for document, text in DOCUMENTS.items():
        assert {*re.findall(r"privet\[(\w+)\]", text)} <= {*extras}, document


def test_a_mark_is_read_as_it_is_meant() -> None:
    text = (
        "```sh not run: takes an hour\nmake x\n```\n\n```console bank\n$ a \\\n  b\nc\n$ d\n```\n"
    )
    first, second = blocks(text)
    assert (first.not_run, first.run_by, first.script) == ("takes an hour", None, "make x\n")
    assert (second.who, second.not_run, second.script) == ("bank", None, "a \\\n  b\nd\n")
    for wrong in ("privet trian", "privet train --jb x", "make tset", "python -m benchmarks.no"):
        assert _complaint(wrong.split()) is not None, wrong


RUN = [name for name in DOCUMENTS if name != TUTORIAL and _run_here(name)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a federation in whose folders commands are run: everybody has a copy of the job."""
    local = LocalFederation(tmp_path_factory.mktemp("guides") / "federation")
    train, new = split_rows(load_dataset("breast-cancer").frame)
    local.write_tables(train, new)
    local.write_configuration("classification", {"tables": 1, "depth": 2})
    for name in local.member_names:
        (local.folder / name / "job.toml").write_bytes(local.job_path.read_bytes())
    return local.folder


@pytest.mark.parametrize("document", RUN)
def test_a_page_s_commands(document: str, federation: Path) -> None:
    folder = federation / ("dealer" if document.endswith("dealer.md") else "bank")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(  # noqa: S603
        ["/bin/sh", "-ec", "".join(block.script for block in _run_here(document))],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_guides_are_among_them() -> None:
    assert {f"docs/guides/{name}.md" for name in ("data-scientist", "operator", "dealer")} <= {*RUN}


@pytest.mark.parametrize("name", pages())
def test_the_reference_is_that_of_the_code(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "stale: run `make reference`"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook(path: Path) -> None:
    for cell, said in run(path):
        assert varies(cell) or said == kept(cell), "".join(cell["source"])


def test_the_site(tmp_path: Path) -> None:
    built = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    made = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert {"index.html", "security.html", "reference/job.html", "notebooks/gains.html"} <= made
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.?https?:", page.read_text()
        )
        assert not loaded, f"{page} is not whole without the network"
