"""What an experiment found and took, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.boosting.model import Model
from privet.federation.party_report import Reveal, ValidationReport
from privet.laboratory.report import Report

_TABLES_SHOWN = 10
_PLACES = {
    "ahead": "correlations dealt ahead",
    "own": "dealer on a link of its own",
    "shared": "dealer on the shared link",
}


def show_experiment(model: Model, report: Report) -> None:
    """Show what was learned, how good it is, and what it cost."""
    console = Console()
    tests = Table(title="Learned tests", title_justify="left")
    tests.add_column("table", justify="right")
    for level in range(model.depth):
        tests.add_column(f"level {level}", overflow="fold")
    for table in range(min(model.n_tables, _TABLES_SHOWN)):
        tests.add_row(
            str(table + 1), *(Text(_in_words(model, table, level)) for level in range(model.depth))
        )
    console.print(tests)
    if model.n_tables > _TABLES_SHOWN:
        console.print(f"and {model.n_tables - _TABLES_SHOWN} more tables (--save, --report)")

    console.print(
        f"\n{report.data}: {report.n_samples} training rows, {report.n_features} features over "
        f"{report.n_parties} parties, protocol {report.protocol}, "
        f"trained in {report.seconds.train:.2f} s",
        highlight=False,
        markup=False,
    )
    if len(report.classes) > 2:
        console.print(
            f"{len(report.classes)} classes: {', '.join(map(repr, report.classes))}",
            highlight=False,
            markup=False,
        )
    elif report.classes:
        *others, positive = report.classes
        console.print(
            f"positive class: {positive!r}, not {' or '.join(map(repr, others))} (--positive)",
            highlight=False,
            markup=False,
        )
    if report.validation is not None:
        _show_validation(console, report.validation, model.n_tables)
    for warning in report.warnings:
        console.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
    metrics = Table()
    metrics.add_column(f"on {report.n_test_samples} test rows")
    metrics.add_column("value", justify="right")
    secure = report.protocol != "plain"
    if secure:
        metrics.add_column("plain", justify="right")
    for name, value in report.metrics.items():
        plain = [_metric(report.plain_metrics[name])] if secure else []
        metrics.add_row(name, _metric(value), *plain)
    console.print(metrics)
    if secure:
        _show_costs(console, report)


def _show_validation(console: Console, found: ValidationReport, kept: int) -> None:
    """Show the loss on validation rows, and how many tables are kept by it."""
    losses, best = found.losses, found.best_table
    console.print(
        f"validation loss on {found.rows} rows {losses[-1]:.5f}, best at table {best} "
        f"({losses[best - 1]:.5f}); {kept} of {len(losses)} tables are kept",
        highlight=False,
    )
    if found.metrics:
        metrics = Table()
        metrics.add_column(f"on {found.rows} validation rows")
        metrics.add_column("value", justify="right")
        for name, value in found.metrics.items():
            metrics.add_row(name, _metric(value))
        console.print(metrics)


def _metric(value: float | None) -> str:
    return "undefined: a class has no row" if value is None else f"{value:.4f}"


def _show_costs(console: Console, report: Report) -> None:
    """Show what a secure training took, and what left it in the clear."""
    seconds, sizes, rounds = report.seconds, report.bytes, report.rounds
    costs = Table(title=f"Training over network {report.network}", title_justify="left")
    for name in ("", "time", "sent", "rounds"):
        costs.add_column(name, justify="right" if name else "left")
    dealt = "offline (dealt ahead)" if report.dealer == "ahead" else "offline (dealer)"
    rows: tuple[tuple[str, float, int, str], ...] = (
        ("setup", seconds.setup, sizes.setup_total, ""),
        ("online", seconds.online, sizes.online_total, f"{rounds.total:,}"),
        (dealt, seconds.ahead or seconds.offline, sizes.offline_total, ""),
    )
    if sizes.between_dealers:
        rows += (("between dealers", seconds.offline, sizes.between_dealers, ""),)
    for name, time, size, count in rows:
        costs.add_row(name, f"{time:.2f} s", f"{size / 1e6:,.1f} MB", count)
    console.print(costs)
    if report.estimated_seconds is not None:
        times = Table(title="Time by where the dealer is", title_justify="left")
        for name in ("", "estimated", "measured"):
            times.add_column(name, justify="right" if name else "left")
        for dealer, estimated in report.estimated_seconds.model_dump().items():
            measured = f"{seconds.train:.1f} s" if dealer == report.dealer else ""
            times.add_row(_PLACES[dealer], f"{estimated:.1f} s", measured)
        console.print(times)
    told = Table(title="Revealed", title_justify="left")
    for name in ("what", "to", "how many"):
        told.add_column(name, justify="right" if name == "how many" else "left")
    for reveal in report.reveals:
        told.add_row(reveal.what, _whom(reveal, report.n_parties), f"{reveal.count:,}")
    console.print(told)


def _whom(reveal: Reveal, n_parties: int) -> str:
    if len(reveal.to) < n_parties:
        return ", ".join(reveal.to)
    return "all" if len(reveal.to) == n_parties else "all and the dealer"


def _in_words(model: Model, table: int, level: int) -> str:
    owner = model.features[model.feature[table, level]].owner
    return f"{model.describe_test(table, level)} ({owner})"
