"""The command that finds the rows that all participants have, without training on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.console import LogFormat, telling
from privet.cli.federate import ReportFile, check_report, tell_reveals
from privet.cli.options import JobFile, PartyOption, Wait
from privet.cli.seats import training
from privet.federation.aligning import align_table, write_ids
from privet.federation.events import Event
from privet.federation.session import WAIT_SECONDS
from privet.files.atomic import make_way


def align(
    party: PartyOption,
    job: JobFile,
    out: Annotated[
        Path | None, typer.Option(help="Write the ids of your rows that all have there, as CSV.")
    ] = None,
    wait: Wait = WAIT_SECONDS,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Find out with the others which of your rows all have; `privet train` will use these."""
    with telling(log_format) as tell, training(party, job, wait, tell) as (own, seat):
        check_report(report)
        if out is not None:
            make_way(out)
        outcome, ids = align_table(own, seat)
        if report is not None:
            outcome.write(report)
        if out is not None:
            write_ids(ids, out)
        tell_reveals(outcome.reveals, tell)
        where = "" if out is None else f"; their ids are in {out}"
        text = f"{outcome.common:,} of your {outcome.rows:,} rows are common to all{where}\n"
        cost = (
            f"{outcome.seconds:.1f} s, {outcome.bytes_to_dealer / 1e6:,.1f} MB to the dealer, "
            f"{outcome.bytes_from_dealer / 1e6:,.1f} MB from it"
        )
        tell(Event("done", text + cost, outcome.model_dump()))
