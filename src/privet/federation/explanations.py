"""Explanations, as the recipient of predictions asks for them, and as it gets to see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privet.boosting.inference import Explained
from privet.errors import ParameterError
from privet.files.job import Job


def check_asks(job: Job, name: str) -> None:
    """Raise ParameterError unless a participant may ask for explanations."""
    if job.explain is None:
        raise ParameterError(
            f"explain: the job {job.name!r} has no explanations; agree on 'explain' in job.toml, "
            '"feature" or "participant", and train with that'
        )
    recipient = job.names[job.recipient_index]
    if name != recipient:
        raise ParameterError(f"explain: is for {recipient} to ask, who receives the predictions")


def in_columns(explained: Explained, classes: Sequence[str]) -> dict[str, list[float]]:
    """Return contributions and the base as columns of a table; of several classes, for each."""
    found = explained.explanation
    outputs, _, n_samples = found.contributions.shape
    ends = [("", "")] if outputs == 1 else [(f" to {name}", f" of {name}") for name in classes]
    columns = {}
    for k, (of_one, _) in enumerate(ends):
        for name, values in zip(explained.names, found.contributions[k], strict=True):
            columns[f"contribution of {name}{of_one}"] = values.tolist()
    for base, (_, of_all) in zip(found.base.tolist(), ends, strict=True):
        columns[f"base{of_all}"] = [base] * n_samples
    return columns


def by_name(explained: Explained) -> dict[str, Any]:
    """Return contributions by name, and the base; of several classes, all of their values."""
    found = explained.explanation
    several = len(found.base) > 1
    values = found.contributions.transpose(1, 2, 0)
    named = zip(explained.names, values if several else values[..., 0], strict=True)
    return {
        "contributions": dict(named),
        "base": found.base.tolist() if several else float(found.base[0]),
    }
