"""Plots of models, losses, importances and comparisons, with matplotlib.

All plots have the same style. Each protocol has one colour in all plots. Legends are outside of
the data, and axes of counts have integer ticks. SVG files have no background, and their text and
axes are dark or light, depending on the colour scheme of the reader's page.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.summary import ModelSummary, SplitSummary, format_leaf_path
from privet.errors import ParameterError, UnavailableError
from privet.experiments.comparison import Comparison, Measurement
from privet.filesystem import check_writable, make_folder, write_atomically

DARK_INK = "#202225"
"""The colour of text and axes on a light page."""
LIGHT_INK = "#d8dbe0"
"""The colour of text and axes on a dark page."""
PROTOCOL_COLOURS = {
    "masked": "#1b83c9",
    "paper": "#d55e00",
    "plain": "#8a8f98",
    "catboost": "#009e73",
}
"""The colours of protocols and of CatBoost: based on Okabe and Ito's, which readers with colour
blindness can distinguish, and legible on light and dark pages."""
POSITIVE_COLOUR, NEGATIVE_COLOUR = "#56b4e9", "#e69f00"
"""The colours of values that increase a score, and of values that decrease it."""
_THEME = (
    f"svg{{color: {DARK_INK}}}"
    f"@media (prefers-color-scheme: dark){{svg{{color: {LIGHT_INK}}}}}"
    "*{stroke-linejoin"
)


def check_matplotlib() -> None:
    """Raise UnavailableError unless matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(
            "matplotlib, which draws figures, is not installed: pip install 'privet[plot]'"
        )


@contextlib.contextmanager
def apply_style() -> Iterator[None]:
    """Apply the common style of all plots."""
    import matplotlib as mpl

    ink_keys = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: Any = {
        "svg.hashsalt": "privet",
        "font.size": 9,
        "axes.facecolor": "none",
        "axes.spines.right": False,
        "axes.spines.top": False,
        "grid.color": "#8a8f98",
        "grid.alpha": 0.3,
        "legend.frameon": False,
        **dict.fromkeys(ink_keys, DARK_INK),
    }
    with mpl.rc_context(style):
        yield


def render_figure(figure: Any, image_format: str = "svg") -> bytes:
    """Return a figure as the content of an `svg` or `png` file."""
    file = io.BytesIO()
    if image_format != "svg":
        figure.savefig(file, format=image_format, facecolor="white")
        return file.getvalue()
    figure.savefig(file, format=image_format, facecolor="none", metadata={"Date": None})
    drawn = file.getvalue().decode().replace(DARK_INK, "currentColor")
    assert "*{stroke-linejoin" in drawn, "matplotlib has changed the style element of its SVG files"
    return drawn.replace("*{stroke-linejoin", _THEME, 1).encode()


