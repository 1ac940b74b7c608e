"""What a page asks for beside what it is told: checks, estimates, models, reasons."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field, ValidationError

from privet.boosting.cost_estimate import HIDDEN, Time
from privet.boosting.summary import view_of_part
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.dashboard.catalogue import KnownJob
from privet.errors import ParameterError, PrivetError
from privet.federation.preflight import Finding, check_up, foresee
from privet.schema import Checked, explain
from privet.storage.model_part import load_part

_MOST_CELLS = 10_000
"""No estimate is of more columns: it would keep everybody waiting."""


class Asked(Checked):
    """What an estimate is asked of."""

    samples: Annotated[int, Field(ge=2, le=1_000_000_000)]
    features: list[Annotated[int, Field(ge=0, le=_MOST_CELLS)]]
    tables: Annotated[int, Field(ge=1, le=10_000)]
    depth: Annotated[int, Field(ge=1, le=10)]
    delay: Annotated[float, Field(ge=0, le=10_000)]
    rate: Annotated[float, Field(ge=0.001, le=1_000_000)]


def estimated(job: Job, body: bytes) -> dict[str, Any]:
    """Return what a training would take that differs from a job in what is asked for."""
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError as error:
        raise ParameterError(explain(error)) from None
    if len(asked.features) != len(job.names) or not 0 < sum(asked.features) <= _MOST_CELLS:
        raise ParameterError(
            f"features: give a number for each of {', '.join(job.names)}, 1 to "
            f"{_MOST_CELLS:,} in all"
        )
    params = {**job.params, "tables": asked.tables, "depth": asked.depth}
    other = Job.parse({**job.model_dump(), "params": params})
    foreseen = foresee(other, asked.samples, asked.features)
    times = foreseen.times(asked.delay, asked.rate)
    return {
        **foreseen.figures(asked.delay, asked.rate),
        "times": {dealer: _parts(time) for dealer, time in times.items()},
    }


def _parts(time: Time) -> dict[str, float]:
    """Return parts of a time that add up to it: what is hidden by something else counts once."""
    shown = 1 - HIDDEN
    carrying, computing = time.carrying, time.computing
    if carrying < computing:
        carrying *= shown
    else:
        computing *= shown
    parts = {"delays": time.delays, "carrying": carrying, "computing": computing}
    waiting = max(0.0, time.total - sum(parts.values()))
    return {**parts, "waiting for the dealer": waiting, "total": time.total}


def checked(own: PartyFile, job: Job) -> list[dict[str, Any]]:
    """Return what `privet check` says."""
    return [vars(finding) for finding in _findings(own, job)]


def _findings(own: PartyFile, job: Job) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(check_up(own, job))
    except PrivetError as error:
        found.append(Finding("check", "bad", str(error), error.exit_code))
    return found


def model_of(known: KnownJob) -> dict[str, Any]:
    """Return what our part of a model lets us see."""
    if known.part is None:
        raise ParameterError(f"model: {known.job.name!r} has none: train it to its end first")
    file = load_part(known.part)
    return {
        "model": file.model,
        "party": file.part.party,
        "task": file.part.task,
        "classes": list(file.classes),
        "explain": file.job.explain,
        "columns": Counter(feature.owner for feature in file.part.features),
        **view_of_part(file.part, file.encoders).in_json(),
    }
