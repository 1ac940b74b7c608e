"""What a protocol suite offers to the trainer: the same calls, on shares, whatever the protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost
from privet.runtime.runtime import Runtime
from privet.suites.plan import AppliedTests, OwnData, Plan, TrainedTable


class Suite(ABC):
    """One training, as one participant or the dealer takes part in it."""

    encoding: ClassVar[FixedPoint]
    """How leaf values and scores are encoded, over Z64."""
    scores: Share
    """Our share of the samples' scores, from `setup` on. Whoever goes on with an earlier training
    puts those that it ended with here."""

    def __init__(self, runtime: Runtime, plan: Plan, data: OwnData | None) -> None:
        self.runtime = runtime
        self.plan = plan
        self.data = data

    @classmethod
    @abstractmethod
    def check(cls, plan: Plan) -> None:
        """Raise an InputError if the protocol cannot do what is planned."""

    @classmethod
    @abstractmethod
    def cost(cls, plan: Plan, n_parties: int) -> tuple[Cost, Cost]:
        """Return what setting up costs, and what each table does."""

    @classmethod
    @abstractmethod
    def memory(cls, plan: Plan) -> int:
        """Return about how many bytes of memory a participant needs."""

    @classmethod
    def multiplications(cls, plan: Plan) -> int:
        """Return how many products of numbers a participant's dense work on a table takes."""
        return 0

    @classmethod
    @abstractmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return every public number that multiplies a share, scales it or decides a shape.

        By what they are for, as integers, strings and lists of these: all compare digests of them
        before they start, since one that differs at one participant makes noise of everything.
        """

    @abstractmethod
    def setup(self) -> None:
        """Share what stays the same for all tables."""

    @abstractmethod
    def train_table(self, number: int) -> TrainedTable:
        """Train one more table after so many, and add its leaf values to the samples' scores."""

    def loss_of(self, revealed: RingArray) -> float:
        """Return the mean squared residual that a table's revealed loss stands for."""
        raise AssertionError(f"{type(self).__name__} reveals no loss")

    @classmethod
    @abstractmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return a share of what tables, (tables, 2^depth), add to the score of every sample.

        In the ring that the leaf values are in.
        """
