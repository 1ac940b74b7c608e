"""Which columns a job constrains, for the dealer: it knows how many there are, and no names."""

from __future__ import annotations

from collections.abc import Sequence

from privet.boosting.model import Feature
from privet.errors import ParameterError
from privet.files.job import Job
from privet.terms.monotone import Monotone


def own_constraints(job: Job, name: str, features: Sequence[str] | None) -> list[int] | None:
    """Return the constraint of each of a participant's features; None if there are none."""
    if not job.monotone or features is None:
        return None
    own = job.monotone.get(name, {})
    return [own.get(feature, 0) for feature in features]


def refuse_missing(job: Job, features: Sequence[Feature], told: Monotone | None) -> None:
    """Raise ParameterError, at the dealer, if somebody lacks a column that the job constrains.

    The others were told nothing: they find the same by name.
    """
    if told is None:
        return
    signs: dict[str, list[int]] = {name: [] for name in job.names}
    for feature, sign in zip(features, told, strict=True):
        signs[feature.owner] += [sign] if sign else []
    for name, found in signs.items():
        due = sorted(job.monotone.get(name, {}).values())
        if sorted(found) != due:
            raise ParameterError(
                f"monotone: the job constrains {len(due)} columns of {name}, which has "
                f"{len(found)} of these: the participants know which is missing"
            )
