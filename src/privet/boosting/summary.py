"""What somebody can see of a model: its tests in words, as far as they are known, and its leaves.

The owner of a whole model sees everything; whoever has a part sees its own tests, whose the others
are, and no leaf value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.model import Feature, Model, compute_importances
from privet.boosting.model_part import ModelPart
from privet.data.encoding import Encoder


@dataclass(frozen=True)
class SplitSummary:
    """A test of a table."""

    feature: Feature
    threshold: float | None
    """None: its owner alone knows."""
    description: str | None
    """The test in words, if we know it."""

    @property
    def text(self) -> str:
        """The test in words, or whose it is."""
        if self.description is not None:
            return self.description
        return f"{self.feature.name} of {self.feature.owner}: hidden"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a program takes it."""
        return {
            "feature": self.feature.name,
            "owner": self.feature.owner,
            "threshold": None if self.threshold is None else str(self.threshold),
            "test": self.description,
        }


@dataclass(frozen=True, eq=False)
class ModelSummary:
    """A model as somebody sees it."""

    tables: list[list[SplitSummary]]
    """The tests of every table, level by level."""
    importances: list[tuple[Feature, float]]
    """The share of all tests that each tested feature has, the largest first."""
    importances_by_gain: list[tuple[Feature, float]] | None = None
    """The share of all gains that each has, if we know them."""
    leaf_values: FloatArray | None = None
    """What leaves add to the scores, (tables, outputs, 2^depth), if we know it."""
    outputs: tuple[str, ...] = ()
    """What the scores are called, if we know the leaf values."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as a program takes it."""
        found: dict[str, Any] = {
            "tables": [[test.to_dict() for test in table] for table in self.tables],
            "importances": _shares_in_json(self.importances),
        }
        if self.importances_by_gain is not None:
            found["importances_by_gain"] = _shares_in_json(self.importances_by_gain)
        if self.leaf_values is not None:
            found["leaf_values"] = self.leaf_values.tolist()
        return found


def summarise_model(model: Model) -> ModelSummary:
    """Return all that there is to see of a whole model."""
    tables = [
        [
            SplitSummary(
                model.features[model.feature[table, level]],
                float(model.threshold[table, level]),
                model.describe_split(table, level),
            )
            for level in range(model.depth)
        ]
        for table in range(model.n_tables)
    ]
    count = len(model.base_score)
    several = model.classes if count > 1 else ()
    outputs = several or tuple(f"output {k + 1}" for k in range(count))
    return ModelSummary(
        tables,
        _importances(model.compute_importances(), model.features),
        leaf_values=model.leaf_values,
        outputs=outputs,
    )


def summarise_part(part: ModelPart, encoders: Sequence[Encoder]) -> ModelSummary:
    """Return what a participant sees of a model, by its part and its own encoders."""
    by_feature = {name: encoder for encoder in encoders for name in encoder.feature_names}
    tables = [
        [
            _seen(part.features[j], float(threshold), by_feature)
            for j, threshold in zip(features, thresholds, strict=True)
        ]
        for features, thresholds in zip(part.feature, part.threshold, strict=True)
    ]
    shares = compute_importances(part.feature, part.threshold, len(part.features))
    return ModelSummary(tables, _importances(shares, part.features), compute_gain_importances(part))


def compute_gain_importances(part: ModelPart) -> list[tuple[Feature, float]] | None:
    """Return the share of all gains that each tested feature has, to whoever was told them."""
    if part.gains is None:
        return None
    shares = compute_importances(part.feature, part.threshold, len(part.features), part.gains)
    return _importances(shares, part.features)


def format_leaf_path(leaf: int, n_splits: int) -> str:
    """Return which tests a row or column passes (+) and fails (-), the first one first."""
    return "".join("-" if leaf >> (n_splits - 1 - k) & 1 else "+" for k in range(n_splits))


def _seen(feature: Feature, threshold: float, encoders: Mapping[str, Encoder]) -> SplitSummary:
    if np.isnan(threshold):
        return SplitSummary(feature, None, None)
    if feature.name not in encoders:  # somebody else's: all know that the level tests nothing
        return SplitSummary(feature, threshold, "nothing")
    return SplitSummary(
        feature, threshold, encoders[feature.name].describe_split(feature.name, threshold)
    )


def _importances(shares: FloatArray, features: Sequence[Feature]) -> list[tuple[Feature, float]]:
    order = np.argsort(-shares, kind="stable")
    return [(features[j], float(shares[j])) for j in order if shares[j]]


def _shares_in_json(shares: Sequence[tuple[Feature, float]]) -> list[dict[str, Any]]:
    return [
        {"feature": feature.name, "owner": feature.owner, "importance": share}
        for feature, share in shares
    ]
