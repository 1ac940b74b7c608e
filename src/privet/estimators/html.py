"""Pieces of HTML for notebooks: tables of text, a curve, and a model's tables drawn as grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from privet.boosting.summary import ModelSummary, format_leaf_path

_MOST_TABLES = 10
"""So many are drawn: a page is to be looked at."""
_CHART = 320, 120


def model_in_html(view: ModelSummary) -> str:
    """Return a model's importances, and its first tables."""
    rows = [(f.name, f.owner, f"{share:.3f}") for f, share in view.importances]
    importances = table(("feature", "of", "share of the tests"), rows)
    grids = [_grid(view, number) for number in range(min(len(view.tables), _MOST_TABLES))]
    shown = "" if len(grids) == len(view.tables) else f", {len(grids)} of {len(view.tables)}"
    drawn = section(f"Decision tables{shown}", "".join(grids))
    return section("Importances", importances) + drawn


def _grid(view: ModelSummary, number: int) -> str:
    """Return a table of leaves: the first tests choose a row, the others a column."""
    tests = view.tables[number]
    by_row = len(tests) // 2
    columns = 1 << (len(tests) - by_row)
    assert view.leaf_values is not None
    values = view.leaf_values[number]
    largest = float(abs(values).max()) or 1.0
    rows = []
    for row in range(1 << by_row):
        cells = [
            f'<td style="background:{_colour(leaf, largest)}">{_numbers(leaf)}</td>'
            for leaf in values.T[row * columns : (row + 1) * columns]
        ]
        rows.append(f"<tr><th>{format_leaf_path(row, by_row)}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{format_leaf_path(k, len(tests) - by_row)}</th>" for k in range(columns))
    words = [
        f"<li>{'row' if level < by_row else 'column'}: {escape(test.text)} "
        f"({escape(test.feature.owner)})</li>"
        for level, test in enumerate(tests)
    ]
    return (
        f"<details{' open' if number == 0 else ''}><summary>table {number + 1}</summary>"
        f"<ol>{''.join(words)}</ol><table><tr><th></th>{head}</tr>{''.join(rows)}</table></details>"
    )


def _colour(values: Iterable[float], largest: float) -> str:
    """Return blue for what raises a score, orange for what lowers it, by how much."""
    values = list(values)
    if len(values) > 1:
        return "none"  # several scores have no one colour
    shade = abs(values[0]) / largest / 2
    return f"rgba({'0,114,178' if values[0] > 0 else '213,94,0'},{shade:.2f})"


def _numbers(values: Iterable[float]) -> str:
    return "<br>".join(f"{value + 0.0:.3g}" for value in values)


def curve(values: Sequence[float]) -> str:
    """Return a line through values, as SVG."""
    width, height = _CHART
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    spread = high - low or 1.0
    points = " ".join(
        f"{width * k / (len(values) - 1):.1f},{height * (high - value) / spread:.1f}"
        for k, value in enumerate(values)
        if math.isfinite(value)
    )
    return (
        f'<svg viewBox="-4 -4 {width + 8} {height + 8}" width="{width}" height="{height}">'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/></svg>'
        f"<p>{values[0]:.5g} after table 1, {values[-1]:.5g} after table {len(values)}</p>"
    )


def section(title: str, content: str) -> str:
    """Return content under a title."""
    return f"<h4>{escape(title)}</h4>{content}"


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows of text, with a head unless it is empty."""
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{cells}</tr>' if head else ''}{lines}</table>"
