"""The report of an experiment: what was run, what came out, what it cost."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from privet.boosting.params import Params
from privet.service.files import write_atomically


class Seconds(BaseModel):
    """Wall time."""

    model_config = ConfigDict(frozen=True)

    train: float
    """Bucketing and training."""
    total: float
    """Everything from reading the data to the metrics."""


class Report(BaseModel):
    """One experiment. Keys may be added in later versions; none is renamed."""

    model_config = ConfigDict(frozen=True)

    version: str
    """Of this software."""
    data: str
    protocol: str
    n_parties: int
    n_samples: int
    """Training rows."""
    n_test_samples: int
    n_features: int
    seed: int
    params: Params
    metrics: dict[str, float | None]
    """On the test rows: rmse; or accuracy and auc (null where the test rows have one class)."""
    seconds: Seconds
    feature_names: list[str]
    feature_owners: list[str]
    tests: list[list[tuple[int, int]]]
    """The feature's index and the bucket of every level of every table."""

    def write(self, path: str | Path) -> None:
        """Write the report as JSON, atomically."""
        write_atomically(path, self.model_dump_json(indent=2).encode() + b"\n")
