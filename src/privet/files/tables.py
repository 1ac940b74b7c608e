"""The tables of a part of a model, as they stand in files: one batch of a stream for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import FailFast, Field

from privet.boosting.model import Feature
from privet.boosting.part import LabelUnit, ModelPart, PartReasons
from privet.config import Checked
from privet.errors import ModelError
from privet.files.records import FeatureRecord, Name
from privet.files.streams import Column, Columns, Values, batch_of
from privet.terms.objectives import objective_with
from privet.terms.params import MOST_TABLES, Task

MOST_OUTPUTS = 1000
_MOST_BUCKETS = 255


class UnitRecord(Checked):
    """The label's unit."""

    start: Annotated[list[float], Field(min_length=1, max_length=MOST_OUTPUTS)]
    scale: Annotated[float, Field(gt=0)]


class PartHeader(Checked):
    """What a participant has of a model, but for the tables."""

    protocol: Name
    task: Task
    party: Name
    features: Annotated[list[FeatureRecord], Field(min_length=1), FailFast()]
    fraction_bits: Annotated[int, Field(ge=1, le=28)]
    unit: UnitRecord | None
    depth: Annotated[int, Field(ge=1, le=10)]
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)]
    """How many scores the model gives a sample."""
    explains: bool = False
    """Whether tables hold what explains scores."""
    gains: bool = False
    """Whether tables hold what their levels gained."""

    @classmethod
    def of(cls, part: ModelPart) -> PartHeader:
        """Return what a part is."""
        unit = part.unit
        return cls(
            protocol=part.protocol,
            task=part.task,
            party=part.party,
            features=[FeatureRecord(name=f.name, owner=f.owner) for f in part.features],
            fraction_bits=part.fraction_bits,
            unit=None if unit is None else UnitRecord(start=list(unit.start), scale=unit.scale),
            depth=part.depth,
            outputs=part.leaf_shares.shape[1],
            explains=part.reasons is not None,
            gains=part.gains is not None,
        )

    def columns(self) -> Columns:
        """Return what a table's row holds: -1 and NaN stand for tests that are not ours."""
        depth, outputs, leaves = self.depth, self.outputs, 1 << self.depth
        columns: Columns = (
            Column("feature", np.dtype(np.int32), (depth,)),
            Column("bucket", np.dtype(np.int16), (depth,)),
            Column("threshold", np.dtype(np.float64), (depth,)),
            Column("leaf_share", np.dtype(np.uint32), (outputs, leaves)),
        )
        if self.gains:
            columns = (*columns, Column("gain", np.dtype(np.float64), (depth,)))
        if not self.explains:
            return columns
        return (
            *columns,
            Column("pass_share", np.dtype(np.float64), (depth,)),
            Column("contribution_share", np.dtype(np.uint32), (outputs, depth, leaves)),
            Column("mean_share", np.dtype(np.uint32), (outputs,)),
        )


def table_bytes(depth: int, outputs: int, *, explains: bool = False) -> int:
    """Return how many bytes a table takes at most."""
    leaves = 4 * outputs << depth
    more = 1024 + 8 * depth + 4 * outputs + depth * leaves if explains else 0
    return 1280 + 24 * depth + leaves + more


def write_tables(part: ModelPart, first: int = 0) -> bytes:
    """Return the tables of a part from one on, each as a batch."""
    columns = PartHeader.of(part).columns()
    values: dict[str, npt.NDArray[Any]] = {
        "feature": part.feature.astype(np.int32),
        "bucket": part.bucket.astype(np.int16),
        "threshold": part.threshold,
        "leaf_share": part.leaf_shares,
    }
    if part.gains is not None:
        values["gain"] = part.gains
    if part.reasons is not None:
        values |= {
            "pass_share": part.reasons.pass_share,
            "contribution_share": part.reasons.contributions,
            "mean_share": part.reasons.means,
        }
    return b"".join(
        batch_of({name: array[[table]] for name, array in values.items()}, columns)
        for table in range(first, part.n_tables)
    )


def read_part(header: PartHeader, tables: Sequence[Values]) -> ModelPart:
    """Return the part that tables make; raise ModelError if that cannot be."""
    if not 1 <= len(tables) <= MOST_TABLES:
        raise ModelError(f"{len(tables)} tables, and there are 1 to {MOST_TABLES}")
    if any(len(values) != 1 for table in tables for values in table.values()):
        raise ModelError("a batch that is not one table")
    feature, bucket, threshold, leaves, *more = (
        np.concatenate([table[column.name] for table in tables]) for column in header.columns()
    )
    features = tuple(Feature(f.name, f.owner) for f in header.features)
    if feature.min() < 0 or feature.max() >= len(features):
        raise ModelError(f"a test names a feature that is not one of the {len(features)}")
    ours = np.array([f.owner == header.party for f in features])[feature]
    ours |= np.isposinf(threshold)  # where a level tests nothing, as all know
    if not (np.array_equal(bucket >= 0, ours) and np.array_equal(~np.isnan(threshold), ours)):
        raise ModelError(f"thresholds of other tests than {header.party}'s")
    if bucket.min() < -1 or bucket.max() >= _MOST_BUCKETS:
        raise ModelError("a test names a bucket that cannot be")
    objective_with(header.task, header.outputs)
    reasons, gains = None, more.pop(0) if header.gains else None
    if gains is not None and (header.unit is None or not np.isfinite(gains).all()):
        raise ModelError("gains that are no numbers, or at somebody who is not told any")
    if more:
        reasons = PartReasons(*more)
        if not np.array_equal((reasons.pass_share >= 0) & (reasons.pass_share <= 1), ours):
            raise ModelError(f"shares of rows that pass other tests than {header.party}'s")
    unit = header.unit
    if unit is not None and len(unit.start) != header.outputs:
        raise ModelError(f"{len(unit.start)} starts of {header.outputs} scores")
    return ModelPart(
        protocol=header.protocol,
        task=header.task,
        features=features,
        party=header.party,
        feature=feature.astype(np.intp),
        bucket=bucket.astype(np.intp),
        threshold=threshold,
        leaf_shares=leaves,
        fraction_bits=header.fraction_bits,
        unit=None if unit is None else LabelUnit(tuple(unit.start), unit.scale),
        reasons=reasons,
        gains=gains,
    )
