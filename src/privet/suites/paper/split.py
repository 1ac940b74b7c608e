"""SecSplit: the gradients of all nodes of a level, split by a test that its owner alone knows.

Reference: the paper's Section V.B.1, Algorithm 3.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.arrays import BoolArray
from privet.gates.beaver import multiply
from privet.runtime.runtime import Runtime


def split(runtime: Runtime, gradients: Share, passes: BoolArray | None, owner: int) -> Share:
    """Split the nodes of a level, (2, K, N), into their children, (2, 2K, N).

    1. The owner of the test shares v_l, 1 where a sample passes it, and v_r = 1 - v_l.
    2. Node k's children are [v_l][g_k] and [v_r][g_k], and the same for h.

    Reveals: nothing. Error: none.
    """
    kinds, nodes, n_samples = gradients.shape
    sides = None if passes is None else np.stack((passes, ~passes)).astype(np.uint64)
    with runtime.step("split"):
        indicators = runtime.share(sides, owner, (2, n_samples), Z64)
        children = multiply(
            runtime,
            gradients.reshape(kinds, nodes, 1, n_samples),
            indicators.reshape(1, 1, 2, n_samples),
        )
        return children.reshape(kinds, 2 * nodes, n_samples)
