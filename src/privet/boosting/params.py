"""Hyper-parameters: what all participants agree on before training, and nothing about data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from privet.config import Config, Task

# The largest label or score in size: squares of sums of 10^9 of them do not overflow.
LARGEST = 1e100


class Params(Config):
    """The hyper-parameters of one training.

    The defaults are for users; the paper's experiments set `learning_rate=1`. A table costs a
    federation seconds, so the default is the smallest number of tables at which a moderate rate
    already does well (docs/decisions/0003-defaults.md).
    """

    task: Task
    tables: Annotated[int, Field(ge=1, le=10_000)] = 50
    """T: how many decision tables are trained, one after the other."""
    depth: Annotated[int, Field(ge=1, le=10)] = 5
    """D: how many tests a table has; it has 2^D leaf values."""
    buckets: Annotated[int, Field(ge=2, le=256)] = 32
    """B: into how many buckets, at most, the owner of a feature cuts it."""
    l2: Annotated[float, Field(gt=0)] = 1.0
    """Lambda: added to every sum of second derivatives. Positive, so that no quotient is 0/0."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.3
    """The factor on every leaf value."""
    base_score: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | None = None
    """The score before the first table. None: the label's mean in a regression, which only the
    label's holder needs to know; 0 in a classification."""

    @property
    def leaves(self) -> int:
        """2^D: how many leaf values a table has."""
        return 1 << self.depth

    @property
    def candidates(self) -> int:
        """B - 1: how many tests of one feature a level chooses among."""
        return self.buckets - 1
