"""The plots, drawn from the CSVs as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.evidence.measure import load
from benchmarks.evidence.model import by_paper, has_time, predicted
from privet.experiments.plots import (
    DARK_INK,
    PROTOCOL_COLOURS,
    apply_style,
    put_legend_above,
    render_figure,
    use_integer_ticks,
    use_log_scale,
)

MARKS = ("o", "s", "^", "D", "v", "P", "x", "*")
Point = dict[str, str]
Points = Sequence[tuple[float, float]]


def draw(folder: Path) -> list[str]:
    """Draw every plot with measured rows; return the names."""
    found = {path.stem: load(path) for path in sorted(folder.glob("*.csv"))}
    names = available(folder)
    for name in names:
        with apply_style():
            save(_FIGURES[name][1](found), folder / f"{name}.svg")
    return names


def available(folder: Path) -> list[str]:
    """Return the names of plots with measured rows."""
    return [name for name, (section, _) in _FIGURES.items() if (folder / f"{section}.csv").exists()]


def save(figure: Any, path: Path) -> None:
    """Write a plot as SVG."""
    path.write_bytes(render_figure(figure))


def panels(columns: int, rows: int = 1, size: tuple[float, float] = (3.6, 3.0)) -> tuple[Any, Any]:
    """Return a figure and the grid of its axes."""
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def line(axes: Any, protocol: str, label: str, points: Points, **look: Any) -> None:
    """Draw one line in the colour of its protocol."""
    points = sorted(points)
    drawn = {"color": PROTOCOL_COLOURS[protocol], "marker": "o", "markersize": 4, **look}
    axes.plot([x for x, _ in points], [y for _, y in points], label=label, **drawn)


def _learning(found: dict[str, list[Point]]) -> Any:
    rows = found["learning"]
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, (line_of_axes,) = panels(len(names))
    for axes, data in zip(line_of_axes, names, strict=True):
        regression = any(row["data"] == data and row.get("rmse") for row in rows)
        tables = max(float(row["table"]) for row in rows if row["data"] == data)
        marks = dict(zip(("plain", "paper", "masked", "catboost"), MARKS, strict=False))
        for protocol, mark in marks.items():
            points = [
                (float(r["table"]), float(r["rmse"]) if regression else 1 - float(r["accuracy"]))
                for r in rows
                if (r["data"], r["protocol"]) == (data, protocol)
            ]
            # `masked` mostly covers this line.
            wide = {"linewidth": 6, "alpha": 0.5} if protocol == "plain" else {}
            few = {"marker": mark} if tables <= 20 else {"marker": ""}
            line(axes, protocol, protocol, points, **{**few, **wide})
        axes.set(title=data, xlabel="tables", ylabel="RMSE" if regression else "test error")
        axes.grid()
        use_integer_ticks(axes.xaxis)
    figure.legend(*line_of_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _both(
    section: str, column: str, label: str, *, log: bool = False, against_paper: bool = False
) -> Callable[[dict[str, list[Point]]], Any]:
    """Return a function that draws measured and predicted time and traffic by one quantity."""

    def function(found: dict[str, list[Point]]) -> Any:
        rows = found[section]
        figure, ((left, right),) = panels(2)
        values = [float(row[column]) for row in rows]
        measured = [(x, float(row["seconds"])) for x, row in zip(values, rows, strict=True)]
        model = [(x, predicted(row).total) for x, row in zip(values, rows, strict=True)]
        line(left, "masked", "masked, measured", measured)
        line(left, "masked", "masked, cost model", model, linestyle="--", marker="x")
        traffic = [
            (float(r[column]), (float(r["online_bytes"]) + float(r["setup_bytes"])) / 1e6)
            for r in rows
        ]
        offline = [(float(row[column]), float(row["offline_bytes"]) / 1e6) for row in rows]
        line(right, "masked", "masked, between participants", traffic)
        line(right, "masked", "masked, from the dealer", offline, linestyle=":", marker="s")
        if against_paper:
            theirs = [(float(row[column]), *by_paper(row)) for row in rows]
            dashed = {"linestyle": "--", "marker": "x"}
            line(left, "paper", "paper, cost model", [(x, t.total) for x, _, t in theirs], **dashed)
            sent = [(x, cost.online_bytes / 1e6) for x, cost, _ in theirs]
            line(right, "paper", "paper, between participants", sent)
        left.set(xlabel=label, ylabel="seconds")
        right.set(xlabel=label, ylabel="MB")
        for axes in (left, right):
            axes.grid()
            if log:
                use_log_scale(axes, "xy")
            else:
                use_integer_ticks(axes.xaxis, values)
                use_log_scale(axes, "y") if against_paper else axes.set_ylim(bottom=0)
            put_legend_above(axes)
        return figure

    return function


def _parameters(data: str) -> Callable[[dict[str, list[Point]]], Any]:
    """Return a function that draws time by depth, buckets and tables, for some sample counts."""

    def function(found: dict[str, list[Point]]) -> Any:
        figure, (line_of_axes,) = panels(3)
        for axes, column in zip(line_of_axes, ("depth", "buckets", "tables"), strict=True):
            rows = [row for row in found.get(column, []) if row["data"] == data]
            for number, samples in enumerate(sorted({int(row["samples"]) for row in rows})):
                points = [
                    (float(row[column]), float(row["seconds"]))
                    for row in rows
                    if int(row["samples"]) == samples
                ]
                look = {"linestyle": ("-", "--", "-.", ":")[number % 4], "marker": MARKS[number]}
                line(axes, "masked", f"masked, N = {samples:,}", points, **look)
            axes.set(xlabel=column, ylabel="seconds", ylim=(0, None))
            axes.grid()
            use_integer_ticks(axes.xaxis, [float(row[column]) for row in rows])
        handles = line_of_axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4)
        figure.suptitle(data)
        return figure

    return function


def _model(found: dict[str, list[Point]]) -> Any:
    figure, ((axes,),) = panels(1, size=(6.4, 4.0))
    sections = [name for name, rows in found.items() if has_time(rows[0])]
    for number, section in enumerate(sections):
        for protocol in ("masked", "paper"):
            rows = [row for row in found[section] if row["protocol"] == protocol]
            if rows:
                axes.plot(
                    [float(row["seconds"]) for row in rows],
                    [predicted(row).total for row in rows],
                    linestyle="",
                    marker=MARKS[number % len(MARKS)],
                    color=PROTOCOL_COLOURS[protocol],
                    markersize=4,
                    fillstyle="full" if number < len(MARKS) else "none",
                    label=f"{protocol}, by {section}" if section != "efficiency" else protocol,
                )
    _, high = axes.get_xlim()
    axes.plot([1, high], [1, high], color=DARK_INK, linewidth=0.8)
    axes.set(xlabel="measured seconds", ylabel="cost model's seconds")
    use_log_scale(axes, "xy")
    axes.grid()
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


_FIGURES: dict[str, tuple[str, Callable[[dict[str, list[Point]]], Any]]] = {
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
