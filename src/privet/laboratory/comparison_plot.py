"""A comparison as a figure: everybody's metric, and what it gains over the label's holder alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privet.errors import ParameterError
from privet.files.atomic import check_writable, write_atomically
from privet.laboratory.comparison import Comparison, Measured
from privet.laboratory.figures import INK, RAISES, check_matplotlib, image_of, style

FORMATS = (".svg", ".png")
_ALONE, _TOGETHER = INK, RAISES


def check_plot(path: str | Path) -> None:
    """Raise an error unless a figure can be drawn there, before minutes go into it."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ParameterError(f"plot: {path} ends in none of {', '.join(FORMATS)}")
    check_matplotlib()
    check_writable(path)


def plot(comparison: Comparison, path: str | Path) -> None:
    """Draw a comparison as SVG or PNG, by the name of the file."""
    check_plot(path)
    from matplotlib.figure import Figure

    name = comparison.metric
    metrics = [group.metrics[name] for group in comparison.groups]
    gains = [group.gains.get(name) for group in comparison.groups]
    with style():
        figure = Figure(figsize=(8, 1.4 + 0.35 * len(metrics)), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _bars(left, metrics)
        _bars(right, gains)
        left.set_yticks(
            range(len(metrics)),
            [f"{comparison.describe(g)} ({g.n_columns} columns)" for g in comparison.groups],
        )
        left.invert_yaxis()
        left.set_xlabel(name + (", smaller is better" if name in comparison.errors else ""))
        right.set_xlabel(f"gain in {name} over {comparison.active} alone")
        right.axvline(0, color=_ALONE, linewidth=0.8)
        figure.suptitle(
            f"{comparison.data}: mean over {len(comparison.seeds)} splits and "
            f"{comparison.confidence:.0%} interval"
        )
        content = image_of(figure, Path(path).suffix.lower()[1:])
    write_atomically(path, content)


def _bars(axes: Any, measured: Sequence[Measured | None]) -> None:
    """Draw each mean with its interval in a row of its own; leave out what is undefined."""
    axes.grid(axis="x")
    axes.locator_params(axis="x", nbins=6)
    for row, value in enumerate(measured):
        if value is None or value.mean is None or value.low is None or value.high is None:
            continue
        half = [[value.mean - value.low], [value.high - value.mean]]
        colour = _TOGETHER if row else _ALONE
        axes.errorbar(value.mean, row, xerr=half, fmt="o", color=colour, capsize=3, markersize=4)
