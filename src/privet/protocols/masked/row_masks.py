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
from privet.arithmetic.ring_lwe import RingLwe
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray, IndexSelection
from privet.errors import ParameterError
from privet.gates.arithmetic import truncate_locally
from privet.gates.gate import DeferredGate
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import share_trivially
from privet.gates.masked.truncation import reduce_ring
from privet.gates.masked.value import (
    MaskedValue,
    MasksCallback,
    lattice_mask,
    lift,
    lift_signed,
    mask,
    mask_value,
)
from privet.objectives.base import SharedFixedPoint
from privet.protocols.masked.precision.rows import GradientUnits
from privet.protocols.protocol import ProtocolInput, SecureProtocol
from privet.runtime.cost import CostCounter
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan


def _seed(name: str) -> str:
    return derive_seed(bytes(SEED_BYTES), f"lattice {name}").hex()


PERSISTENT_LATTICE_SEED = _seed("that lasts")
"""Of the polynomials wherever masked indicators are kept: public, and nobody chose it."""


def create_lattice(runtime: Runtime, plan: Plan, rows: int, ring: Ring) -> RingLwe | None:
    """Return the public polynomials of so many rows of a training with lattice masks.

    They are new with every dealing. But where masked indicators are kept, which are made of them,
    they are the same for ever.
    """
    if not plan.n_lattice_errors:
        return None
    seed = (
        PERSISTENT_LATTICE_SEED
        if plan.cached_owners is not None
        else _seed(f"of {runtime.randomness_id}")
    )
    return RingLwe(seed, rows, ring.bits)


class RowMasker:
    """Masks what is summed over rows."""

    def __init__(self, runtime: Runtime, lattice: RingLwe | None) -> None:
        self._runtime = runtime
        self._lattice = lattice

    def mask_children(self, vectors: Sequence[Share], on_masks: MasksCallback) -> list[MaskedValue]:
        """Mask vectors that are to be summed."""
        if self._lattice is None:
            return mask(self._runtime, *vectors, on_masks=on_masks)
        return lattice_mask(self._runtime, *vectors, lattice=self._lattice, on_masks=on_masks)

    def defer_gradient_mask(
        self,
        gradients: Sequence[SharedFixedPoint],
        formats: Sequence[tuple[int, Ring]],
        on_masks: MasksCallback,
    ) -> DeferredGate[list[MaskedValue]]:
        """Mask derivatives that are to be summed with so many fraction bits, in such rings."""
        if self._lattice is None:
            return defer_uniform_mask(self._runtime, gradients, formats, on_masks)
        rows = []
        for x, (fraction, ring) in zip(gradients, formats, strict=False):
            bits = max(x.fraction_bits, fraction)
            rows.append(truncate_locally(self._runtime, x.rescale(bits), bits - fraction, ring))
        return lattice_mask.defer(*rows, lattice=self._lattice, on_masks=on_masks)


def defer_uniform_mask(
    runtime: Runtime,
    gradients: Sequence[SharedFixedPoint],
    formats: Sequence[tuple[int, Ring]],
    on_masks: MasksCallback | None = None,
) -> DeferredGate[list[MaskedValue]]:
    """Mask derivatives uniformly with so many fraction bits, in such rings."""
    rows, bits, rings = [], [], []
    for x, (fraction, ring) in zip(gradients, formats, strict=False):
        # Of what a derivative loses, all but two bits go from the shares.
        drop = x.fraction_bits - fraction
        guard = min(2, drop)
        wide = get_integer_ring(ring.bits + guard)
        rows.append(truncate_locally(runtime, x.share, drop - guard, wide))
        bits.append(guard)
        rings.append(ring)
    return reduce_ring.defer(*rows, dropped_bits=bits, rings=rings, on_masks=on_masks)


def to_sum_units(runtime: Runtime, units: GradientUnits, derivative: int, sums: Share) -> Share:
    """Return sums of rows' first or second derivatives, (0, 1), without rows' additional bits."""
    if derivative == 0:
        return truncate_locally(runtime, sums, units.g_extra_bits, units.g_ring)
    return truncate_locally(runtime, sums, units.h_extra_bits, units.h_ring)


