"""The wheel: built, and installed into an empty environment.

`pip install .` builds the same wheel first, and `make demo` runs the same `privet demo`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import privet

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "privet"
_OUT_OF_REACH = ("No matching distribution", "Could not find a version", "connection")


def _pip(*options: str | Path) -> None:
    """Run pip; skip the test if packages cannot be fetched."""
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    output = process.stdout + process.stderr
    if process.returncode and any(words in output for words in _OUT_OF_REACH):
        pytest.skip("packages cannot be fetched from here: the wheel is NOT tested")
    assert process.returncode == 0, output


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a clean copy, since setuptools includes files of earlier builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    _pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", folder)
    (path,) = (folder / "dist").glob("*.whl")
    return path


def test_wheel_contains_all_files(wheel: Path) -> None:
    assert wheel.name == f"privet-{privet.__version__}-py3-none-any.whl"
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("privet/")}
    paths = [*PACKAGE.rglob("*.py"), *(PACKAGE / "dashboard" / "static").iterdir()]
    wanted = {str(path.relative_to(PACKAGE.parent)) for path in paths}
    assert found == wanted | {"privet/py.typed"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    _pip("--python", python, "install", "--quiet", "--no-compile", wheel)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def run_privet(*options: str) -> str:
        process = subprocess.run(  # noqa: S603
            [python.parent / "privet", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout + process.stderr

    assert run_privet("--version").split() == ["privet", privet.__version__]
    output = run_privet("demo")
    (printed,) = re.findall(r"in the clear .*", (ROOT / "README.md").read_text())
    assert printed in output, "the session in the README is outdated"
    assert "split feature" in output


def test_make_demo_runs_the_same_command() -> None:
    dry = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "demo"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dry.stdout.splitlines()[-1].strip() == ".venv/bin/privet demo"
