"""SecArgmin: where a shared vector is least, revealed to all.

Reference: the paper's Section V.B.4.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share, concatenate, stack
from privet.arrays import IndexArray
from privet.errors import ResultError
from privet.gates.beaver import multiply
from privet.gates.bits import less
from privet.runtime.runtime import Runtime


def argmin(runtime: Runtime, values: Share, what: str) -> IndexArray:
    """Return the position of the least value in each row of (R, C), the first among equals.

    1. Give every value its position, public as yet.
    2. Pair neighbours; [c] = whether the right one is less; [left] + [c]([right] - [left]) is the
       lesser of the two, and so is its position. Until one of each row is left.
    3. Reveal its position to all.

    Reveals: the positions, to all. Error: none. The dealer gets zeros.
    """
    rows, columns = values.shape
    positions = np.broadcast_to(np.arange(columns, dtype=np.uint64), (rows, columns))
    with runtime.step("argmin"):
        entries = stack([values, runtime.public(positions, Z64)])
        while entries.shape[2] > 1:
            even = entries.shape[2] // 2 * 2
            left, right = entries[:, :, 0:even:2], entries[:, :, 1:even:2]
            smaller = less(runtime, right[0], left[0])
            chosen = multiply(runtime, smaller.reshape(1, *smaller.shape), right - left)
            entries = concatenate([left + chosen, entries[:, :, even:]], axis=2)
        everybody = range(runtime.n_parties)
        revealed = runtime.reveal(entries[1, :, 0], everybody, what)
    if revealed is None:
        return np.zeros(rows, dtype=np.intp)
    if (revealed >= columns).any():
        raise ResultError(f"the shares of a {what} do not add up to one of {columns}")
    return revealed.astype(np.intp)
