"""What a program costs, by running it on shapes: no data, no masks, no messages."""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from privet.arithmetic.rings import Z1, Ring
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations.correlation import Recipe
from privet.runtime.correlations.replicated import tree
from privet.runtime.opening import ANNOUNCED, Letter, Link, Travel, merged
from privet.runtime.runtime import Blind, Owned, Owners, Shape, Things


@dataclass(frozen=True)
class Cost:
    """What a program costs: network delays, and bytes summed over all participants."""

    rounds: int = 0
    online: int = 0
    """Bytes that participants send each other."""
    offline: int = 0
    """Bytes of corrections from the dealer, or dealers."""
    between: int = 0
    """Bytes that three dealers send each other."""
    orders: int = 0
    """Bytes of shares between a participant and its workers, where rows are in shards."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1

    def with_rounds(self, rounds: int) -> Cost:
        """Return the same bytes with so many delays."""
        return replace(self, rounds=rounds)

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * a for a in astuple(self)))


class Counter(Blind):
    """Adds up what gates say that they cost, step by step."""

    def __init__(self, n_parties: int, link: Link | None = None, dealers: int = 1) -> None:
        super().__init__(n_parties, link)
        self._dealers = dealers
        self.steps: dict[str, Cost] = defaultdict(Cost)
        self.corrections = 0
        """How many messages of the dealer's all this takes."""

    @property
    def total(self) -> Cost:
        """What all steps cost."""
        return sum(self.steps.values(), start=Cost())

    def twin(self) -> Counter:
        """Return a counter that has counted nothing yet, of a group like ours."""
        return Counter(self.n_parties, self.link, self._dealers)

    def add(self, cost: Cost) -> None:
        """Count something at the step that we are in."""
        self.steps[self.step_name] += cost

    # What gates count.

    def open(self, *values: Elements) -> None:
        """Count one opening of all these values."""
        rings, lengths = merged(values)
        travel = Travel(rings, lengths, self.n_parties, self.link)
        self.add(Cost(rounds=travel.rounds, online=travel.nbytes))

    def deal(self, ring: Ring, *shapes: tuple[int, ...]) -> None:
        """Count values that the dealer gives shares of, each in a message of its own."""
        self.corrections += len(shapes)
        self.add(Cost(offline=sum(Letter.of(ring, shape).nbytes for shape in shapes)))

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Count a value that follows from masks, and what three dealers say to find it."""
        shapes = [mask.shape for mask in masks]
        shape = recipe.shape(*shapes)
        self.deal(ring, shape)
        if self._dealers > 1:
            shared = [Letter.of(*each).nbytes for each in recipe.shared(ring, *shapes)]
            self.add(Cost(between=sum(shared) + (1 + kept) * Letter.of(ring, shape).nbytes))
        return Elements.unknown(shape, ring)

    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Count what three dealers say to find carries."""
        wanted = tuple(sorted({*places} - {0}))
        if self._dealers > 1 and (wanted or bit):
            self.add(Cost(between=tree(wanted, bit).nbytes(mask.size)))
        shapes = (len(places), *mask.shape), mask.shape
        carries, found = (Elements.unknown(shape, Z1) for shape in shapes)
        return carries, found

    def publish(self, ring: Ring, shapes: Sequence[tuple[int, ...]]) -> None:
        """Count one round in which arrays go from their owners to all others."""
        nbytes = sum(Letter.of(ring, shape).nbytes for shape in shapes)
        self.add(Cost(rounds=1, online=(self.n_parties - 1) * nbytes))

    # What programs ask of any runtime.

    def share_each(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Count one round in which owners send shares to all others, each in one letter."""
        # Where nobody knows the owners, it must not matter who packs how much into a letter.
        assert owners is not None or ring.is_word
        counts = Tally(owners or [0] * len(values)).values()
        nbytes = sum(Letter.of(ring, (count, *shape)).nbytes for count in counts)
        self.add(Cost(rounds=1, online=(self.n_parties - 1) * nbytes))
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, to: Sequence[int], what: str) -> None:
        """Count one round in which everybody sends its share to some."""
        nbytes = Letter.of(value.ring, value.shape).nbytes
        self.add(Cost(rounds=1, online=len(to) * (self.n_parties - 1) * nbytes))

    def reveal_winner(self, finalists: Share, things: Things) -> None:
        """Count one round in which everybody sends everybody two rows, and three to a receiver."""
        counts = [len(things.rows(k)) for k in range(self.n_parties)]
        lengths = [Letter.of(finalists.ring, (rows, finalists.shape[1])).nbytes for rows in counts]
        self.add(Cost(rounds=1, online=(self.n_parties - 1) * sum(lengths)))

    def announce(self, number: int | None, owner: int, what: str) -> None:
        """Count one round in which the owner tells all other participants; the dealer is extra."""
        self.add(Cost(rounds=1, online=(self.n_parties - 1) * ANNOUNCED.nbytes))


def cost_of(program: Callable[..., Any], n_parties: int, *arguments: Any) -> Cost:
    """Return what `program(runtime, *arguments)` costs."""
    counter = Counter(n_parties)
    program(counter, *arguments)
    return counter.total
