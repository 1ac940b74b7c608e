"""Growth of both protocols with rows, features, buckets, depth, tables and participants.

    python -m benchmarks.growth [--quick]

The paper's Figs. 6 to 9 show time and traffic by N, J, D, B and T for its protocol. Here rounds and
bytes are counted for both, at its sizes (Syn A), without training: the counts are exact. Seconds
are measured, processes on loopback, at sizes so small that all runs together take minutes; there
the counts are compared with what the meters found.

Writes docs/results/growth.json and docs/figures/growth.svg (a quick run: build/quick).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.measure import measure
from benchmarks.evidence.model import counted
from benchmarks.evidence.rows import Row

NAME = "growth"
PROTOCOLS = ("paper", "masked")
LABELS = {
    "samples": "training rows, N",
    "features": "features, J",
    "buckets": "buckets, B",
    "depth": "depth, D",
    "tables": "tables, T",
    "parties": "participants, n",
}
Sizes = dict[str, int]
Values = dict[str, tuple[int, ...]]

COUNTED: Sizes = {
    "samples": 10_000,
    "features": 80,
    "buckets": 32,
    "depth": 2,
    "tables": 10,
    "parties": 4,
}
"""Syn A's sizes; one of them varies at a time."""
COUNTED_VALUES: Values = {
    "samples": (4000, 8000, 12_000, 16_000),
    "features": (20, 40, 60, 80),
    "buckets": (8, 16, 32, 64),
    "depth": (2, 3, 4, 5),
    "tables": (5, 10, 15, 20, 25),
    "parties": (2, 4, 6, 8),
}
TIMED: Sizes = {
    "samples": 4000,
    "features": 16,
    "buckets": 32,
    "depth": 3,
    "tables": 2,
    "parties": 4,
}
TIMED_VALUES: Values = {
    "samples": (4000, 8000, 16_000, 32_000),
    "features": (8, 16, 32, 64),
    "buckets": (8, 16, 32, 64),
    "depth": (2, 3, 4, 5),
    "tables": (1, 2, 4, 8),
    "parties": (2, 4, 6, 8),
}
TIMES = 3
"""Trainings of each size: other work on the machine slows some of them down."""
_QUICK = {**TIMED, "samples": 200, "buckets": 8, "depth": 2, "tables": 1}
_QUICK_VALUES: Values = {"features": (4, 8), "parties": (2, 3)}


def count(sizes: Sizes, protocol: str) -> Figures:
    """Return the rounds and bytes of a training of these sizes."""
    row = {"task": "regression", **{name: str(value) for name, value in sizes.items()}}
    cost = counted(row, protocol)
    return {"rounds": cost.rounds, "bytes": cost.online_bytes, "dealt_bytes": cost.offline_bytes}


def clock(sizes: Sizes, protocol: str, times: int) -> Figures:
    """Train on made rows of these sizes, on loopback; return the least seconds and the counts."""
    row = Row(section=NAME, key="", data="long", protocol=protocol, network="loopback", **sizes)
    figures = count(sizes, protocol)
    seconds = []
    for _ in range(times):
        (found,) = measure(row)
        sent = found["online_bytes"] + found["setup_bytes"]
        measured = {"rounds": found["rounds"], "bytes": sent, "dealt_bytes": found["offline_bytes"]}
        if measured != figures:
            raise ArithmeticError(f"{protocol}, {sizes}: counted {figures}, found {measured}")
        seconds.append(found["setup_seconds"] + found["online_seconds"])
    return {**figures, "seconds": min(seconds)}


def sweep(function: Callable[[Sizes, str], Figures], base: Sizes, values: Values) -> list[Figures]:
    """Return a row for every protocol and every value of every quantity."""
    found = []
    for name, series in values.items():
        for value in series:
            for protocol in PROTOCOLS:
                figures = function({**base, name: value}, protocol)
                found.append({"by": name, "value": value, "protocol": protocol, **figures})
                print(found[-1], flush=True)
    return found


