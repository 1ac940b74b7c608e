"""A model as pictures: each table as a grid of leaves, importances, and losses table by table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.view import SeenTest, View, signs
from privet.files.atomic import make_folder, write_atomically
from privet.laboratory.figures import (
    LOWERS,
    RAISES,
    check_matplotlib,
    count_on,
    image_of,
    style,
)

_MOST_NUMBERS = 8
"""Leaf values are written into grids of up to so many columns."""
_MOST_FEATURES = 40


def plot_model(view: View, folder: str | Path, losses: Sequence[float] = ()) -> list[Path]:
    """Draw what is seen of a model into a folder, as SVG; return the files."""
    check_matplotlib()
    digits = len(str(len(view.tables)))
    with style():
        figures = {"importances": _importances(view)}
        if losses:
            figures["loss"] = _losses(losses)
        paths = [_write(Path(folder), name, figure) for name, figure in figures.items()]
        for number, tests in enumerate(view.tables, start=1):
            values = None if view.leaf_values is None else view.leaf_values[number - 1]
            figure = _grid(f"table {number}", tests, values, view.outputs)
            paths.append(_write(Path(folder), f"table-{number:0{digits}}", figure))
    return paths


def _write(folder: Path, name: str, figure: Any) -> Path:
    path = make_folder(folder) / f"{name}.svg"
    write_atomically(path, image_of(figure))
    return path


def _grid(
    title: str, tests: Sequence[SeenTest], values: FloatArray | None, outputs: Sequence[str]
) -> Any:
    """Draw a table: its first tests choose a row of leaves, the others a column.

    `values`, if they are known, are those of each output, (outputs, 2^depth); `outputs` are their
    names.
    """
    from matplotlib.figure import Figure

    by_row = len(tests) // 2
    rows, columns = 1 << by_row, 1 << (len(tests) - by_row)
    n_grids = 1 if values is None else len(values)
    width, height = max(5.0, 0.7 * columns), max(1.2, 0.4 * rows)
    head = 0.5 + 0.18 * len(tests)
    figure = Figure(figsize=(width, head + n_grids * (height + 0.5)), layout="constrained")
    lines = [f"{'row' if k < by_row else 'column'}: {t.words}" for k, t in enumerate(tests)]
    figure.suptitle("\n".join([title, *lines]), x=0.02, ha="left", parse_math=False)
    every = figure.subplots(n_grids, 1, squeeze=False)[:, 0]
    for output, axes in enumerate(every):
        axes.set_xticks(range(columns), [signs(k, len(tests) - by_row) for k in range(columns)])
        axes.set_yticks(range(rows), [signs(k, by_row) for k in range(rows)])
        axes.tick_params(length=0, labelsize=7, labeltop=True, labelbottom=False)
        if n_grids > 1:
            axes.set_ylabel(outputs[output], parse_math=False)
        leaves = None if values is None else values[output].reshape(rows, columns)
        _leaves(axes, rows, columns, leaves)
    return figure


def _leaves(axes: Any, rows: int, columns: int, leaves: FloatArray | None) -> None:
    """Fill a grid: blue raises a score, yellow lowers it. Without values it stays empty."""
    from matplotlib.colors import LinearSegmentedColormap

    scale = LinearSegmentedColormap.from_list("leaves", [LOWERS, "#ffffff", RAISES])
    largest = 1.0 if leaves is None else float(np.abs(leaves).max()) or 1.0
    shown = np.zeros((rows, columns)) if leaves is None else leaves
    axes.imshow(shown, cmap=scale, vmin=-largest, vmax=largest, aspect="auto")
    for row in range(1, rows):
        axes.axhline(row - 0.5, color="#999999", linewidth=0.5)
    for column in range(1, columns):
        axes.axvline(column - 0.5, color="#999999", linewidth=0.5)
    if leaves is not None and columns <= _MOST_NUMBERS:
        for row, column in np.ndindex(rows, columns):
            text = f"{leaves[row, column] + 0.0:.3g}"  # 0 rather than -0
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color="black")


def _importances(view: View) -> Any:
    from matplotlib.figure import Figure

    shown = view.importances[:_MOST_FEATURES]
    figure = Figure(figsize=(6, 1.0 + 0.25 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(shown)), [share for _, share in shown], color=RAISES)
    names = [f"{feature.name} ({feature.owner})" for feature, _ in shown]
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("share of all tests")
    axes.grid(axis="x")
    return figure


def _losses(losses: Sequence[float]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, color=RAISES, marker="o", markersize=3)
    axes.set_xlabel("tables")
    axes.set_ylabel("loss")
    axes.grid()
    count_on(axes.xaxis)
    return figure
