"""Gates on very many rows, some at a time: what is dealt for all need not be in memory at once."""

from __future__ import annotations

from collections.abc import Callable

from privet.arithmetic import cores
from privet.arithmetic.shares import Share, concatenate
from privet.gates.masked import Masked

AT_ONCE = 1 << 18
"""Rows; a multiple of 8, so that packed messages of blocks take as many bytes as one of all."""


def by_rows(x: Masked, gate: Callable[[Masked], Share]) -> Share:
    """Return what a gate without an opening makes of values, block by block of their last axis."""
    if x.shape[-1] <= AT_ONCE:
        return gate(x)

    def of(rows: slice) -> Share:
        return gate(x.map(lambda a: a[..., rows]))

    return concatenate([of(rows) for rows in cores.blocks(x.shape[-1], AT_ONCE)], axis=-1)
