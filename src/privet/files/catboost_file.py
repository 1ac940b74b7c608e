"""A whole model as CatBoost reads it from JSON: `CatBoost().load_model(path, format="json")`.

CatBoost takes all features as 32-bit floats and asks whether one is *above* a border. A border here
is the largest such float below our threshold, so that every 32-bit float is sorted as we do. A
double is rounded by CatBoost first, which may carry it over a threshold.

`RawFormulaVal` is our score. `Probability` of two classes is ours, too; of several, CatBoost's is
that of each class against the rest, and ours are in proportion to these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.model import Model
from privet.errors import ModelError
from privet.files.atomic import write_atomically
from privet.files.input_note import KEY, input_note
from privet.terms.objectives import Classification, OneVsRest, Regression

_LOSSES = {Regression: "RMSE", Classification: "Logloss", OneVsRest: "MultiClassOneVsAll"}


def save_catboost(model: Model, path: str | Path) -> None:
    """Write a model for CatBoost, atomically."""
    write_atomically(path, json.dumps(to_catboost(model)).encode())


def to_catboost(model: Model) -> dict[str, Any]:
    """Return a model as the JSON object that CatBoost reads."""
    loss = _LOSSES.get(type(model.objective))
    if loss is None:
        raise ModelError(f"{model.task}: CatBoost has no loss that says what its scores mean")
    borders = borders_of(model.threshold)
    tested = [np.unique(borders[model.feature == j]) for j in range(len(model.features))]
    starts = np.cumsum([0, *map(len, tested)])
    trees = []
    for table in range(model.n_tables):
        tests = zip(model.feature[table].tolist(), borders[table].tolist(), strict=True)
        splits = [
            {
                "border": border,
                "float_feature_index": j,
                "split_index": int(starts[j] + np.searchsorted(tested[j], border)),
                "split_type": "FloatFeature",
            }
            for j, border in tests
        ]
        # Its first split is the lowest bit of a leaf's number, ours the highest.
        trees.append(
            {"splits": splits[::-1], "leaf_values": model.leaf_values[table].T.ravel().tolist()}
        )
    return {
        "features_info": {
            "float_features": [
                {
                    "borders": tested[j].tolist(),
                    "feature_id": feature.name,
                    "feature_index": j,
                    "flat_feature_index": j,
                    "has_nans": True,
                    "nan_value_treatment": "AsFalse",
                }
                for j, feature in enumerate(model.features)
            ]
        },
        "model_info": {**_meaning(model, loss), KEY: input_note(model)},
        "oblivious_trees": trees,
        "scale_and_bias": [1, model.base_score.tolist()],
    }


def borders_of(thresholds: FloatArray) -> FloatArray:
    """Return the 32-bit floats x that thresholds t turn into: above x is what is not below t.

    A threshold of -inf, which only missing values pass, becomes the least float of all; one of inf,
    which everything passes, the largest.
    """
    largest = np.finfo(np.float32).max
    rounded = np.clip(thresholds, -largest, largest).astype(np.float32)
    below = np.nextafter(rounded, -largest)
    return np.where(rounded < thresholds, rounded, below).astype(np.float64)


def _meaning(model: Model, loss: str) -> dict[str, Any]:
    """Return what tells CatBoost of a model's task and classes."""
    about: dict[str, Any] = {
        "params": {"loss_function": {"type": loss}, "flat_params": {"loss_function": loss}}
    }
    if model.objective.has_classes:
        n_classes = max(2, len(model.base_score))
        about["class_params"] = {
            "class_label_type": "String" if model.classes else "Integer",
            "class_names": list(model.classes) or list(range(n_classes)),
            "class_to_label": list(range(n_classes)),
            "classes_count": 0,
        }
    return about
