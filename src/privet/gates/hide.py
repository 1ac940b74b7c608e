"""Masking rows by samples of ring-LWE, so that sums over many rows take few numbers.

A mask r = P s + e (`arithmetic.lattice`) of every vector: participants draw s and e, small, from
the seeds that they share with dealers, and each has r as its share of the mask. To whoever lacks
one participant's seed, what is opened is uniform, as far as ring-LWE is hard. A share of such a
mask has a structure, so it must never be sent without a fresh uniform mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from privet.arithmetic.lattice import Lattice, binomial, ternary
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Opening, OpeningGate
from privet.gates.masked import Masked, Meanwhile, unknown_masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

_Kind = TypeVar("_Kind", bound=Elements)


class Hide(OpeningGate):
    """Mask shared vectors, (..., N), by samples of ring-LWE: the one opening that it costs.

    1. Participants and the dealer draw [s], one secret a vector, and [e], one error a row.
    2. Open [x] + P [s] + [e]; x is that less P s + e.

    `meanwhile` is given [s], by which sums are found (`histogram`): dealers need it, too.

    Cost: one opening of all values together. Reveals: nothing, if ring-LWE is hard. Error: none.
    """

    name = "hide"

    def deal(
        self, dealer: Dealer, *values: Share, lattice: Lattice, meanwhile: Meanwhile
    ) -> list[Masked]:
        """Draw secrets and errors."""
        secrets = [dealer.small(ternary, _of_secret(x, lattice), x.ring) for x in values]
        meanwhile(secrets)
        masks = [
            _mask(s, dealer.small(binomial, x.shape, x.ring), lattice)
            for s, x in zip(secrets, values, strict=True)
        ]
        return [Masked(Elements.unknown(r.shape, r.ring), r) for r in masks]

    def run(
        self, party: Party, *values: Share, lattice: Lattice, meanwhile: Meanwhile
    ) -> Opening[list[Masked]]:
        """Open all values in one round."""
        secrets = [party.small(ternary, _of_secret(x, lattice), x.ring) for x in values]
        meanwhile(list(secrets))
        masks = [
            _mask(s, party.small(binomial, x.shape, x.ring), lattice)
            for s, x in zip(secrets, values, strict=True)
        ]
        opened = yield [x + r for x, r in zip(values, masks, strict=True)]
        return [Masked(Elements(c, r.ring), r) for c, r in zip(opened, masks, strict=True)]

    def count(
        self, counter: Counter, *values: Share, lattice: Lattice, meanwhile: Meanwhile
    ) -> tuple[Sequence[Share], list[Masked]]:
        """Count the opening."""
        meanwhile([Elements.unknown(_of_secret(x, lattice), x.ring) for x in values])
        return values, [unknown_masked(x.shape, x.ring) for x in values]


def _of_secret(x: Elements, lattice: Lattice) -> tuple[int, ...]:
    """Return the shape of the secrets of vectors."""
    return (*x.shape[:-1], lattice.degree)


def _mask(secret: _Kind, error: _Kind, lattice: Lattice) -> _Kind:
    assert error.shape[-1] == lattice.rows
    return secret.under(lattice.spread, lattice.rows) + error


hide = Hide()
