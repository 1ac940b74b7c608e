"""The figures, drawn from the CSVs: SVG and PNG, in colours that everybody can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks.evidence.measure import load
from benchmarks.evidence.model import by_paper, has_time, predicted

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "privet"  # the same figures give the same files
plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 120})

# Okabe and Ito's palette; each line also has a mark of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "x")
Point = dict[str, str]


def draw(folder: Path) -> list[str]:
    """Draw every figure that there are rows for; return their names."""
    found = {path.stem: load(path) for path in sorted(folder.glob("*.csv"))}
    names = available(folder)
    for name in names:
        _FIGURES[name][1](folder / name, found)
    return names


def available(folder: Path) -> list[str]:
    """Return the figures that there are rows for."""
    return [name for name, (section, _) in _FIGURES.items() if (folder / f"{section}.csv").exists()]


def save(figure: Any, path: Path) -> None:
    """Write a figure, as SVG and as PNG."""
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"))
    plt.close(figure)


def line(
    axes: Any, number: int, label: str, points: Sequence[tuple[float, float]], **more: Any
) -> None:
    """Draw one line, in the colour and with the mark of its number."""
    points = sorted(points)
    style = {"color": COLOURS[number % 7], "marker": MARKS[number % 7], "markersize": 4, **more}
    axes.plot([x for x, _ in points], [y for _, y in points], label=label, **style)


def _learning(path: Path, found: dict[str, list[Point]]) -> None:
    rows = found["learning"]
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3), squeeze=False)
    for axes, data in zip(panels[0], names, strict=True):
        regression = any(row["data"] == data and row.get("rmse") for row in rows)
        for number, protocol in enumerate(("plain", "paper", "masked", "catboost")):
            points = [
                (float(r["table"]), float(r["rmse"]) if regression else 1 - float(r["accuracy"]))
                for r in rows
                if (r["data"], r["protocol"]) == (data, protocol)
            ]
            if points:
                # Others lie upon it, mostly.
                wide = {"linewidth": 5, "alpha": 0.4} if protocol == "plain" else {}
                line(axes, number, protocol, points, **wide)
        axes.set(title=data, xlabel="tables", ylabel="RMSE" if regression else "test error")
        axes.legend()
    save(figure, path)


def _both(
    section: str, column: str, label: str, *, log: bool = False, against_paper: bool = False
) -> Callable[[Path, dict[str, list[Point]]], None]:
    """Return what draws runtime and traffic by one quantity, measured and predicted."""

    def function(path: Path, found: dict[str, list[Point]]) -> None:
        rows = found[section]
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3))
        measured = [(float(row[column]), float(row["seconds"])) for row in rows]
        model = [(float(row[column]), predicted(row).total) for row in rows]
        line(left, 0, "masked, measured", measured)
        line(left, 1, "masked, cost model", model)
        left.set(xlabel=label, ylabel="seconds")
        traffic = [
            (float(r[column]), (float(r["online_bytes"]) + float(r["setup_bytes"])) / 1e6)
            for r in rows
        ]
        offline = [(float(row[column]), float(row["offline_bytes"]) / 1e6) for row in rows]
        line(right, 0, "masked, between participants", traffic)
        line(right, 2, "masked, from the dealer", offline)
        if against_paper:
            theirs = [(float(row[column]), *by_paper(row)) for row in rows]
            line(left, 3, "paper's protocol, cost model", [(x, t.total) for x, _, t in theirs])
            sent = [(x, cost.online / 1e6) for x, cost, _ in theirs]
            line(right, 3, "paper's protocol, between participants", sent)
        right.set(xlabel=label, ylabel="MB")
        for axes in (left, right):
            if log or against_paper:
                axes.set(yscale="log")
                axes.set_ylim(top=5 * axes.get_ylim()[1])  # room for the legend
            else:
                axes.set_ylim(bottom=0)
            axes.set(xscale="log") if log else axes.locator_params(axis="x", nbins=5)
            axes.legend(fontsize=7, loc="upper left")
        save(figure, path)

    return function


def _parameters(data: str) -> Callable[[Path, dict[str, list[Point]]], None]:
    """Return what draws runtime by depth, buckets and tables, for some numbers of samples."""

    def function(path: Path, found: dict[str, list[Point]]) -> None:
        figure, panels = plt.subplots(1, 3, figsize=(10.2, 3))
        for axes, column in zip(panels, ("depth", "buckets", "tables"), strict=True):
            rows = [row for row in found.get(column, []) if row["data"] == data]
            for number, samples in enumerate(sorted({int(row["samples"]) for row in rows})):
                points = [
                    (float(row[column]), float(row["seconds"]))
                    for row in rows
                    if int(row["samples"]) == samples
                ]
                line(axes, number, f"N = {samples:,}", points)
            axes.set(xlabel=column, ylabel="seconds", ylim=(0, None))
            axes.legend()
        figure.suptitle(data)
        save(figure, path)

    return function


def _model(path: Path, found: dict[str, list[Point]]) -> None:
    figure, axes = plt.subplots(figsize=(4.5, 4))
    sections = [name for name, rows in found.items() if has_time(rows[0])]
    for number, section in enumerate(sections):
        rows = found[section]
        axes.plot(
            [float(row["seconds"]) for row in rows],
            [predicted(row).total for row in rows],
            linestyle="",
            marker=MARKS[number % 7],
            color=COLOURS[number % 7],
            markersize=4,
            label=section,
        )
    _, high = axes.get_xlim()
    axes.plot([1, high], [1, high], color="0.6", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="measured seconds", ylabel="cost model")
    axes.legend(fontsize=7)
    save(figure, path)


_FIGURES: dict[str, tuple[str, Callable[[Path, dict[str, list[Point]]], None]]] = {
    "learning": ("learning", _learning),
    "samples": ("samples", _both("samples", "samples", "training samples", against_paper=True)),
    "features": ("features", _both("features", "features", "features", against_paper=True)),
    "syn-b": ("depth", _parameters("syn-b")),
    "syn-c": ("depth", _parameters("syn-c")),
    "parties": ("parties", _both("parties", "parties", "participants")),
    "delay": ("delay", _both("delay", "delay_ms", "one-way delay, ms")),
    "wide": ("wide", _both("wide", "features", "features", log=True)),
    "long": ("long", _both("long", "samples", "training samples", log=True)),
    "cost-model": ("efficiency", _model),
}
