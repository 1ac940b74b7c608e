"""Responses to the dashboard's requests: checks, estimates and models."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field, ValidationError

from privet.boosting.cost_estimate import OVERLAP_FRACTION, TimeEstimate
from privet.boosting.summary import summarise_part
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.dashboard.catalogue import KnownJob
from privet.errors import ParameterError, PrivetError
from privet.federation.preflight import CheckResult, check_party, forecast_training
from privet.schema import StrictSchema, format_validation_error
from privet.storage.model_part import load_part

_MAX_ESTIMATED_COLUMNS = 10_000
"""Maximum of columns in an estimate, which bounds the computing time."""


class EstimateQuery(StrictSchema):
    """Parameters of a cost estimate."""

    samples: Annotated[int, Field(ge=2, le=1_000_000_000)]
    features: list[Annotated[int, Field(ge=0, le=_MAX_ESTIMATED_COLUMNS)]]
    tables: Annotated[int, Field(ge=1, le=10_000)]
    depth: Annotated[int, Field(ge=1, le=10)]
    delay: Annotated[float, Field(ge=0, le=10_000)]
    rate: Annotated[float, Field(ge=0.001, le=1_000_000)]


def answer_estimate(job: Job, body: bytes) -> dict[str, Any]:
    """Estimate the cost of a training run with the parameters of a request."""
    try:
        query = EstimateQuery.model_validate_json(body)
    except ValidationError as error:
        raise ParameterError(format_validation_error(error)) from None
    if (
        len(query.features) != len(job.party_names)
        or not 0 < sum(query.features) <= _MAX_ESTIMATED_COLUMNS
    ):
        raise ParameterError(
            f"features: give a number for each of {', '.join(job.party_names)}, 1 to "
            f"{_MAX_ESTIMATED_COLUMNS:,} in all"
        )
    params = {**job.params, "tables": query.tables, "depth": query.depth}
    changed_job = Job.parse({**job.model_dump(), "params": params})
    forecast = forecast_training(changed_job, query.samples, query.features)
    times = forecast.estimate_times(query.delay, query.rate)
    return {
        **forecast.to_dict(query.delay, query.rate),
        "times": {dealer: _split_time(time) for dealer, time in times.items()},
    }


def _split_time(time: TimeEstimate) -> dict[str, float]:
    """Split a time into parts that add up to it; overlapping work counts once."""
    exposed_fraction = 1 - OVERLAP_FRACTION
    carrying, computing = time.transfer_seconds, time.compute_seconds
    if carrying < computing:
        carrying *= exposed_fraction
    else:
        computing *= exposed_fraction
    parts = {"delays": time.delays, "carrying": carrying, "computing": computing}
    waiting = max(0.0, time.total - sum(parts.values()))
    return {**parts, "waiting for the dealer": waiting, "total": time.total}


def answer_check(party_config: PartyConfig, job: Job) -> list[dict[str, Any]]:
    """Return the results of `privet check`."""
    return [vars(result) for result in _run_checks(party_config, job)]


def _run_checks(party_config: PartyConfig, job: Job) -> list[CheckResult]:
    found: list[CheckResult] = []
    try:
        found.extend(check_party(party_config, job))
    except PrivetError as error:
        found.append(CheckResult("check", "bad", str(error), error.exit_code))
    return found


def answer_model(known_job: KnownJob) -> dict[str, Any]:
    """Return the visible content of the local model part."""
    if known_job.part_path is None:
        raise ParameterError(f"model: {known_job.job.name!r} has none: train it to its end first")
    file = load_part(known_job.part_path)
    return {
        "model": file.model_id,
        "party": file.part.party,
        "task": file.part.task,
        "classes": list(file.classes),
        "explain": file.job.explain,
        "columns": Counter(feature.owner for feature in file.part.features),
        **summarise_part(file.part, file.encoders).to_dict(),
    }
