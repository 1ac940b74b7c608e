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

from privet.boosting.cost_estimate import CostEstimate
from privet.boosting.model import Model
from privet.boosting.simulation import PLAINTEXT, list_protocols
from privet.cli.options import (
    CategoricalOption,
    ClassWeightOption,
    DatabaseOption,
    DealersOption,
    DecimalOption,
    DropOption,
    EncodingOption,
    MissingOption,
    NamesOption,
    PositiveOption,
    QueryOption,
    QuoteOption,
    SeparatorOption,
    TypesOption,
    WeightOption,
    complete_from,
    get_explicit_options,
    parse_constraints,
    parse_partition,
    parse_table_options,
)
from privet.data.datasets import DATASETS
from privet.data.partition import DEFAULT_N_PARTIES
from privet.errors import ParameterError
from privet.experiments.comparison import (
    DEFAULT_N_SPLITS,
    Comparison,
    ComparisonProgress,
    Measurement,
    compare,
)
from privet.experiments.experiment import Experiment, Scenario, run
from privet.experiments.plots import check_plot_path, plot_comparison
from privet.experiments.report import Report
from privet.federation.monitoring.report import Reveal, ValidationReport
from privet.filesystem import check_writable
from privet.objectives.regression import OBJECTIVES
from privet.runtime.local.network import NETWORKS
from privet.spec.params import with_hyper_parameters
from privet.spec.plan import CutDisclosure
from privet.storage.model import write_model_file


def run_comparison(
    scenario: Scenario, n_splits: int, report_path: str | None, plot_path: str | None
) -> None:
    """Run a comparison, print it, and write the requested files."""
    if report_path is not None:
        check_writable(report_path)
    if plot_path is not None:
        if report_path is not None and Path(report_path).resolve() == Path(plot_path).resolve():
            raise ParameterError(f"plot: {plot_path} is where the report goes; give another name")
        check_plot_path(plot_path)
    with ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def on_progress(progress: ComparisonProgress) -> None:
            if not bar.tasks[0].visible:  # the first report
                bar.console.print(
                    f"{progress.n_trainings} trainings of {scenario.params['tables']} tables, in "
                    f"the clear, over {n_splits} splits",
                    highlight=False,
                )
            now = min(progress.n_done + 1, progress.n_trainings)
            bar.update(
                task,
                completed=progress.fraction,
                description=f"training {now}/{progress.n_trainings}",
                visible=True,
            )

        found = compare(scenario, n_splits, on_progress)
    if report_path is not None:
        found.write(report_path)
    if plot_path is not None:
        plot_comparison(found, plot_path)
    _show(found)


def _show(comparison: Comparison) -> None:
    console = Console(highlight=False, markup=False)
    metric = comparison.metric
    smaller = " (smaller is better)" if metric in comparison.errors else ""
    measured = [group.metrics[metric] for group in comparison.groups]
    decimals = _count_decimals([value.mean for value in measured])
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
            _format_measurement(value, decimals),
            "" if gain is None else _format_measurement(gain, decimals, "+"),
        )
    console.print(table)
    gain_text = f"A gain is how much smaller {metric} gets. One" if smaller else "A gain"
    for text in (
        comparison.reference,
        comparison.method,
        f"{gain_text} whose interval holds 0 may be none.",
    ):
        console.print(text)


def _count_decimals(means: list[float | None]) -> int:
    """Return the number of decimals that shows four digits of the largest mean."""
    largest = max((abs(mean) for mean in means if mean), default=1.0)
    return max(0, 3 - math.floor(math.log10(largest)))


def _format_measurement(value: Measurement, decimals: int, sign: str = "") -> str:
    if value.mean is None or value.high is None:
        return "undefined: a class has no row"
    return f"{value.mean:{sign},.{decimals}f} ± {value.high - value.mean:,.{decimals}f}"


_MAX_TABLES_SHOWN = 10
_DEALER_MODE_TEXTS = {
    "ahead": "correlations dealt ahead",
    "own": "dealer on a link of its own",
    "shared": "dealer on the shared link",
}


