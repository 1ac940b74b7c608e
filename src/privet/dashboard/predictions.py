"""Predictions in a file, and the feature attributions of one of them."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import Any

from privet.errors import DataError, ParameterError

_CONTRIBUTION_PREFIX, _BASE = "contribution of ", "base"
_MAX_ROWS = 100_000


def find_predictions(path: str | Path, text: str = "", max_rows: int = 100) -> dict[str, Any]:
    """Return the predictions of rows whose id starts with a text."""
    header, rows = _read(path)
    shown = [
        k for k, name in enumerate(header) if not name.startswith((_CONTRIBUTION_PREFIX, _BASE))
    ]
    found = [row for row in rows if row[0].startswith(text)]
    return {
        "columns": [header[k] for k in shown],
        "rows": [[row[k] for k in shown] for row in found[:max_rows]],
        "found": len(found),
        "all": len(rows),
    }


def read_attributions(path: str | Path, row_id: str) -> dict[str, Any]:
    """Return the feature attributions of a row, the largest first.

    With several classes, each class has separate attributions.
    """
    header, rows = _read(path)
    cells = next((cells for cells in rows if cells[0] == row_id), None)
    if cells is None:
        raise ParameterError(f"row: {row_id!r} is not among the predictions of {path}")
    by_name = dict(zip(header, cells, strict=True))
    bases = [name for name in header if name == _BASE or name.startswith(f"{_BASE} of ")]
    outputs = []
    for base in bases:
        class_name = base.removeprefix(_BASE).removeprefix(" of ")
        suffix = f" to {class_name}" if class_name else ""
        values = {
            name.removeprefix(_CONTRIBUTION_PREFIX).removesuffix(suffix): float(value)
            for name, value in by_name.items()
            if name.startswith(_CONTRIBUTION_PREFIX) and name.endswith(suffix)
        }
        ordered = sorted(values.items(), key=lambda item: -abs(item[1]))
        score = float(by_name[base]) + sum(values.values())
        outputs.append(
            {
                "of": class_name,
                "base": float(by_name[base]),
                "score": score,
                "contributions": [{"name": name, "value": value} for name, value in ordered],
            }
        )
    predicted = {
        n: v for n, v in by_name.items() if not n.startswith((_CONTRIBUTION_PREFIX, _BASE))
    }
    return {"row": row_id, "predicted": predicted, "outputs": outputs}


def _read(path: str | Path) -> tuple[list[str], list[list[str]]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            header, *rows = islice(csv.reader(file), _MAX_ROWS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read any more: {error}") from None
    except ValueError:
        raise DataError(f"{path}: has no rows") from None
    return header, [row for row in rows if len(row) == len(header)]
