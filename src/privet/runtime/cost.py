"""The cost of a program, by running it on shapes: no data, no masks, no messages."""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from privet.arithmetic.rings import Z1, Ring
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations.correlation import Correlation
from privet.runtime.correlations.replicated import get_carry_tree
from privet.runtime.opening import (
    EXPECTED_ANNOUNCEMENT,
    NetworkModel,
    OpeningPlan,
    Payload,
    merge_vectors,
)
from privet.runtime.runtime import ArgmaxCandidates, Owned, Owners, Shape, ShapeRuntime


@dataclass(frozen=True)
class Cost:
    """The cost of a program: network delays, and bytes summed over all participants."""

    rounds: int = 0
    online_bytes: int = 0
    """Bytes that participants send to each other."""
    offline_bytes: int = 0
    """Bytes of corrections from the dealer, or dealers."""
    dealer_bytes: int = 0
    """Bytes that three dealers send to each other."""
    worker_bytes: int = 0
    """Bytes of shares between a participant and its workers, if rows are in shards."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1

    def with_rounds(self, rounds: int) -> Cost:
        """Return the same bytes with another number of rounds."""
        return replace(self, rounds=rounds)

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * a for a in astuple(self)))


class CostCounter(ShapeRuntime):
    """Adds up the costs that gates report, step by step."""

    def __init__(
        self, n_parties: int, network: NetworkModel | None = None, n_dealers: int = 1
    ) -> None:
        super().__init__(n_parties, network)
        self._dealers = n_dealers
        self.cost_by_step: dict[str, Cost] = defaultdict(Cost)
        self.n_corrections = 0
        """Number of messages from the dealer."""

    @property
    def total(self) -> Cost:
        """The cost of all steps."""
        return sum(self.cost_by_step.values(), start=Cost())

    def create_empty(self) -> CostCounter:
        """Return a counter at zero, for the same participants, network and dealers."""
        return CostCounter(self.n_parties, self.network, self._dealers)

    def add(self, cost: Cost) -> None:
        """Add a cost to the current step."""
        self.cost_by_step[self.step_name] += cost

    # Counted by gates.

    def count_opening(self, *values: Elements) -> None:
        """Count one opening of all these values together."""
        rings, lengths = merge_vectors(values)
        plan = OpeningPlan(rings, lengths, self.n_parties, self.network)
        self.add(Cost(rounds=plan.rounds, online_bytes=plan.nbytes))

    def count_corrections(self, ring: Ring, *shapes: tuple[int, ...]) -> None:
        """Count values that the dealer distributes shares of, one message for each value."""
        self.n_corrections += len(shapes)
        self.add(Cost(offline_bytes=sum(Payload.for_array(ring, shape).nbytes for shape in shapes)))

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Count a derived correlation, and the messages that three dealers exchange for it."""
        shapes = [mask.shape for mask in masks]
        shape = correlation.shape(*shapes)
        self.count_corrections(ring, shape)
        if self._dealers > 1:
            s_term_bytes = [
                Payload.for_array(*term).nbytes for term in correlation.list_s_terms(ring, *shapes)
            ]
            self.add(
                Cost(
                    dealer_bytes=sum(s_term_bytes)
                    + (1 + as_mask) * Payload.for_array(ring, shape).nbytes
                )
            )
        return Elements.unknown(shape, ring)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Count the messages that three dealers exchange to compute carries."""
        wanted_places = tuple(sorted({*places} - {0}))
        if self._dealers > 1 and (wanted_places or bit):
            self.add(Cost(dealer_bytes=get_carry_tree(wanted_places, bit).count_bytes(mask.size)))
        shapes = (len(places), *mask.shape), mask.shape
        carries, bits = (Elements.unknown(shape, Z1) for shape in shapes)
        return carries, bits

    def count_publication(self, ring: Ring, shapes: Sequence[tuple[int, ...]]) -> None:
        """Count one round in which owners send arrays to all other participants."""
        nbytes = sum(Payload.for_array(ring, shape).nbytes for shape in shapes)
        self.add(Cost(rounds=1, online_bytes=(self.n_parties - 1) * nbytes))

    # Called by programs on every runtime.

    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Count one round in which each owner sends its shares to all others as one payload."""
        # With unknown owners, the bytes must not depend on how owners pack arrays into payloads.
        assert owners is not None or ring.is_word
        counts = Tally(owners or [0] * len(values)).values()
        nbytes = sum(Payload.for_array(ring, (count, *shape)).nbytes for count in counts)
        self.add(Cost(rounds=1, online_bytes=(self.n_parties - 1) * nbytes))
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> None:
        """Count one round in which all participants send their shares to the recipients."""
        nbytes = Payload.for_array(value.ring, value.shape).nbytes
        self.add(Cost(rounds=1, online_bytes=len(recipients) * (self.n_parties - 1) * nbytes))

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> None:
        """Count one round in which each participant sends two rows to each other one.

        A receiver gets three.
        """
        counts = [len(candidates.list_rows(k)) for k in range(self.n_parties)]
        row_bytes = [
            Payload.for_array(finalists.ring, (rows, finalists.shape[1])).nbytes for rows in counts
        ]
        self.add(Cost(rounds=1, online_bytes=(self.n_parties - 1) * sum(row_bytes)))

    def announce(self, number: int | None, owner: int, disclosure: str) -> None:
        """Count one round from the owner to all other participants, without the dealer's copy."""
        self.add(Cost(rounds=1, online_bytes=(self.n_parties - 1) * EXPECTED_ANNOUNCEMENT.nbytes))


def count_program_cost(program: Callable[..., Any], n_parties: int, *arguments: Any) -> Cost:
    """Return the cost of `program(runtime, *arguments)`."""
    counter = CostCounter(n_parties)
    program(counter, *arguments)
    return counter.total