def show_experiment(model: Model, report: Report) -> None:
    """Print the model, its metrics and the cost of training."""
    console = Console()
    splits = Table(title="Learned tests", title_justify="left")
    splits.add_column("table", justify="right")
    for level in range(model.depth):
        splits.add_column(f"level {level}", overflow="fold")
    for table in range(min(model.n_tables, _MAX_TABLES_SHOWN)):
        splits.add_row(
            str(table + 1),
            *(Text(_format_split(model, table, level)) for level in range(model.depth)),
        )
    console.print(splits)
    if model.n_tables > _MAX_TABLES_SHOWN:
        console.print(f"and {model.n_tables - _MAX_TABLES_SHOWN} more tables (--save, --report)")

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
        plain = [_format_metric(report.plain_metrics[name])] if secure else []
        metrics.add_row(name, _format_metric(value), *plain)
    console.print(metrics)
    if secure:
        _show_costs(console, report)


def _show_validation(console: Console, report: ValidationReport, n_kept_tables: int) -> None:
    """Print the validation loss, and the number of tables kept."""
    losses, best = report.losses, report.best_table
    console.print(
        f"validation loss on {report.rows} rows {losses[-1]:.5f}, best at table {best} "
        f"({losses[best - 1]:.5f}); {n_kept_tables} of {len(losses)} tables are kept",
        highlight=False,
    )
    if report.metrics:
        metrics = Table()
        metrics.add_column(f"on {report.rows} validation rows")
        metrics.add_column("value", justify="right")
        for name, value in report.metrics.items():
            metrics.add_row(name, _format_metric(value))
        console.print(metrics)


def _format_metric(value: float | None) -> str:
    return "undefined: a class has no row" if value is None else f"{value:.4f}"


