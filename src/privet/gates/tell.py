"""Telling everybody a plain value, in the same round as an opening."""

from __future__ import annotations

from collections.abc import Sequence

from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Share, Told
from privet.gates.gate import Opening, OpeningGate
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class TellAll(OpeningGate):
    """Reveal a value to all participants, who record it; nobody else learns it.

    Cost: one opening. Reveals: the value.
    """

    name = "tell all"

    def deal(self, dealer: Dealer, value: Share, *, what: str) -> RingArray | None:
        """Learn nothing."""
        return None

    def run(self, party: Party, value: Share, *, what: str) -> Opening[RingArray | None]:
        """Add it up."""
        (plain,) = yield [Told(value.part, value.ring, what)]
        return plain

    def count(
        self, counter: Counter, value: Share, *, what: str
    ) -> tuple[Sequence[Share], RingArray | None]:
        """Count the opening."""
        return [value], None


tell_all = TellAll()