def lift_gradients(
    runtime: Runtime, masked: Sequence[MaskedValue], formats: Sequence[tuple[int, Ring]]
) -> list[SharedFixedPoint]:
    """Return masked derivatives over Z64, with room for sums of any number of rows."""
    return [
        SharedFixedPoint(lift_signed(runtime, x).to_share(runtime), fraction)
        for x, (fraction, _) in zip(masked, formats, strict=True)
    ]


SEEDS_PER_PARTICIPANT = 3
"""Of every participant: one from each of three dealers. With one dealer there is less noise."""
_FEW_ROWS = 1 << 15
"""Up to so many rows there is little to be saved, and masks are uniform."""
_MIN_SAVING_FACTOR = 2
"""By what factor lattice masks must be less effort to be chosen, since they need to assume more."""
_PRODUCTS = 100
"""So many take as long as a byte does at 100 Mbit/s."""
_FROM_FILE = 8
"""How many times as long they take with a matrix that does not fit memory."""


def choose_masks(protocol_type: type[SecureProtocol], plan: Plan, n_parties: int) -> Plan:
    """Return a plan whose masks are settled: as its terms say, or by what both would take."""
    noisy = replace(plan, n_lattice_errors=SEEDS_PER_PARTICIPANT * n_parties)
    term = _find_lattice_conflict(plan)
    if plan.params.masks == "lattice":
        if term:
            raise ParameterError(
                f"masks: masked has no lattice masks with {term}: leave one of them out"
            )
        return noisy
    if plan.params.masks == "uniform" or term or plan.n_samples <= _FEW_ROWS:
        return plan
    effort, other = (_effort_if_any(protocol_type, each, n_parties) for each in (noisy, plan))
    if other is None:  # if lattice masks will not do, either, that is said of them
        return noisy
    return noisy if effort is not None and _MIN_SAVING_FACTOR * effort < other else plan


def _effort_if_any(protocol_type: type[SecureProtocol], plan: Plan, n_parties: int) -> float | None:
    """Return what a training takes, or None if it cannot be had with these masks."""
    try:
        return _effort(protocol_type, plan, n_parties)
    except ParameterError:
        return None


def _effort(protocol_type: type[SecureProtocol], plan: Plan, n_parties: int) -> float:
    """Return about how many bytes a training takes, and its products as if they were bytes."""
    counter = CostCounter(n_parties)
    training = protocol_type(
        counter, replace(plan, cached_owners=None), ProtocolInput()
    )  # the same in all trainings
    training.setup()
    setup = counter.total
    training.train_table(0)
    both = counter.total
    table = both.online_bytes + both.offline_bytes - setup.online_bytes - setup.offline_bytes
    products = protocol_type.count_multiplications(plan) / _PRODUCTS
    if not plan.n_lattice_errors and not LimbMatrix.fits(sum(plan.cut_counts), plan.n_samples):
        products *= _FROM_FILE
    each = table + products
    return setup.online_bytes + plan.params.tables * each


def _find_lattice_conflict(plan: Plan) -> str:
    """Return the term that lattice masks do not go with, if any."""
    if plan.is_weighted and plan.objective.constant_hessian:
        return "a regression's weights"
    return "subsample" if plan.n_sampled < plan.n_samples else ""


class SampleWeights:
    """The weights of all samples, which the label's holder knows."""

    masked: MaskedValue
    """(1, 1, N)."""

    def __init__(
        self,
        runtime: Runtime,
        units: GradientUnits,
        local_weights: FloatArray | None,
        n_samples: int,
    ) -> None:
        """Mask them: one opening."""
        self._runtime = runtime
        self._bits, ring = units.weight_format
        encoded = None
        if local_weights is not None:
            encoded = (
                FixedPoint(self._bits).encode(local_weights).astype(ring.dtype).reshape(1, 1, -1)
            )
        self.masked = mask_value(
            runtime, share_trivially(runtime, encoded, (1, 1, n_samples), ring)
        )
        self._lifted = lift(runtime, self.masked)

    def multiply(self, x: MaskedValue, bits: int, rows: IndexSelection) -> SharedFixedPoint:
        """Return what rows have with so many fraction bits, (K, 1, rows), times their weights."""
        factors = [lift_signed(self._runtime, x), self._lifted.take(rows)]
        product = polynomial(self._runtime, factors, [(1, (0, 1))])
        return SharedFixedPoint(product, bits + self._bits)
