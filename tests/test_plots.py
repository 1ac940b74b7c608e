"""The common style of all plots: legends outside of the data, integer ticks, colours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence import figures
from benchmarks.evidence.measure import load

from privet.experiments.plots import (
    DARK_INK,
    PROTOCOL_COLOURS,
    apply_style,
    render_figure,
    use_integer_ticks,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SVG_FILES = sorted([*RESULTS.glob("*.svg"), *(ROOT / "docs" / "figures").glob("*.svg")])
COUNT_AXES = ("tables", "depth", "buckets", "participants", "features")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, str]]]:
    return {path.stem: load(path) for path in RESULTS.glob("*.csv")}


def _legends(figure: Any) -> list[Any]:
    return [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]


@pytest.mark.parametrize("name", figures.available(RESULTS))
def test_legends_ticks_and_colours(name: str, rows: dict[str, list[dict[str, str]]]) -> None:
    with apply_style():
        figure = figures._FIGURES[name][1](rows)
        figure.draw_without_rendering()
        data = [axes.get_window_extent() for axes in figure.axes]
        legends = _legends(figure)
        assert legends
        for legend in legends:
            for box in data:
                assert not legend.get_window_extent().overlaps(box)
        for axes in figure.axes:
            if axes.get_xlabel() in COUNT_AXES and axes.get_xscale() == "linear":
                low, high = axes.get_xlim()
                shown = [tick for tick in axes.get_xticks() if low <= tick <= high]
                assert shown
                assert all(float(tick).is_integer() for tick in shown)
            for line in axes.get_lines():
                protocol = str(line.get_label()).split(",")[0]
                if not protocol.startswith("_"):
                    assert line.get_color() == PROTOCOL_COLOURS[protocol], line.get_label()


@pytest.mark.parametrize("path", SVG_FILES, ids=lambda path: path.stem)
def test_svg_files_support_dark_mode(path: Path) -> None:
    text = path.read_text()
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<rect[^>]*(?:white|#fff)", text.lower())
    assert DARK_INK not in text.replace(f"svg{{color: {DARK_INK}}}", "")


def test_integer_ticks() -> None:
    from matplotlib.figure import Figure

    with apply_style():
        axes = Figure().subplots()
        axes.plot([1, 2, 3], [1, 2, 3])
        use_integer_ticks(axes.xaxis, [1, 2, 3])
        assert list(axes.get_xticks()) == [1, 2, 3]
        axes.plot([4_000, 8_000, 32_000], [1, 2, 3])
        use_integer_ticks(axes.xaxis, [4_000, 8_000, 32_000])  # the first two labels would overlap
        assert 4_000 not in axes.get_xticks()
        assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_rendering_is_deterministic() -> None:
    from matplotlib.figure import Figure

    def drawn() -> bytes:
        with apply_style():
            figure = Figure()
            figure.subplots().plot([1, 2])
            return render_figure(figure)

    assert drawn() == drawn()
