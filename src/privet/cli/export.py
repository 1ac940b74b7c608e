"""The command that writes whole models: joined from all parts, or that a file has already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from privet.boosting.model import Model
from privet.cli.console import LogFormat, telling
from privet.cli.federate import OtherJob, ReportFile, check_report, finish
from privet.cli.options import Wait
from privet.cli.seats import predicting
from privet.errors import ParameterError
from privet.federation.events import Event
from privet.federation.exporting import export_part, receiver_of
from privet.federation.session import WAIT_SECONDS
from privet.files.atomic import make_way
from privet.files.catboost_file import save_catboost
from privet.files.model_file import load_model, save_model
from privet.files.onnx_file import check_onnx, save_onnx

_Wanted = dict[Callable[..., None], Path | None]
"""Where a model is to be written, by what writes it."""


def export(
    party: Annotated[Path | None, typer.Option(help="Your own party.toml.")] = None,
    part: Annotated[Path | None, typer.Option(help="Your part of the model.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Instead of both: a whole model that was saved.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the model there, as this software reads it.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write it there, for ONNX.")] = None,
    catboost: Annotated[
        Path | None, typer.Option(help="Write it there, as CatBoost's JSON.")
    ] = None,
    job: OtherJob = None,
    wait: Wait = WAIT_SECONDS,
    report: ReportFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Join a model with the others, if the job names who may have it; or write a whole one anew."""
    wanted: _Wanted = {save_model: out, save_onnx: onnx, save_catboost: catboost}
    paths = [path for path in wanted.values() if path is not None]
    with telling(log_format) as tell:
        if model is not None:
            if any(option is not None for option in (party, part, job, report)):
                raise ParameterError("model: is whole; --party, --part, --job, --report join one")
            _check(paths, onnx)
            _write(load_model(model), wanted)
            tell(Event("done", f"the model is in {_listed(paths)}", {"paths": _texts(paths)}))
            return
        if party is None or part is None:
            raise ParameterError("party: give --party and --part, or --model for a whole model")
        with predicting(party, part, job, wait, tell) as (own, seat, file):
            receiver = receiver_of(seat.job)
            check_report(report)
            if own.name == receiver:
                _check(paths, onnx)
            elif paths:
                raise ParameterError(f"export: the model goes to {receiver}; leave {paths[0]} out")
            outcome, joined = export_part(file, seat)
            text = f"the whole model went to {receiver}"
            if joined is not None:
                _write(joined, wanted)
                text = f"the whole model is in {_listed(paths)}"
            finish(outcome, report, tell, text)


def _check(paths: list[Path], onnx: Path | None) -> None:
    """Raise an error unless all files can be written, before anybody is asked for anything."""
    if not paths:
        raise ParameterError("out: say where to write the model: --out, --onnx or --catboost")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ParameterError(f"out: two files have the same name, {paths[0]}; give them other ones")
    if onnx is not None:
        check_onnx()
    for path in paths:
        make_way(path)


def _write(model: Model, wanted: _Wanted) -> None:
    for save, path in wanted.items():
        if path is not None:
            save(model, path)


def _texts(paths: list[Path]) -> list[str]:
    return [str(path) for path in paths]


def _listed(paths: list[Path]) -> str:
    return " and ".join(_texts(paths))
