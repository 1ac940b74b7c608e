"""How derivatives of rows are masked: uniformly, or by samples of ring-LWE, which sums follow from.

Lattice masks leave errors in sums, so rows have more fraction bits than sums (`noise`), and what is
left of a row's share where bits are dropped need not be exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from privet.arithmetic.lattice import Lattice
from privet.arithmetic.prg import SEED_BYTES, derive_seed
from privet.arithmetic.rings import Ring, integers_modulo
from privet.arithmetic.shares import Share
from privet.gates.gate import Later
from privet.gates.hide import hide
from privet.gates.masked import Masked, Meanwhile, mask, signed_lift
from privet.gates.shrink import shrink
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.units import Units
from privet.terms.objective import SharedReal
from privet.terms.plan import Plan


def _seed(name: str) -> str:
    return derive_seed(bytes(SEED_BYTES), f"lattice {name}").hex()


LASTING_SEED = _seed("that lasts")
"""Of the polynomials wherever masked indicators are kept: public, and nobody chose it."""


def lattice_of(runtime: Runtime, plan: Plan, rows: int, ring: Ring) -> Lattice | None:
    """Return the public polynomials of so many rows of a training with lattice masks.

    They are new with every dealing. But where masked indicators are kept, which are made of them,
    they are the same for ever.
    """
    if not plan.errors:
        return None
    seed = LASTING_SEED if plan.kept is not None else _seed(f"of {runtime.dealing_name}")
    return Lattice(seed, rows, ring.bits)


class RowMasks:
    """Masks what is summed over rows."""

    def __init__(self, runtime: Runtime, lattice: Lattice | None) -> None:
        self._runtime = runtime
        self._lattice = lattice

    def children(self, vectors: Sequence[Share], meanwhile: Meanwhile) -> list[Masked]:
        """Mask vectors that are to be summed."""
        if self._lattice is None:
            return mask(self._runtime, *vectors, meanwhile=meanwhile)
        return hide(self._runtime, *vectors, lattice=self._lattice, meanwhile=meanwhile)

    def narrowed(
        self,
        derivatives: Sequence[SharedReal],
        widths: Sequence[tuple[int, Ring]],
        meanwhile: Meanwhile,
    ) -> Later[list[Masked]]:
        """Mask derivatives that are to be summed with so many fraction bits, in such rings."""
        if self._lattice is None:
            return narrowed(self._runtime, derivatives, widths, meanwhile)
        rows = []
        for x, (fraction, ring) in zip(derivatives, widths, strict=False):
            bits = max(x.bits, fraction)
            rows.append(drop_bits(self._runtime, x.at(bits), bits - fraction, ring))
        return hide.later(*rows, lattice=self._lattice, meanwhile=meanwhile)


def narrowed(
    runtime: Runtime,
    derivatives: Sequence[SharedReal],
    widths: Sequence[tuple[int, Ring]],
    meanwhile: Meanwhile | None = None,
) -> Later[list[Masked]]:
    """Mask derivatives uniformly with so many fraction bits, in such rings."""
    rows, bits, rings = [], [], []
    for x, (fraction, ring) in zip(derivatives, widths, strict=False):
        # Of what a derivative loses, all but two bits go from the shares.
        drop = x.bits - fraction
        guard = min(2, drop)
        wide = integers_modulo(ring.bits + guard)
        rows.append(drop_bits(runtime, x.share, drop - guard, wide))
        bits.append(guard)
        rings.append(ring)
    return shrink.later(*rows, bits=bits, rings=rings, meanwhile=meanwhile)


def in_units(runtime: Runtime, units: Units, derivative: int, sums: Share) -> Share:
    """Return sums of rows' first or second derivatives, (0, 1), without rows' additional bits."""
    if derivative == 0:
        return drop_bits(runtime, sums, units.g_more, units.g_ring)
    return drop_bits(runtime, sums, units.h_more, units.h_ring)


def lifted(
    runtime: Runtime, masked: Sequence[Masked], widths: Sequence[tuple[int, Ring]]
) -> list[SharedReal]:
    """Return masked derivatives over Z64, with room for sums of any number of rows."""
    return [
        SharedReal(signed_lift(runtime, x).share(runtime), fraction)
        for x, (fraction, _) in zip(masked, widths, strict=True)
    ]
