"""Squares of lifted values, which stay lifted: to be multiplied further."""

from __future__ import annotations

from privet.arithmetic.shares import Elements
from privet.gates.gate import Gate
from privet.gates.masked import Lifted
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Product


class Square(Gate):
    """Square what `lift` returns: x = c + a u, or c + a u + b t with a bit t.

    x^2 = c^2 + 2ac u + a^2 u^2, and (2bc + b^2) t + 2ab ut more; t^2 is t.

    1. The dealer derives [u^2], and [ut].

    Cost: no opening; corrections of an element or two. Reveals: nothing. Error: none; the square
    must fit the ring.
    """

    name = "square"

    def deal(self, dealer: Dealer, x: Lifted) -> Lifted:
        """Derive the products of masks."""
        return _unknown(x, _derived(dealer, x))

    def run(self, party: Party, x: Lifted) -> Lifted:
        """Square what is public."""
        more = [party.derived(x.shape, x.ring) for _ in x.masks]
        c, a = x.public.array, x.coefficients[0].array
        public, coefficients = c * c, [2 * a * c]
        if len(x.masks) == 2:
            b = x.coefficients[1].array
            coefficients += [2 * b * c + b * b, a * a, 2 * a * b]
        else:
            coefficients.append(a * a)
        return Lifted(
            Elements(public, x.ring),
            (*x.masks, *more),
            tuple(Elements(each, x.ring) for each in coefficients),
        )

    def count(self, counter: Counter, x: Lifted) -> Lifted:
        """Count the products."""
        return _unknown(x, _derived(counter, x))


def _derived(dealer: Dealer | Counter, x: Lifted) -> tuple[Elements, ...]:
    times = Product(x.ring, x.ring.multiply)
    return tuple(dealer.derive(times, x.ring, x.masks[0], m, kept=True) for m in x.masks)


def _unknown(x: Lifted, more: tuple[Elements, ...]) -> Lifted:
    unknown = Elements.unknown(x.shape, x.ring)
    return Lifted(unknown, (*x.masks, *more), (unknown,) * (len(x.masks) + len(more)))


square = Square()
