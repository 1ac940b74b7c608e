"""What a protocol suite offers to whoever works on the rows of one shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from privet.arithmetic.shares import Share
from privet.runtime.orders import Order

Keep = Callable[[int, npt.NDArray[np.uint64]], None]
"""Keeps our share of the scores after so many tables, to go on from there."""


class ShardWorker(ABC):
    """The rows of one shard, and whoever works on them."""

    @abstractmethod
    def resume(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""

    @abstractmethod
    def carry_out(self, order: Order) -> list[Share]:
        """Do something, and return the shares that were asked for."""

    @abstractmethod
    def leave_table(self) -> None:
        """Leave the step of a table, when there is no more to do."""
