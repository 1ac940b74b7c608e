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
from privet.boosting.model import Feature, Model, importances
from privet.boosting.model_part import ModelPart
from privet.data.encoding import Encoder


@dataclass(frozen=True)
class SeenTest:
    """A test of a table."""

    feature: Feature
    threshold: float | None
    """None: its owner alone knows."""
    known: str | None
    """The test in words, if we know it."""

    @property
    def words(self) -> str:
        """The test in words, or whose it is."""
        if self.known is not None:
            return self.known
        return f"{self.feature.name} of {self.feature.owner}: hidden"

    def in_json(self) -> dict[str, Any]:
        """Return it as a program takes it."""
        return {
            "feature": self.feature.name,
            "owner": self.feature.owner,
            "threshold": None if self.threshold is None else str(self.threshold),
            "test": self.known,
        }


@dataclass(frozen=True, eq=False)
class View:
    """A model as somebody sees it."""

    tables: list[list[SeenTest]]
    """The tests of every table, level by level."""
    importances: list[tuple[Feature, float]]
    """The share of all tests that each tested feature has, the largest first."""
    by_gain: list[tuple[Feature, float]] | None = None
    """The share of all gains that each has, if we know them."""
    leaf_values: FloatArray | None = None
    """What leaves add to the scores, (tables, outputs, 2^depth), if we know it."""
    outputs: tuple[str, ...] = ()
    """What the scores are called, if we know the leaf values."""

    def in_json(self) -> dict[str, Any]:
        """Return it as a program takes it."""
        found: dict[str, Any] = {
            "tables": [[test.in_json() for test in table] for table in self.tables],
            "importances": _shares_in_json(self.importances),
        }
        if self.by_gain is not None:
            found["importances_by_gain"] = _shares_in_json(self.by_gain)
        if self.leaf_values is not None:
            found["leaf_values"] = self.leaf_values.tolist()
        return found


def view_of_model(model: Model) -> View:
    """Return all that there is to see of a whole model."""
    tables = [
        [
            SeenTest(
                model.features[model.feature[table, level]],
                float(model.threshold[table, level]),
                model.describe_test(table, level),
            )
            for level in range(model.depth)
        ]
        for table in range(model.n_tables)
    ]
    count = len(model.base_score)
    several = model.classes if count > 1 else ()
    outputs = several or tuple(f"output {k + 1}" for k in range(count))
    return View(
        tables,
        _importances(model.importances(), model.features),
        leaf_values=model.leaf_values,
        outputs=outputs,
    )


def view_of_part(part: ModelPart, encoders: Sequence[Encoder]) -> View:
    """Return what a participant sees of a model, by its part and its own encoders."""
    by_feature = {name: encoder for encoder in encoders for name in encoder.features}
    tables = [
        [
            _seen(part.features[j], float(threshold), by_feature)
            for j, threshold in zip(features, thresholds, strict=True)
        ]
        for features, thresholds in zip(part.feature, part.threshold, strict=True)
    ]
    shares = importances(part.feature, part.threshold, len(part.features))
    return View(tables, _importances(shares, part.features), gain_importances(part))


def gain_importances(part: ModelPart) -> list[tuple[Feature, float]] | None:
    """Return the share of all gains that each tested feature has, to whoever was told them."""
    if part.gains is None:
        return None
    shares = importances(part.feature, part.threshold, len(part.features), part.gains)
    return _importances(shares, part.features)


def signs(leaf: int, tests: int) -> str:
    """Return which tests a row or column passes (+) and fails (-), the first one first."""
    return "".join("-" if leaf >> (tests - 1 - k) & 1 else "+" for k in range(tests))


def _seen(feature: Feature, threshold: float, encoders: Mapping[str, Encoder]) -> SeenTest:
    if np.isnan(threshold):
        return SeenTest(feature, None, None)
    if feature.name not in encoders:  # somebody else's: all know that the level tests nothing
        return SeenTest(feature, threshold, "nothing")
    return SeenTest(feature, threshold, encoders[feature.name].describe(feature.name, threshold))


def _importances(shares: FloatArray, features: Sequence[Feature]) -> list[tuple[Feature, float]]:
    order = np.argsort(-shares, kind="stable")
    return [(features[j], float(shares[j])) for j in order if shares[j]]


def _shares_in_json(shares: Sequence[tuple[Feature, float]]) -> list[dict[str, Any]]:
    return [
        {"feature": feature.name, "owner": feature.owner, "importance": share}
        for feature, share in shares
    ]
