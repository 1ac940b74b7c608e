"""Apply each mutant to a copy of the package, and see whether the privacy tests catch it.

python -m tests.privacy.mutants.run                  all of them
python -m tests.privacy.mutants.run NAME NAME ...    some of them

If all that were judged are caught, their rows are written into docs/mutants.md.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "mutants.md"
TESTS = (
    "tests/arithmetic/test_lattice.py",
    "tests/privacy",
    "tests/gates/test_leakage.py",
    "tests/gates/test_recipes.py",
)


@dataclass(frozen=True)
class Edit:
    """One change of one file of the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A patch that loses privacy."""

    name: str
    loses: str
    edits: tuple[Edit, ...]

    def apply(self, package: Path) -> None:
        """Change a copy of the package; raise ValueError if the patch does not fit any more."""
        for edit in self.edits:
            path = package / edit.file
            text = path.read_text()
            times = text.count(edit.old)
            if times != 1:
                raise ValueError(f"{self.name}: {edit.old!r} is {times} times in {edit.file}")
            changed = text.replace(edit.old, edit.new)
            ast.parse(changed)
            path.write_text(changed)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    test: str
    """The first test that failed; empty if none did."""
    message: str
    seconds: float


def load() -> list[Mutant]:
    """Read the list."""
    with (Path(__file__).parent / "mutants.toml").open("rb") as file:
        entries = tomllib.load(file)["mutant"]
    return [
        Mutant(e["name"], e["loses"], tuple(Edit(**edit) for edit in e["edits"])) for e in entries
    ]


def judge(mutant: Mutant, *tests: str) -> Verdict:
    """Run the privacy tests, or some of them, on a copy of the package with the mutant in it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="privet-mutant-") as folder:
        package = Path(folder) / "privet"
        shutil.copytree(ROOT / "src" / "privet", package)
        mutant.apply(package)
        options = ("-x", "-q", "-p", "no:cacheprovider", "--ignore=tests/privacy/test_mutants.py")
        ended = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pytest", *options, *(tests or TESTS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant.name}: the tests did not run:\n{ended.stdout}\n{ended.stderr}")
    failed = re.search(r"^FAILED (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if (failed is None) != (ended.returncode == pytest.ExitCode.OK):
        raise RuntimeError(f"{mutant.name}: no test is named as failed:\n{ended.stdout}")
    errors = re.findall(r"^E   +(\S.*)$", ended.stdout, re.MULTILINE)
    return Verdict(
        mutant,
        failed.group(1) if failed else "",
        next((e for e in errors if "Unexplained" in e), errors[0] if errors else ""),
        time.monotonic() - started,
    )


def main(names: list[str]) -> int:
    """Judge mutants; return how many were not caught."""
    mutants = [m for m in load() if not names or m.name in names]
    verdicts = []
    for mutant in mutants:
        verdict = judge(mutant)
        verdicts.append(verdict)
        outcome = f"caught by {verdict.test}: {verdict.message}" if verdict.test else "NOT CAUGHT"
        print(f"{mutant.name} ({verdict.seconds:.0f} s): {outcome}", flush=True)  # noqa: T201
    missed = sum(not verdict.test for verdict in verdicts)
    print(f"{len(verdicts) - missed} of {len(verdicts)} mutants caught")  # noqa: T201
    if not missed:
        rows = {**written(), **{verdict.mutant.name: row(verdict) for verdict in verdicts}}
        PAGE.write_text(page(rows))
    return missed


def written() -> dict[str, str]:
    """Return the rows that the page has, by mutant."""
    lines = PAGE.read_text().splitlines()[_HEAD:]
    return {line.split("|")[1].strip(): line for line in lines}


def row(verdict: Verdict) -> str:
    """Return what the page says of a mutant."""
    test = re.sub(r"\[.*", "", verdict.test.rpartition("::")[2])
    message = verdict.message.replace("tests.privacy.explain.Unexplained: ", "")
    message = re.sub(r"b'[^']*'", "b'...'", message)  # random, and another every time
    return f"| {verdict.mutant.name} | {verdict.mutant.loses} | `{test}` | {message} |"


_HEAD = 10
"""Lines of the page before its rows."""


def page(rows: dict[str, str]) -> str:
    """Return the table of mutants, for the documents; those that were never judged are missing."""
    lines = [
        "# Mutants",
        "",
        "Small patches that each lose privacy in one place, and what catches them: written by",
        "`make test-mutants`, which applies each to a copy of the package and runs",
        "`tests/privacy`, `test_leakage.py` and `test_recipes.py` of `tests/gates`, and",
        "`test_lattice.py` of `tests/arithmetic`. Patches are in",
        "[`mutants.toml`](../tests/privacy/mutants/mutants.toml).",
        "",
        "| mutant | what somebody could learn by it | caught by | which says |",
        "| --- | --- | --- | --- |",
    ]
    lines += [rows[mutant.name] for mutant in load() if mutant.name in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
