"""The masks of rows' gradients and Hessians, uniform or ring-LWE, and sample weights.

Lattice masks leave errors in sums, so rows have more fraction bits than sums (`noise`), and what is
left of a row's share where bits are dropped need not be exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privet.arithmetic.exact_matmul import LimbMatrix
from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.prg import SEED_BYTES, derive_seed
from privet.arithmetic.ring_lwe import Lattice
from privet.arithmetic.rings import Ring, integers_modulo
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray, Indices
from privet.errors import ParameterError
from privet.gates.arithmetic import drop_bits
from privet.gates.gate import Later
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import owned_share
from privet.gates.masked.truncation import shrink
from privet.gates.masked.value import Masked, Meanwhile, hide, lift, mask, mask_one, signed_lift
from privet.objectives.base import SharedReal
from privet.protocols.masked.precision.rows import Units
from privet.protocols.protocol import OwnData, Suite
from privet.runtime.cost import Counter
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan


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


SEEDS = 3
"""Of every participant: one from each of three dealers. With one dealer there is less noise."""
_FEW_ROWS = 1 << 15
"""Up to so many rows there is little to be saved, and masks are uniform."""
_WORTH = 2
"""By what factor lattice masks must be less effort to be chosen, since they need to assume more."""
_PRODUCTS = 100
"""So many take as long as a byte does at 100 Mbit/s."""
_FROM_FILE = 8
"""How many times as long they take with a matrix that does not fit memory."""


def settle_masks(suite: type[Suite], plan: Plan, n_parties: int) -> Plan:
    """Return a plan whose masks are settled: as its terms say, or by what both would take."""
    noisy = replace(plan, errors=SEEDS * n_parties)
    term = _in_the_way(plan)
    if plan.params.masks == "lattice":
        if term:
            raise ParameterError(
                f"masks: masked has no lattice masks with {term}: leave one of them out"
            )
        return noisy
    if plan.params.masks == "uniform" or term or plan.n_samples <= _FEW_ROWS:
        return plan
    effort, other = (_effort_if_any(suite, each, n_parties) for each in (noisy, plan))
    if other is None:  # if lattice masks will not do, either, that is said of them
        return noisy
    return noisy if effort is not None and _WORTH * effort < other else plan


def _effort_if_any(suite: type[Suite], plan: Plan, n_parties: int) -> float | None:
    """Return what a training takes, or None if it cannot be had with these masks."""
    try:
        return _effort(suite, plan, n_parties)
    except ParameterError:
        return None


def _effort(suite: type[Suite], plan: Plan, n_parties: int) -> float:
    """Return about how many bytes a training takes, and its products as if they were bytes."""
    counter = Counter(n_parties)
    training = suite(counter, replace(plan, kept=None), OwnData())  # the same in all trainings
    training.setup()
    setup = counter.total
    training.train_table(0)
    both = counter.total
    table = both.online + both.offline - setup.online - setup.offline
    products = suite.multiplications(plan) / _PRODUCTS
    if not plan.errors and not LimbMatrix.fits(sum(plan.cuts), plan.n_samples):
        products *= _FROM_FILE
    each = table + products
    return setup.online + plan.params.tables * each


def _in_the_way(plan: Plan) -> str:
    """Return the term that lattice masks do not go with, if any."""
    if plan.weighted and plan.objective.unit_curvature:
        return "a regression's weights"
    return "subsample" if plan.n_drawn < plan.n_samples else ""


class Weights:
    """The weights of all samples, which the label's holder knows."""

    masked: Masked
    """(1, 1, N)."""

    def __init__(
        self, runtime: Runtime, units: Units, own: FloatArray | None, n_samples: int
    ) -> None:
        """Mask them: one opening."""
        self._runtime = runtime
        self._bits, ring = units.weights
        encoded = None
        if own is not None:
            encoded = FixedPoint(self._bits).encode(own).astype(ring.dtype).reshape(1, 1, -1)
        self.masked = mask_one(runtime, owned_share(runtime, encoded, (1, 1, n_samples), ring))
        self._lifted = lift(runtime, self.masked)

    def times(self, x: Masked, bits: int, rows: Indices) -> SharedReal:
        """Return what rows have with so many fraction bits, (K, 1, rows), times their weights."""
        factors = [signed_lift(self._runtime, x), self._lifted.take(rows)]
        product = polynomial(self._runtime, factors, [(1, (0, 1))])
        return SharedReal(product, bits + self._bits)
