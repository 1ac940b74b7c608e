"""Predictions that were written to a file, and what contributes to one of them."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import Any

from privet.errors import DataError, ParameterError

_CONTRIBUTION_PREFIX, _BASE = "contribution of ", "base"
_MAX_ROWS = 100_000


def find_predictions(path: str | Path, text: str = "", max_rows: int = 100) -> dict[str, Any]:
    """Return the rows whose id begins with some text, and their predictions."""
    head, rows = _read(path)
    shown = [k for k, name in enumerate(head) if not name.startswith((_CONTRIBUTION_PREFIX, _BASE))]
    found = [row for row in rows if row[0].startswith(text)]
    return {
        "columns": [head[k] for k in shown],
        "rows": [[row[k] for k in shown] for row in found[:max_rows]],
        "found": len(found),
        "all": len(rows),
    }


def read_attributions(path: str | Path, row_id: str) -> dict[str, Any]:
    """Return what contributes to the prediction of a row, the largest first.

    Of several classes, each has contributions of its own.
    """
    head, rows = _read(path)
    cells = next((cells for cells in rows if cells[0] == row_id), None)
    if cells is None:
        raise ParameterError(f"row: {row_id!r} is not among the predictions of {path}")
    by_name = dict(zip(head, cells, strict=True))
    bases = [name for name in head if name == _BASE or name.startswith(f"{_BASE} of ")]
    outputs = []
    for base in bases:
        which = base.removeprefix(_BASE).removeprefix(" of ")
        end = f" to {which}" if which else ""
        values = {
            name.removeprefix(_CONTRIBUTION_PREFIX).removesuffix(end): float(value)
            for name, value in by_name.items()
            if name.startswith(_CONTRIBUTION_PREFIX) and name.endswith(end)
        }
        ordered = sorted(values.items(), key=lambda item: -abs(item[1]))
        score = float(by_name[base]) + sum(values.values())
        outputs.append(
            {
                "of": which,
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
            head, *rows = islice(csv.reader(file), _MAX_ROWS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read any more: {error}") from None
    except ValueError:
        raise DataError(f"{path}: has no rows") from None
    return head, [row for row in rows if len(row) == len(head)]
