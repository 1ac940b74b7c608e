"""`privet simulate --compare`: what federating would gain, as a table, a figure and a report."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from privet.errors import ParameterError
from privet.files.atomic import check_writable
from privet.laboratory.comparison import Comparison, Measured, Progress, compare
from privet.laboratory.comparison_plot import check_plot, plot
from privet.laboratory.scenario import Scenario


def run_comparison(scenario: Scenario, splits: int, report: str | None, figure: str | None) -> None:
    """Compare, show what came out, and write what was asked for."""
    if report is not None:
        check_writable(report)
    if figure is not None:
        if report is not None and Path(report).resolve() == Path(figure).resolve():
            raise ParameterError(f"plot: {figure} is where the report goes; give another name")
        check_plot(figure)
    with ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def on_progress(progress: Progress) -> None:
            if not bar.tasks[0].visible:  # the first that is heard
                bar.console.print(
                    f"{progress.n_trainings} trainings of {scenario.params['tables']} tables, in "
                    f"the clear, over {splits} splits",
                    highlight=False,
                )
            now = min(progress.done + 1, progress.n_trainings)
            bar.update(
                task,
                completed=progress.share,
                description=f"training {now}/{progress.n_trainings}",
                visible=True,
            )

        found = compare(scenario, splits, on_progress)
    if report is not None:
        found.write(report)
    if figure is not None:
        plot(found, figure)
    _show(found)


def _show(comparison: Comparison) -> None:
    console = Console(highlight=False, markup=False)
    metric = comparison.metric
    smaller = " (smaller is better)" if metric in comparison.errors else ""
    measured = [group.metrics[metric] for group in comparison.groups]
    decimals = _decimals([value.mean for value in measured])
    table = Table(
        title=Text(
            f"{comparison.data}: {metric}{smaller} on {comparison.n_test_samples:,} test rows, "
            f"after {comparison.n_samples:,} training rows"
        ),
        title_justify="left",
    )
    table.add_column("who")
    for name in ("columns", metric, f"gain over {comparison.active} alone"):
        table.add_column(name, justify="right")
    for group, value in zip(comparison.groups, measured, strict=True):
        gain = group.gains.get(metric)
        table.add_row(
            comparison.describe(group),
            str(group.n_columns),
            _in_words(value, decimals),
            "" if gain is None else _in_words(gain, decimals, "+"),
        )
    console.print(table)
    gained = f"A gain is how much smaller {metric} gets. One" if smaller else "A gain"
    for text in (
        comparison.reference,
        comparison.method,
        f"{gained} whose interval holds 0 may be none.",
    ):
        console.print(text)


def _decimals(means: list[float | None]) -> int:
    """Return how many decimals show four digits of the largest."""
    largest = max((abs(mean) for mean in means if mean), default=1.0)
    return max(0, 3 - math.floor(math.log10(largest)))


def _in_words(value: Measured, decimals: int, sign: str = "") -> str:
    if value.mean is None or value.high is None:
        return "undefined: a class has no row"
    return f"{value.mean:{sign},.{decimals}f} ± {value.high - value.mean:,.{decimals}f}"
