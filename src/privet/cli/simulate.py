"""`privet simulate`: one experiment on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from privet.boosting.estimate import Estimate
from privet.boosting.trainer import PLAIN, protocols
from privet.cli.compare import run_comparison
from privet.cli.experiment_view import show_experiment
from privet.cli.options import Dealers, any_of, constraints_of, given, partition_of
from privet.cli.table_options import (
    Categorical,
    ClassWeights,
    Database,
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
    table_of,
)
from privet.data.datasets import DATASETS
from privet.data.partition import N_PARTIES
from privet.errors import ParameterError
from privet.files.atomic import check_writable
from privet.files.model_file import save_model
from privet.laboratory.comparison import N_SPLITS
from privet.laboratory.experiment import Experiment, run
from privet.laboratory.scenario import Scenario
from privet.runtime.network import NETWORKS
from privet.terms.cuts import Cuts
from privet.terms.objectives import OBJECTIVES
from privet.terms.params import spelled_out

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
    with Progress(
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
