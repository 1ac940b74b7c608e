"""The summary of a model or of a part: known splits in words, importances and leaf values.

A participant with only its own part knows the splits on its own features, the owners of all other
splits, and no leaf values.
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
    """A split of a table."""

    feature: Feature
    threshold: float | None
    """None if only the owner knows it."""
    description: str | None
    """The split in words, if known."""

    @property
    def text(self) -> str:
        """The split in words if known; otherwise its feature and owner."""
        if self.description is not None:
            return self.description
        return f"{self.feature.name} of {self.feature.owner}: hidden"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "feature": self.feature.name,
            "owner": self.feature.owner,
            "threshold": None if self.threshold is None else str(self.threshold),
            "test": self.description,
        }


@dataclass(frozen=True, eq=False)
class ModelSummary:
    """The visible content of a model or of a part."""

    tables: list[list[SplitSummary]]
    """The splits of every table, level by level."""
    importances: list[tuple[Feature, float]]
    """The fraction of all splits of each feature that has one, largest first."""
    importances_by_gain: list[tuple[Feature, float]] | None = None
    """The fraction of the total gain of each feature, if gains are known."""
    leaf_values: FloatArray | None = None
    """The leaf values, (tables, outputs, 2^depth), if known."""
    outputs: tuple[str, ...] = ()
    """The names of the scores, if the leaf values are known."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        result: dict[str, Any] = {
            "tables": [[split.to_dict() for split in table] for table in self.tables],
            "importances": _importances_to_json(self.importances),
        }
        if self.importances_by_gain is not None:
            result["importances_by_gain"] = _importances_to_json(self.importances_by_gain)
        if self.leaf_values is not None:
            result["leaf_values"] = self.leaf_values.tolist()
        return result


def summarise_model(model: Model) -> ModelSummary:
    """Return the summary of a whole model."""
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
    class_names = model.classes if count > 1 else ()
    outputs = class_names or tuple(f"output {k + 1}" for k in range(count))
    return ModelSummary(
        tables,
        _rank_importances(model.compute_importances(), model.features),
        leaf_values=model.leaf_values,
        outputs=outputs,
    )


def summarise_part(part: ModelPart, encoders: Sequence[Encoder]) -> ModelSummary:
    """Return the summary of a participant's part, with its own encoders."""
    by_feature = {name: encoder for encoder in encoders for name in encoder.feature_names}
    tables = [
        [
            _summarise_split(part.features[j], float(threshold), by_feature)
            for j, threshold in zip(features, thresholds, strict=True)
        ]
        for features, thresholds in zip(part.feature, part.threshold, strict=True)
    ]
    importances = compute_importances(part.feature, part.threshold, len(part.features))
    return ModelSummary(
        tables, _rank_importances(importances, part.features), compute_gain_importances(part)
    )


def compute_gain_importances(part: ModelPart) -> list[tuple[Feature, float]] | None:
    """Return the fraction of the total gain of each feature; None if the part has no gains."""
    if part.gains is None:
        return None
    n_features = len(part.features)
    importances = compute_importances(part.feature, part.threshold, n_features, part.gains)
    return _rank_importances(importances, part.features)


def format_leaf_path(leaf: int, n_splits: int) -> str:
    """Return the outcomes of the splits on the path to a leaf: left (+) or right (-), in order."""
    return "".join("-" if leaf >> (n_splits - 1 - k) & 1 else "+" for k in range(n_splits))


def _summarise_split(
    feature: Feature, threshold: float, encoders: Mapping[str, Encoder]
) -> SplitSummary:
    if np.isnan(threshold):
        return SplitSummary(feature, None, None)
    if feature.name not in encoders:  # not a local feature: a level without a split is public
        return SplitSummary(feature, threshold, "nothing")
    return SplitSummary(
        feature, threshold, encoders[feature.name].describe_split(feature.name, threshold)
    )


def _rank_importances(
    importances: FloatArray, features: Sequence[Feature]
) -> list[tuple[Feature, float]]:
    order = np.argsort(-importances, kind="stable")
    return [(features[j], float(importances[j])) for j in order if importances[j]]


def _importances_to_json(importances: Sequence[tuple[Feature, float]]) -> list[dict[str, Any]]:
    return [
        {"feature": feature.name, "owner": feature.owner, "importance": importance}
        for feature, importance in importances
    ]
