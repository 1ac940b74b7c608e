"""What a program found that is not a row of one training: a JSON file for each program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.evidence.measure import environment

ROOT = Path(__file__).parents[2]
Figures = dict[str, Any]


def results(quick: bool) -> Path:
    """Return the folder of results: a quick run's are not for the documents."""
    return ROOT / ("build/quick/results" if quick else "docs/results")


def keep(path: Path, figures: Figures, command: str) -> Figures:
    """Write figures, with the command that found them and where; return them as they are read."""
    whole = {"command": command, **environment(), **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return read(path)


def read(path: Path) -> Figures:
    """Return what was written."""
    found: Figures = json.loads(path.read_text(encoding="utf-8"))
    return found


def where(figures: Figures) -> str:
    """Say how figures were found, on what machine, and when."""
    return f"(`{figures['command']}`; {figures['machine']}, {figures['date']}.)"
