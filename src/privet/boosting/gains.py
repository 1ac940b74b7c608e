"""What each level of a trained model gained, on the rows that it was trained on, in the clear.

For whoever has all columns and the label in one process. In a federation nobody has.
"""

from __future__ import annotations

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.boosting.model import Model
from privet.boosting.reference import impurity
from privet.terms.draws import draw
from privet.terms.params import Params


def level_gains(
    model: Model,
    columns: FloatArray,
    label: FloatArray,
    params: Params,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return by how much each level lowered the loss, to second order: (tables, depth).

    Before the learning rate, on the rows that its table drew: the model is trained again, but for
    the choice of its tests.
    """
    objective = params.objective
    target = objective.targets(label)
    score = np.repeat(model.base_score[:, None], len(label), axis=1)
    leaves = model.leaf_index(columns)
    gains = np.empty(model.feature.shape)
    for table, leaf in enumerate(leaves):
        rows = draw(params, len(label), (), table).rows
        g, h = objective.derivatives(score[:, rows], target[:, rows])
        if weight is not None:
            g, h = g * weight[rows], h * weight[rows]
        # Level 0 has one node, and what the last level makes are leaves.
        levels = [leaf[rows] >> (model.depth - level) for level in range(model.depth + 1)]
        impurities = [_impurity_of(node, g, h, params) for node in levels]
        gains[table] = -np.diff(impurities)
        score += model.leaf_values[table][:, leaf]
    return gains


def _impurity_of(node: IndexArray, g: FloatArray, h: FloatArray, params: Params) -> float:
    """Return the score of rows in these nodes."""
    sums: FloatArray = np.array(
        [[np.bincount(node, weights=row) for row in rows] for rows in (g, h)], dtype=np.float64
    )
    return float(impurity(sums, params).sum())
