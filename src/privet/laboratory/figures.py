"""Figures by matplotlib, which may not be installed: the same content gives the same file.

All figures look alike. A protocol has one colour, wherever it is drawn. Legends stand beside the
data, and axes that count have whole numbers. SVG files have no background, and their text and axes
are dark or light as the reader's page asks for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from privet.errors import UnavailableError

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