def main() -> int:
    """Count, measure, draw, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few and small trainings")
    quick = parser.parse_args().quick
    base, values, times = (_QUICK, _QUICK_VALUES, 1) if quick else (TIMED, TIMED_VALUES, TIMES)
    rows: Figures = {
        "counted_sizes": COUNTED,
        "counted": sweep(count, COUNTED, COUNTED_VALUES),
        "timed_sizes": base,
        "times": times,
        "timed": sweep(partial(clock, times=times), base, values),
    }
    path = results(quick) / f"{NAME}.json"
    rows["run_seconds"] = time.perf_counter() - started
    figures = keep(path, rows, "make bench-growth")
    folder = path.parents[1] / "figures"
    folder.mkdir(exist_ok=True)
    draw(folder / NAME, figures)
    print(wrapped(section(figures)))
    return 0


def draw(path: Path, figures: Figures) -> None:
    """Draw rounds, traffic and seconds by every quantity, for both protocols."""
    from benchmarks.evidence.figures import line, panels, save
    from privet.experiments.plots import apply_style, use_integer_ticks

    shown: tuple[tuple[str, str, str, float], ...] = (
        ("counted", "rounds", "rounds", 1),
        ("counted", "bytes", "MB between participants", 1e6),
        ("counted", "dealt_bytes", "MB from the dealer", 1e6),
        ("timed", "seconds", "seconds, small sizes", 1),
    )
    with apply_style():
        figure, grid = panels(len(shown), len(LABELS), size=(2.8, 2.2))
        for (by, label), line_of_axes in zip(LABELS.items(), grid, strict=True):
            for (rows, key, title, unit), axes in zip(shown, line_of_axes, strict=True):
                by_quantity = [row for row in figures[rows] if row["by"] == by]
                for protocol in PROTOCOLS:
                    by_protocol = [row for row in by_quantity if row["protocol"] == protocol]
                    points = [(row["value"], row[key] / unit) for row in by_protocol]
                    line(axes, protocol, protocol, points)
                axes.set(xlabel=label, ylabel=title, ylim=(0, None))
                axes.grid()
                use_integer_ticks(axes.xaxis, [row["value"] for row in by_quantity])
        handles = grid[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=2)
        save(figure, path.with_suffix(".svg"))


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Growth, both protocols (Figs. 6 to 9)\n"
    yield (
        f"One quantity varies; the others are {_words(figures['counted_sizes'])}, as in the "
        "paper's Fig. 6. Rounds and bytes are counted, exactly, for a whole training; MB is what "
        "participants send each other, setup included, and what the dealer sends. Seconds are "
        "setting up and all tables, on loopback with all processes on one machine, the fastest "
        f"of {figures['times']}; where they do not vary, sizes are then "
        f"{_words(figures['timed_sizes'])}. All runs took {figures['run_seconds'] / 60:.1f} "
        f"minutes. {where(figures)}\n"
    )
    yield "![Growth by N, J, B, D, T and n](figures/growth.svg)\n"
    head = ["", *(f"`{name}`, {what}" for what in _WHAT for name in PROTOCOLS)]
    body = [
        [f"{LABELS[by].split(', ')[1]} = {value:,}", *cells]
        for (by, value), cells in _cells(figures["counted"])
    ]
    yield from table(head, body)
    body = [
        [
            LABELS[by],
            protocol,
            ", ".join(
                f"{row['value']:,}: {row['seconds']:.2f}"
                for row in figures["timed"]
                if (row["by"], row["protocol"]) == (by, protocol)
            ),
        ]
        for by in dict.fromkeys(row["by"] for row in figures["timed"])
        for protocol in PROTOCOLS
    ]
    yield from table(("by", "protocol", "seconds"), body)


_WHAT = {"rounds": ("rounds", 1.0), "MB": ("bytes", 1e6), "MB dealt": ("dealt_bytes", 1e6)}


def _words(sizes: Sizes) -> str:
    """Return sizes in the paper's letters."""
    return ", ".join(f"{LABELS[name].split(', ')[1]} = {v:,}" for name, v in sizes.items())


def _cells(rows: list[Figures]) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """Yield quantity and value, and the figures of all protocols there."""
    for by, value in dict.fromkeys((row["by"], row["value"]) for row in rows):
        by_protocol = {r["protocol"]: r for r in rows if (r["by"], r["value"]) == (by, value)}
        yield (
            (by, value),
            [
                f"{by_protocol[protocol][key] / unit:,.0f}"
                for key, unit in _WHAT.values()
                for protocol in PROTOCOLS
            ],
        )


if __name__ == "__main__":
    sys.exit(main())
