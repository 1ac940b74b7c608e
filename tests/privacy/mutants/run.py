"""Apply each mutant to a copy of the package, and check that the privacy tests catch it.

python -m tests.privacy.mutants.run                  all mutants
python -m tests.privacy.mutants.run NAME NAME ...    some mutants

If all of these are caught, their rows are written to docs/mutants.md.
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
    "tests/arithmetic/test_ring_lwe.py",
    "tests/privacy",
    "tests/gates/test_leakage.py",
    "tests/gates/test_correlations.py",
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
        """Change a copy of the package; raise ValueError if the patch no longer fits."""
        for edit in self.edits:
            path = package / edit.file
            text = path.read_text()
            count = text.count(edit.old)
            if count != 1:
                raise ValueError(f"{self.name}: {edit.old!r} occurs {count} times in {edit.file}")
            changed = text.replace(edit.old, edit.new)
            ast.parse(changed)
            path.write_text(changed)


_PATCH_ERRORS = (
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "NotImplementedError",
    "TypeError",
)
"""Errors of a patch that no longer fits the code around it."""


@dataclass(frozen=True)
class Verdict:
    """The result of the tests on a mutant."""

    mutant: Mutant
    test: str
    """The first test that failed; empty if none did."""
    message: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether a test failed because of the lost privacy, not because the patch is broken."""
        return bool(self.test) and not self.message.startswith(_PATCH_ERRORS)

    def __str__(self) -> str:
        if not self.test:
            return "NOT CAUGHT"
        outcome = "caught by" if self.is_caught else "BROKEN PATCH, failed"
        return f"{outcome} {self.test}: {self.message}"


def load() -> list[Mutant]:
    """Read the list."""
    with (Path(__file__).parent / "mutants.toml").open("rb") as file:
        entries = tomllib.load(file)["mutant"]
    return [
        Mutant(e["name"], e["loses"], tuple(Edit(**edit) for edit in e["edits"])) for e in entries
    ]


def judge(mutant: Mutant, *tests: str) -> Verdict:
    """Run the privacy tests, or the given ones, on a copy of the package with the mutant."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="privet-mutant-") as folder:
        package = Path(folder) / "privet"
        shutil.copytree(ROOT / "src" / "privet", package)
        mutant.apply(package)
        options = ("-x", "-q", "-p", "no:cacheprovider", "--ignore=tests/privacy/test_mutants.py")
        process = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pytest", *options, *(tests or TESTS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    output = process.stdout
    if process.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant.name}: the tests did not run:\n{output}\n{process.stderr}")
    failed = re.search(r"^FAILED (.+?)(?: - .*)?$", output, re.MULTILINE)
    if (failed is None) != (process.returncode == pytest.ExitCode.OK):
        raise RuntimeError(f"{mutant.name}: no test is named as failed:\n{output}")
    errors = re.findall(r"^E   +(\S.*)$", output, re.MULTILINE)
    return Verdict(
        mutant,
        failed.group(1) if failed else "",
        next((e for e in errors if "Unexplained" in e), errors[0] if errors else ""),
        time.monotonic() - started,
    )


def main(names: list[str]) -> int:
    """Judge mutants; return the number of mutants that were not caught."""
    mutants = [m for m in load() if not names or m.name in names]
    verdicts = []
    for mutant in mutants:
        verdict = judge(mutant)
        verdicts.append(verdict)
        print(f"{mutant.name} ({verdict.seconds:.0f} s): {verdict}", flush=True)  # noqa: T201
    missed = sum(not verdict.is_caught for verdict in verdicts)
    print(f"{len(verdicts) - missed} of {len(verdicts)} mutants caught")  # noqa: T201
    if not missed:
        rows = {**written(), **{verdict.mutant.name: row(verdict) for verdict in verdicts}}
        PAGE.write_text(page(rows))
    return missed


def written() -> dict[str, str]:
    """Return the rows of the page, by mutant."""
    lines = PAGE.read_text().splitlines()[_N_HEADER_LINES:]
    return {line.split("|")[1].strip(): line for line in lines}


def row(verdict: Verdict) -> str:
    """Return the row of a mutant."""
    test = re.sub(r"\[.*", "", verdict.test.rpartition("::")[2])
    message = verdict.message.replace("tests.privacy.explain.Unexplained: ", "")
    message = re.sub(r"b'[^']*'", "b'...'", message)  # random bytes
    return f"| {verdict.mutant.name} | {verdict.mutant.loses} | `{test}` | {message} |"


_N_HEADER_LINES = 10


def page(rows: dict[str, str]) -> str:
    """Return the page; mutants that were never judged are missing."""
    lines = [
        "# Mutants",
        "",
        "Small patches that each lose privacy in one place, and what catches them: written by",
        "`make test-mutants`, which applies each to a copy of the package and runs",
        "`tests/privacy`, `test_leakage.py` and `test_correlations.py` of `tests/gates`, and",
        "`test_ring_lwe.py` of `tests/arithmetic`. Patches are in",
        "[`mutants.toml`](../tests/privacy/mutants/mutants.toml).",
        "",
        "| mutant | what a colluding party could learn | caught by | message |",
        "| --- | --- | --- | --- |",
    ]
    lines += [rows[mutant.name] for mutant in load() if mutant.name in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