def _show_costs(console: Console, report: Report) -> None:
    """Print the cost of a secure training run, and its disclosures."""
    seconds, sizes, rounds = report.seconds, report.bytes, report.rounds
    costs = Table(title=f"Training over network {report.network}", title_justify="left")
    for name in ("", "time", "sent", "rounds"):
        costs.add_column(name, justify="right" if name else "left")
    offline_label = "offline (dealt ahead)" if report.dealer == "ahead" else "offline (dealer)"
    rows: tuple[tuple[str, float, int, str], ...] = (
        ("setup", seconds.setup, sizes.setup_total, ""),
        ("online", seconds.online, sizes.online_total, f"{rounds.total:,}"),
        (offline_label, seconds.ahead or seconds.offline, sizes.offline_total, ""),
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
            times.add_row(_DEALER_MODE_TEXTS[dealer], f"{estimated:.1f} s", measured)
        console.print(times)
    disclosures = Table(title="Revealed", title_justify="left")
    for name in ("what", "to", "how many"):
        disclosures.add_column(name, justify="right" if name == "how many" else "left")
    for reveal in report.reveals:
        disclosures.add_row(
            reveal.what, _format_recipients(reveal, report.n_parties), f"{reveal.count:,}"
        )
    console.print(disclosures)


def _format_recipients(disclosure: Reveal, n_parties: int) -> str:
    if len(disclosure.to) < n_parties:
        return ", ".join(disclosure.to)
    return "all" if len(disclosure.to) == n_parties else "all and the dealer"


def _format_split(model: Model, table: int, level: int) -> str:
    owner = model.features[model.feature[table, level]].owner
    return f"{model.describe_split(table, level)} ({owner})"


_PLAINTEXT_REASON = "everything that is compared is trained in the clear"
_NOT_COMPARED = {
    **dict.fromkeys(
        ("protocol", "network", "cuts", "reveal_validation", "dealer_link", "ahead", "dealers"),
        _PLAINTEXT_REASON,
    ),
    "save": "many models are compared, and none is kept",
    "monotone": "participants are compared by what their columns are worth without constraints",
}
_DEFAULT = {name: field.default for name, field in Experiment.model_fields.items()}


@with_hyper_parameters(
    lambda field: Annotated[field.annotation, typer.Option(help=field.description)]
)
def simulate(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            show_default=False,
            autocompletion=complete_from(DATASETS),
            help=f"{', '.join(DATASETS)}, or a table: CSV, Parquet, Arrow, a folder of them.",
        ),
    ] = "",
    query: QueryOption = None,
    database: DatabaseOption = None,
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
            autocompletion=complete_from(OBJECTIVES),
            show_default="by the label: text, 0 and 1?",
        ),
    ] = None,
    positive: PositiveOption = None,
    weight: WeightOption = None,
    class_weight: ClassWeightOption = None,
    drop: DropOption = None,
    categorical: CategoricalOption = None,
    types: TypesOption = None,
    missing: MissingOption = None,
    names: NamesOption = None,
    separator: SeparatorOption = None,
    quote: QuoteOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    parties: Annotated[
        int | None,
        typer.Option(
            help="Spread the columns evenly over so many.", show_default=str(DEFAULT_N_PARTIES)
        ),
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
        typer.Option(
            help=f"One of: {', '.join(list_protocols())}.",
            autocompletion=complete_from(list_protocols()),
        ),
    ] = _DEFAULT["protocol"],
    network: Annotated[
        str,
        typer.Option(
            help=f"Of a secure protocol: {', '.join(NETWORKS)}, or DELAY_MS,MBIT.",
            autocompletion=complete_from(NETWORKS),
        ),
    ] = _DEFAULT["network"],
    cuts: Annotated[
        str | None,
        typer.Option(
            help="What the parties tell of how many cuts each column has: exact, rounded, hidden.",
            show_default="rounded; hidden with paper",
            autocompletion=complete_from(get_args(CutDisclosure)),
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
    dealers: DealersOption = _DEFAULT["dealers"],
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
    ] = DEFAULT_N_SPLITS,
    plot: Annotated[
        str | None, typer.Option(help="With --compare: draw it there (.svg or .png).")
    ] = None,
    **params: Any,
) -> None:
    """Run one experiment on this machine: split a table over parties by columns, train, test.

    With --compare: what would federating gain? With n participants, n + 1 trainings a split.
    """
    selected_columns = None
    if columns and not any("=" in text for text in columns):
        selected_columns, columns = columns, None
    assigned, label_holder = parse_partition(columns, partition, active)
    scenario: dict[str, Any] = {
        "data": data,
        "n_parties": parties,
        "columns": assigned,
        "active": label_holder,
        "params": {**params, "seed": seed},
        "monotone": parse_constraints(monotone),
        "label": label,
        "id": id_.split(",") if id_ is not None and "," in id_ else id_,
        "table": parse_table_options(
            query=query,
            database=database,
            columns=selected_columns,
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
    explicit_options = get_explicit_options(context)
    if compare:
        for name, reason in _NOT_COMPARED.items():
            if name in explicit_options and (name, protocol) != ("protocol", PLAINTEXT):
                raise ParameterError(f"{name}: {reason}; leave it out with --compare")
        run_comparison(Scenario(**scenario), splits, report, plot)
        return
    for name in ("splits", "plot"):
        if name in explicit_options:
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
        cuts=cuts,  # type: ignore[arg-type]  # Experiment validates it
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
            loss_text = "" if loss is None else f", loss {loss:.5f}"
            progress.update(bar, completed=done, loss=loss_text, visible=True)

        def on_estimate(estimate: CostEstimate) -> None:
            progress.console.print(
                f"{estimate.rounds:,} rounds, {estimate.online_bytes / 1e6:,.0f} MB between the "
                "parties, "
                f"{estimate.offline_bytes / 1e6:,.0f} MB from the "
                f"dealer{_format_dealer_traffic(estimate)}, about "
                f"{estimate.memory_bytes / 1e6:,.0f} MB of memory a party, {estimate.masks} masks",
                highlight=False,
            )

        model, outcome = run(experiment, on_table, on_estimate)
    if save is not None:
        write_model_file(model, save)
    if report is not None:
        outcome.write(report)
    show_experiment(model, outcome)


def _format_dealer_traffic(estimate: CostEstimate) -> str:
    """Return the traffic between three dealers, as a part of a sentence."""
    return (
        f"s and {estimate.dealer_bytes / 1e6:,.0f} MB between these"
        if estimate.dealer_bytes
        else ""
    )
