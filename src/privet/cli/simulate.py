"""`privet simulate`: one experiment on this machine, or a comparison of several."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as ProgressBar,
)
from rich.table import Table
from rich.text import Text

from privet.boosting.cost_estimate import Estimate
from privet.boosting.model import Model
from privet.boosting.simulation import PLAIN, protocols
from privet.cli.options import (
    Categorical,
    ClassWeights,
    Database,
    Dealers,
    Decimal,
    Drop,
    Encoding,
    Missing,
    Names,
    Positive,
    Query,
    Quote,
    Separator,
    Types,
    Weight,
    any_of,
    constraints_of,
    given,
    partition_of,
    table_of,
)
from privet.data.datasets import DATASETS
from privet.data.partition import N_PARTIES
from privet.errors import ParameterError
from privet.experiments.comparison import N_SPLITS, Comparison, Measured, Progress, compare
from privet.experiments.experiment import Experiment, Scenario, run
from privet.experiments.plots import check_plot, plot
from privet.experiments.report import Report
from privet.federation.monitoring.report import Reveal, ValidationReport
from privet.filesystem import check_writable
from privet.objectives.regression import OBJECTIVES
from privet.runtime.local.network import NETWORKS
from privet.spec.params import spelled_out
from privet.spec.plan import Cuts
from privet.storage.model import save_model


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
            str(table + 1),
            *(Text(_format_split(model, table, level)) for level in range(model.depth)),
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


def _format_split(model: Model, table: int, level: int) -> str:
    owner = model.features[model.feature[table, level]].owner
    return f"{model.describe_test(table, level)} ({owner})"


_CLEAR = "everything that is compared is trained in the clear"
_NOT_COMPARED = {
    **dict.fromkeys(
        ("protocol", "network", "cuts", "reveal_validation", "dealer_link", "ahead", "dealers"),
        _CLEAR,
    ),
    "save": "many models are compared, and none is kept",
    "monotone": "participants are compared by what their columns are worth without constraints",
}
_DEFAULT = {name: field.default for name, field in Experiment.model_fields.items()}


@spelled_out(lambda field: Annotated[field.annotation, typer.Option(help=field.description)])
def simulate(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            show_default=False,
            autocompletion=any_of(DATASETS),
            help=f"{', '.join(DATASETS)}, or a table: CSV, Parquet, Arrow, a folder of them.",
        ),
    ] = "",
    query: Query = None,
    database: Database = None,
    label: Annotated[
        str | None, typer.Option(help="The label's column of a file.", show_default="label")
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="The id column of a file, or several: name,born.",
            show_default="id, if there",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help=f"What to learn from a file: {', '.join(OBJECTIVES)}.",
            autocompletion=any_of(OBJECTIVES),
            show_default="by the label: text, 0 and 1?",
        ),
    ] = None,
    positive: Positive = None,
    weight: Weight = None,
    class_weight: ClassWeights = None,
    drop: Drop = None,
    categorical: Categorical = None,
    types: Types = None,
    missing: Missing = None,
    names: Names = None,
    separator: Separator = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    parties: Annotated[
        int | None,
        typer.Option(help="Spread the columns evenly over so many.", show_default=str(N_PARTIES)),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]COLUMN,...",
            help="Instead: a participant and its columns, by name or pattern (*, ?). Repeat it for "
            "each; 'nobody' gets what is to be dropped. Without NAME=: the columns to spread.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="The same from a TOML file: its table 'columns' has a list for each NAME."
        ),
    ] = None,
    monotone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=1|-1",
            help="Scores never fall (1) or never rise (-1) as this column grows; missing values "
            "are smaller than all. Repeat it for others.",
        ),
    ] = None,
    active: Annotated[
        str | None, typer.Option(help="Who has the label.", show_default="the last one")
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(help=f"One of: {', '.join(protocols())}.", autocompletion=any_of(protocols())),
    ] = _DEFAULT["protocol"],
    network: Annotated[
        str,
        typer.Option(
            help=f"Of a secure protocol: {', '.join(NETWORKS)}, or DELAY_MS,MBIT.",
            autocompletion=any_of(NETWORKS),
        ),
    ] = _DEFAULT["network"],
    cuts: Annotated[
        str | None,
        typer.Option(
            help="What the parties tell of how many cuts each column has: exact, rounded, hidden.",
            show_default="rounded; hidden with paper",
            autocompletion=any_of(get_args(Cuts)),
        ),
    ] = None,
    reveal_validation: Annotated[
        bool,
        typer.Option(
            "--reveal-validation",
            help="Have the label's holder receive the predictions of validation rows: for metrics.",
        ),
    ] = _DEFAULT["reveal_validation"],
    dealer_link: Annotated[
        str,
        typer.Option(
            help="Behind an emulated network, where a dealer that is there sends: on a link of its "
            "own, on the shared one of the parties, or past them (none)."
        ),
    ] = _DEFAULT["dealer_link"],
    ahead: Annotated[
        bool, typer.Option("--ahead", help="Deal into files before the clock starts.")
    ] = _DEFAULT["ahead"],
    dealers: Dealers = _DEFAULT["dealers"],
    test_size: Annotated[
        float, typer.Option(help="Share of the rows set aside to test.")
    ] = _DEFAULT["test_size"],
    seed: Annotated[
        int, typer.Option(help="Chooses the test rows, and the rows and features of each table.")
    ] = _DEFAULT["seed"],
    stratify: Annotated[
        bool | None,
        typer.Option(
            "--stratify/--no-stratify",
            help="Set rows aside class by class, so that training and test have the same share of "
            "each. The paper's data sets are split as for the published figures.",
            show_default="for a file with classes",
        ),
    ] = None,
    report: Annotated[str | None, typer.Option(help="Write the report there, as JSON.")] = None,
    save: Annotated[str | None, typer.Option(help="Write the model there.")] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Is it worth it? Train the label's holder alone, with each other participant and "
            "with all, in the clear, and show what each gains.",
        ),
    ] = False,
    splits: Annotated[
        int, typer.Option(help="With --compare: how many times rows are set aside.")
    ] = N_SPLITS,
    plot: Annotated[
        str | None, typer.Option(help="With --compare: draw it there (.svg or .png).")
    ] = None,
    **params: Any,
) -> None:
    """Run one experiment on this machine: split a table over parties by columns, train, test.

    With --compare: what would federating gain? With n participants, n + 1 trainings a split.
    """
    chosen = None
    if columns and not any("=" in text for text in columns):
        chosen, columns = columns, None
    assigned, holder = partition_of(columns, partition, active)
    scenario: dict[str, Any] = {
        "data": data,
        "n_parties": parties,
        "columns": assigned,
        "active": holder,
        "params": {**params, "seed": seed},
        "monotone": constraints_of(monotone),
        "label": label,
        "id": id_.split(",") if id_ is not None and "," in id_ else id_,
        "table": table_of(
            query=query,
            database=database,
            columns=chosen,
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            names=names,
            separator=separator,
            quote=quote,
            encoding=encoding,
            decimal=decimal,
            positive=positive,
            weight=weight,
            class_weight=class_weight,
        ),
        "task": task,
        "test_size": test_size,
        "seed": seed,
        "stratify": stratify,
    }
    typed = given(context)
    if compare:
        for name, reason in _NOT_COMPARED.items():
            if name in typed and (name, protocol) != ("protocol", PLAIN):
                raise ParameterError(f"{name}: {reason}; leave it out with --compare")
        run_comparison(Scenario(**scenario), splits, report, plot)
        return
    for name in ("splits", "plot"):
        if name in typed:
            raise ParameterError(f"{name}: belongs to a comparison; add --compare")
    if report is not None and save is not None and Path(report).resolve() == Path(save).resolve():
        raise ParameterError(f"save: {save} is where the report goes; give another name")
    for path in (report, save):
        if path is not None:
            check_writable(path)
    experiment = Experiment(
        **scenario,
        protocol=protocol,
        network=network,
        cuts=cuts,  # type: ignore[arg-type]  # which is checked there
        reveal_validation=reveal_validation,
        dealer_link=dealer_link,
        ahead=ahead,
        dealers=dealers,
    )
    with ProgressBar(
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tables{task.fields[loss]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        bar = progress.add_task("training", total=params["tables"], loss="", visible=False)

        def on_table(done: int, loss: float | None) -> None:
            known = "" if loss is None else f", loss {loss:.5f}"
            progress.update(bar, completed=done, loss=known, visible=True)

        def on_estimate(estimate: Estimate) -> None:
            progress.console.print(
                f"{estimate.rounds:,} rounds, {estimate.online / 1e6:,.0f} MB between the parties, "
                f"{estimate.offline / 1e6:,.0f} MB from the dealer{_between(estimate)}, about "
                f"{estimate.memory / 1e6:,.0f} MB of memory a party, {estimate.masks} masks",
                highlight=False,
            )

        model, outcome = run(experiment, on_table, on_estimate)
    if save is not None:
        save_model(model, save)
    if report is not None:
        outcome.write(report)
    show_experiment(model, outcome)


def _between(estimate: Estimate) -> str:
    """Say what three dealers send each other, if there are three."""
    return f"s and {estimate.between / 1e6:,.0f} MB between these" if estimate.between else ""