def put_legend_above(axes: Any, columns: int = 1) -> None:
    """Put a legend above the axes, outside of the data."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, fontsize=8, borderpad=0.2
    )


def use_integer_ticks(axis: Any, values: Iterable[float] = ()) -> None:
    """Use integer ticks on an axis: the given values, unless their labels would overlap."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    ticks = sorted({*values})
    label_width = (ticks[-1] - ticks[0]) * len(f"{ticks[-1]:,.0f}") / 40 if ticks else 0
    close = any(high - low < label_width for low, high in pairwise(ticks))
    if ticks and not close and all(float(tick).is_integer() for tick in ticks):
        axis.set_ticks(ticks)
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def use_log_scale(axes: Any, axis_names: str) -> None:
    """Make axes logarithmic, `x`, `y` or `xy`, with plain decimal tick labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for name in axis_names:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))


_MAX_LABELLED_COLUMNS = 8
"""The most columns of a grid whose cells contain the leaf values as text."""
_MAX_FEATURES = 40


def plot_model(
    summary: ModelSummary, folder: str | Path, losses: Sequence[float] = ()
) -> list[Path]:
    """Write plots of a model summary to a folder, as SVG; return their paths."""
    check_matplotlib()
    digits = len(str(len(summary.tables)))
    with apply_style():
        figures = {"importances": _draw_importances(summary)}
        if losses:
            figures["loss"] = _draw_losses(losses)
        paths = [_write(Path(folder), name, figure) for name, figure in figures.items()]
        for number, splits in enumerate(summary.tables, start=1):
            values = None if summary.leaf_values is None else summary.leaf_values[number - 1]
            figure = _draw_table(f"table {number}", splits, values, summary.outputs)
            paths.append(_write(Path(folder), f"table-{number:0{digits}}", figure))
    return paths


def _write(folder: Path, name: str, figure: Any) -> Path:
    path = make_folder(folder) / f"{name}.svg"
    write_atomically(path, render_figure(figure))
    return path


def _draw_table(
    title: str, splits: Sequence[SplitSummary], values: FloatArray | None, outputs: Sequence[str]
) -> Any:
    """Draw a table as a grid of leaves: its first splits select the row, the others the column.

    `values` are the leaf values, (outputs, 2^depth), if known; `outputs` are the names of the
    outputs.
    """
    from matplotlib.figure import Figure

    by_row = len(splits) // 2
    rows, columns = 1 << by_row, 1 << (len(splits) - by_row)
    n_grids = 1 if values is None else len(values)
    width, height = max(5.0, 0.7 * columns), max(1.2, 0.4 * rows)
    title_height = 0.5 + 0.18 * len(splits)
    figure = Figure(figsize=(width, title_height + n_grids * (height + 0.5)), layout="constrained")
    lines = [f"{'row' if k < by_row else 'column'}: {t.text}" for k, t in enumerate(splits)]
    figure.suptitle("\n".join([title, *lines]), x=0.02, ha="left", parse_math=False)
    all_axes = figure.subplots(n_grids, 1, squeeze=False)[:, 0]
    for output, axes in enumerate(all_axes):
        axes.set_xticks(
            range(columns), [format_leaf_path(k, len(splits) - by_row) for k in range(columns)]
        )
        axes.set_yticks(range(rows), [format_leaf_path(k, by_row) for k in range(rows)])
        axes.tick_params(length=0, labelsize=7, labeltop=True, labelbottom=False)
        if n_grids > 1:
            axes.set_ylabel(outputs[output], parse_math=False)
        leaves = None if values is None else values[output].reshape(rows, columns)
        _draw_leaves(axes, rows, columns, leaves)
    return figure


def _draw_leaves(axes: Any, rows: int, columns: int, leaves: FloatArray | None) -> None:
    """Fill a grid: blue increases a score, yellow decreases it. Without values, leave it empty."""
    from matplotlib.colors import LinearSegmentedColormap

    scale = LinearSegmentedColormap.from_list(
        "leaves", [NEGATIVE_COLOUR, "#ffffff", POSITIVE_COLOUR]
    )
    largest = 1.0 if leaves is None else float(np.abs(leaves).max()) or 1.0
    shown = np.zeros((rows, columns)) if leaves is None else leaves
    axes.imshow(shown, cmap=scale, vmin=-largest, vmax=largest, aspect="auto")
    for row in range(1, rows):
        axes.axhline(row - 0.5, color="#999999", linewidth=0.5)
    for column in range(1, columns):
        axes.axvline(column - 0.5, color="#999999", linewidth=0.5)
    if leaves is not None and columns <= _MAX_LABELLED_COLUMNS:
        for row, column in np.ndindex(rows, columns):
            text = f"{leaves[row, column] + 0.0:.3g}"  # 0 rather than -0
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color="black")


def _draw_importances(summary: ModelSummary) -> Any:
    from matplotlib.figure import Figure

    shown = summary.importances[:_MAX_FEATURES]
    figure = Figure(figsize=(6, 1.0 + 0.25 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(shown)), [share for _, share in shown], color=POSITIVE_COLOUR)
    names = [f"{feature.name} ({feature.owner})" for feature, _ in shown]
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("share of all tests")
    axes.grid(axis="x")
    return figure


def _draw_losses(losses: Sequence[float]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, color=POSITIVE_COLOUR, marker="o", markersize=3)
    axes.set_xlabel("tables")
    axes.set_ylabel("loss")
    axes.grid()
    use_integer_ticks(axes.xaxis)
    return figure


PLOT_FORMATS = (".svg", ".png")
_BASELINE_COLOUR, _GAIN_COLOUR = DARK_INK, POSITIVE_COLOUR


def check_plot_path(path: str | Path) -> None:
    """Raise an error unless a plot can be written to the path, before a long computation."""
    if Path(path).suffix.lower() not in PLOT_FORMATS:
        raise ParameterError(f"plot: {path} ends in none of {', '.join(PLOT_FORMATS)}")
    check_matplotlib()
    check_writable(path)


def plot_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write a plot of a comparison as SVG or PNG, by the file's suffix."""
    check_plot_path(path)
    from matplotlib.figure import Figure

    name = comparison.metric
    metrics = [group.metrics[name] for group in comparison.groups]
    gains = [group.gains.get(name) for group in comparison.groups]
    with apply_style():
        figure = Figure(figsize=(8, 1.4 + 0.35 * len(metrics)), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_intervals(left, metrics)
        _draw_intervals(right, gains)
        left.set_yticks(
            range(len(metrics)),
            [f"{comparison.describe(g)} ({g.n_columns} columns)" for g in comparison.groups],
        )
        left.invert_yaxis()
        left.set_xlabel(name + (", smaller is better" if name in comparison.errors else ""))
        right.set_xlabel(f"gain in {name} over {comparison.active} alone")
        right.axvline(0, color=_BASELINE_COLOUR, linewidth=0.8)
        figure.suptitle(
            f"{comparison.data}: mean over {len(comparison.seeds)} splits and "
            f"{comparison.confidence:.0%} interval"
        )
        content = render_figure(figure, Path(path).suffix.lower()[1:])
    write_atomically(path, content)


def _draw_intervals(axes: Any, measurements: Sequence[Measurement | None]) -> None:
    """Draw each mean with its interval in a separate row; skip undefined ones."""
    axes.grid(axis="x")
    axes.locator_params(axis="x", nbins=6)
    for row, value in enumerate(measurements):
        if value is None or value.mean is None or value.low is None or value.high is None:
            continue
        half = [[value.mean - value.low], [value.high - value.mean]]
        colour = _GAIN_COLOUR if row else _BASELINE_COLOUR
        axes.errorbar(value.mean, row, xerr=half, fmt="o", color=colour, capsize=3, markersize=4)
