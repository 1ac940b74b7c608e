"""Plots of models, losses, importances and comparisons, with matplotlib.

All figures look alike. A protocol has one colour, wherever it is drawn. Legends stand beside the
data, and axes that count have whole numbers. SVG files have no background, and their text and axes
are dark or light as the reader's page asks for.
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
from privet.boosting.summary import SeenTest, View, signs
from privet.errors import ParameterError, UnavailableError
from privet.experiments.comparison import Comparison, Measured
from privet.filesystem import check_writable, make_folder, write_atomically

INK = "#202225"
"""Text and axes, on a light page."""
LIGHT_INK = "#d8dbe0"
"""The same, on a dark one."""
COLOURS = {"masked": "#1b83c9", "paper": "#d55e00", "plain": "#8a8f98", "catboost": "#009e73"}
"""Of protocols, and of what they are compared with: after Okabe and Ito, so that all can tell them
apart, and none too dark or too light for a page of either kind."""
RAISES, LOWERS = "#56b4e9", "#e69f00"
"""What adds to a score or speaks for something, and what takes from it."""
_THEME = (
    f"svg{{color: {INK}}}"
    f"@media (prefers-color-scheme: dark){{svg{{color: {LIGHT_INK}}}}}"
    "*{stroke-linejoin"
)


def check_matplotlib() -> None:
    """Raise UnavailableError unless figures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(
            "matplotlib, which draws figures, is not installed: pip install 'privet[plot]'"
        )


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw as all our figures are drawn."""
    import matplotlib as mpl

    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    look: Any = {
        "svg.hashsalt": "privet",
        "font.size": 9,
        "axes.facecolor": "none",
        "axes.spines.right": False,
        "axes.spines.top": False,
        "grid.color": "#8a8f98",
        "grid.alpha": 0.3,
        "legend.frameon": False,
        **dict.fromkeys(inked, INK),
    }
    with mpl.rc_context(look):
        yield


def image_of(figure: Any, kind: str = "svg") -> bytes:
    """Return a figure as a file's content, `svg` or `png`."""
    file = io.BytesIO()
    if kind != "svg":
        figure.savefig(file, format=kind, facecolor="white")
        return file.getvalue()
    figure.savefig(file, format=kind, facecolor="none", metadata={"Date": None})
    drawn = file.getvalue().decode().replace(INK, "currentColor")
    assert "*{stroke-linejoin" in drawn, "matplotlib writes its style in another way"
    return drawn.replace("*{stroke-linejoin", _THEME, 1).encode()


def legend_above(axes: Any, columns: int = 1) -> None:
    """Put a legend above the axes, where no data are."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, fontsize=8, borderpad=0.2
    )


def count_on(axis: Any, values: Iterable[float] = ()) -> None:
    """Have whole numbers on an axis: the values that there are, unless they are too close."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    ticks = sorted({*values})
    room = (ticks[-1] - ticks[0]) * len(f"{ticks[-1]:,.0f}") / 40 if ticks else 0
    close = any(high - low < room for low, high in pairwise(ticks))
    if ticks and not close and all(float(tick).is_integer() for tick in ticks):
        axis.set_ticks(ticks)
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def logarithmic(axes: Any, which: str) -> None:
    """Make axes logarithmic, `x`, `y` or `xy`, with numbers that people write."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))


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
