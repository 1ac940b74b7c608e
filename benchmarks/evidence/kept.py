"""Results of benchmarks that are not rows of one training run: a JSON file for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.evidence.measure import environment

ROOT = Path(__file__).parents[2]
Figures = dict[str, Any]


def results(quick: bool) -> Path:
    """Return the folder of results; those of quick runs are not part of the docs."""
    return ROOT / ("build/quick/results" if quick else "docs/results")


def keep(path: Path, figures: Figures, command: str) -> Figures:
    """Write results with their command and environment; return them as read from the file."""
    content = {"command": command, **environment(), **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return read(path)


def read(path: Path) -> Figures:
    """Return the results in a file."""
    found: Figures = json.loads(path.read_text(encoding="utf-8"))
    return found


def where(figures: Figures) -> str:
    """Return the command, machine and date of results, in words."""
    return f"(`{figures['command']}`; {figures['machine']}, {figures['date']}.)"
