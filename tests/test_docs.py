"""The docs match the code: reference, commands, notebooks, site."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manual.blocks import LANGUAGES, Block, find_code_spans, iter_blocks
from manual.commands import list_commands, list_options
from manual.notebooks import NOTEBOOKS, get_stored_output, run, varies
from manual.reference import FOLDER, render_pages

from privet import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation

ROOT = Path(__file__).parents[1]
PATHS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/README.md"])
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text() for path in PATHS}
TUTORIAL = "docs/tutorial.md"
"""It has a separate test."""
COMMANDS = list_commands()
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _list_command_blocks(document: str) -> list[Block]:
    return [block for block in iter_blocks(DOCUMENTS[document]) if block.language in LANGUAGES]


def _list_local_blocks(document: str) -> list[Block]:
    listed = _list_command_blocks(document)
    return [block for block in listed if block.not_run is None and block.run_by is None]


def _split_commands(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script as words, without pipes and redirections."""
    joined = script.replace("\\\n", " ")
    for line in joined.splitlines():
        for command in re.split(r"&&|;|\|", line.split("  #")[0]):
            words = re.split(r"\s+[<>]|\s#", command.strip())[0].strip()
            if words:
                try:
                    yield shlex.split(words)
                except ValueError:  # a quote over several lines is not a command of Privet
                    continue


ROOT_WORDS = ("COMMAND", "--version", "--help", "--install-completion", "--show-completion", "...")


def _find_problem(words: list[str]) -> str | None:
    """Return what is wrong with a command; None if it is valid or not one of Privet."""
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        return next((f"no target {t!r}" for t in targets if t not in TARGETS), None)
    if words[0].startswith("python") and len(words) > 1:
        path = words[2].replace(".", "/") if words[1] == "-m" else words[1].removesuffix(".py")
        is_local = path.split("/")[0] in ("benchmarks", "tests", "manual")
        exists = (ROOT / f"{path}.py").exists() or (ROOT / path / "__main__.py").exists()
        return f"no program {path!r}" if is_local and not exists else None
    if words[0] != "privet" or len(words) == 1 or words[1] in ROOT_WORDS:
        return None
    name = next((n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS), None)
    if name is None:
        is_group = any(each.startswith(f"{words[1]} ") for each in COMMANDS)
        return None if is_group else f"no command {words[1]!r}"
    options = [word.split("=")[0] for word in words if word.startswith("--")]
    return next(
        (f"{name}: no {t!r}" for t in options if t not in list_options(COMMANDS[name])), None
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_commands_exist(document: str) -> None:
    scripts = [block.script for block in _list_command_blocks(document)]
    scripts += [
        span
        for span in find_code_spans(DOCUMENTS[document])
        if re.match(r"(privet|make|python) ", span)
    ]
    for words in (words for script in scripts for words in _split_commands(script)):
        assert _find_problem(words) is None, words


@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_commands_are_run_or_marked(document: str) -> None:
    for block in _list_command_blocks(document):
        if block.not_run is not None:
            assert len(block.not_run) > 10, f"give the reason why no test runs it: {block.text}"
        elif block.run_by is not None:
            test = (ROOT / block.run_by).read_text()
            test += DOCUMENTS[TUTORIAL] if "test_tutorial" in block.run_by else ""
            for words in _split_commands(block.script):
                if words[0] in ("privet", "make"):
                    assert words[1] in test, f"{block.run_by} does not run {' '.join(words)}"
        else:
            assert re.fullmatch(r"\w*", block.runner), f"unknown runner {block.runner!r}"
    other = {block.language for block in iter_blocks(DOCUMENTS[document])} - {*LANGUAGES}
    assert other <= {"json", "python", "text", "toml"}, "commands are `sh` or `console`"
    for part in re.split(r"^```.*?^```$", DOCUMENTS[document], flags=re.DOTALL | re.MULTILINE):
        stray = re.findall(r"^ {4,}(?:\$ )?(?:privet|make|pip) .*", part, re.MULTILINE)
        assert not stray, "commands must be in fenced blocks, which name their runner"


def test_all_extras_exist() -> None:
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for document, text in DOCUMENTS.items():
        assert {*re.findall(r"privet\[(\w+)\]", text)} <= {*extras}, document


def test_marks_of_blocks_are_parsed() -> None:
    text = (
        "```sh not run: takes an hour\nmake x\n```\n\n```console bank\n$ a \\\n  b\nc\n$ d\n```\n"
    )
    first, second = iter_blocks(text)
    assert (first.not_run, first.run_by, first.script) == ("takes an hour", None, "make x\n")
    assert (second.runner, second.not_run, second.script) == ("bank", None, "a \\\n  b\nd\n")
    for wrong in ("privet trian", "privet train --jb x", "make tset", "python -m benchmarks.no"):
        assert _find_problem(wrong.split()) is not None, wrong


RUN_DOCUMENTS = [name for name in DOCUMENTS if name != TUTORIAL and _list_local_blocks(name)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a federation whose folders each contain the job."""
    local = LocalFederation(tmp_path_factory.mktemp("guides") / "federation")
    train, new = split_rows(load_dataset("breast-cancer").frame)
    local.write_tables(train, new)
    local.write_configuration("classification", {"tables": 1, "depth": 2})
    for name in local.member_names:
        (local.folder / name / "job.toml").write_bytes(local.job_path.read_bytes())
    return local.folder


@pytest.mark.parametrize("document", RUN_DOCUMENTS)
def test_commands_of_a_page(document: str, federation: Path) -> None:
    folder = federation / ("dealer" if document.endswith("dealer.md") else "bank")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.run(  # noqa: S603
        ["/bin/sh", "-ec", "".join(block.script for block in _list_local_blocks(document))],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_guides_have_commands() -> None:
    assert {f"docs/guides/{name}.md" for name in ("data-scientist", "operator", "dealer")} <= {
        *RUN_DOCUMENTS
    }


@pytest.mark.parametrize("name", render_pages())
def test_reference_matches_the_code(name: str) -> None:
    assert (FOLDER / name).read_text() == render_pages()[name], "stale: run `make reference`"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_outputs_match(path: Path) -> None:
    for cell, output in run(path):
        assert varies(cell) or output == get_stored_output(cell), "".join(cell["source"])


def test_site_builds(tmp_path: Path) -> None:
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    page_names = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert {
        "index.html",
        "security.html",
        "reference/job.html",
        "notebooks/gains.html",
    } <= page_names
    for page in tmp_path.rglob("*.html"):
        external = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.?https?:", page.read_text()
        )
        assert not external, f"{page} loads external resources"
