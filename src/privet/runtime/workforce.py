"""All workers of one role, as their head sees them: orders go to all, answers come from all.

What an answer looks like follows from what is public: every kind of worker has a *twin*, which
carries out the same orders on shapes. So a head knows what is due, and a counter what it costs. A
head does not wait before it has something to do with an answer; dealers get none, so their workers
run ahead of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from operator import add
from typing import Generic, Protocol, TypeVar

from privet.arithmetic.shares import Share
from privet.runtime.counter import Cost, Counter
from privet.runtime.letters import Letter
from privet.runtime.orders import Head, Order, answers
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


class Carrier(Protocol):
    """Whoever carries out orders."""

    def carry_out(self, order: Order) -> list[Share]:
        """Do something, and return the shares that were asked for."""


_Carrier = TypeVar("_Carrier", bound=Carrier)


class Workforce(Generic[_Carrier]):
    """All workers of one role; a counter has twins alone."""

    def __init__(
        self,
        runtime: Runtime,
        heads: Sequence[Head],
        kinds: Sequence[Hashable],
        twin: Callable[[Counter, int], _Carrier],
    ) -> None:
        """Workers of the same kind answer alike; `twin` makes one of a worker, by its number."""
        self.runtime = runtime
        self._heads = heads
        self._kinds = kinds
        self._twins: dict[Hashable, tuple[Counter, _Carrier]] = {}
        for number, kind in enumerate(kinds):
            if kind not in self._twins:
                counter = _counter(runtime)
                self._twins[kind] = counter, twin(counter, number)

    @property
    def twins(self) -> list[_Carrier]:
        """The twin of every worker."""
        return [self._twins[kind][1] for kind in self._kinds]

    def give(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done by all; return what they will answer, as shapes."""
        order = Order(name, numbers, tuple(shares))
        for head in self._heads:
            head.give(order)
        blind = Order(name, numbers, tuple(Share.unknown(x.shape, x.ring) for x in shares))
        found = {kind: _counted(*twin, blind) for kind, twin in self._twins.items()}
        if isinstance(self.runtime, Counter):
            # Groups work side by side, so the delays of one are those of all.
            costs = [found[kind][1] for kind in self._kinds]
            total = reduce(add, costs)
            self.runtime.add(total.with_rounds(max(cost.rounds for cost in costs)))
            passed = [share for kind in self._kinds for share in (*found[kind][0], *shares)]
            sizes = (Letter.of(share.ring, share.shape).nbytes for share in passed)
            self.runtime.add(Cost(orders=sum(sizes)))
        return [found[kind][0] for kind in self._kinds]

    def answers(self, due: list[list[Share]]) -> list[list[Share]]:
        """Wait for what all answer, if we are a participant."""
        if not isinstance(self.runtime, Party):
            return due
        return answers(self._heads, due)

    def ask(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done by all, and return what they answer."""
        return self.answers(self.give(name, *numbers, shares=shares))

    def sums(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[Share]:
        """Have something added up by all, and add that up."""
        answers = self.ask(name, *numbers, shares=shares)
        return [reduce(add, each) for each in zip(*answers, strict=True)]


def _counted(counter: Counter, twin: Carrier, order: Order) -> tuple[list[Share], Cost]:
    """Return the shapes of what a worker answers, and what that costs its group."""
    before = counter.total
    shares = twin.carry_out(order)
    return shares, counter.total - before


def _counter(runtime: Runtime) -> Counter:
    """Return a counter of what a group does, like one of what all heads do."""
    return runtime.twin() if isinstance(runtime, Counter) else Counter(runtime.n_parties)
