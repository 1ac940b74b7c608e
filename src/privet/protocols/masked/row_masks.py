"""The masks of rows' gradients and Hessians, uniform or ring-LWE, and sample weights.

Lattice masks leave errors in sums, so rows have more fraction bits than sums (`precision.rows`).
When bits of a row's share are dropped, the result need not be exact.
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
"""The seed of the polynomials wherever masked indicators are kept: public, and chosen by no
participant."""


def create_lattice(runtime: Runtime, plan: Plan, rows: int, ring: Ring) -> RingLwe | None:
    """Return the public polynomials for the rows of a training run; None if masks are uniform.

    They are fresh in every preprocessing run. Only where masked indicators are kept, which are made
    of them, do they never change.
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
    """Masks values that are summed over rows."""

    def __init__(self, runtime: Runtime, lattice: RingLwe | None) -> None:
        self._runtime = runtime
        self._lattice = lattice

    def mask_children(self, vectors: Sequence[Share], on_masks: MasksCallback) -> list[MaskedValue]:
        """Mask the gradients and Hessians of left children."""
        if self._lattice is None:
            return mask(self._runtime, *vectors, on_masks=on_masks)
        return lattice_mask(self._runtime, *vectors, lattice=self._lattice, on_masks=on_masks)

    def defer_gradient_mask(
        self,
        gradients: Sequence[SharedFixedPoint],
        formats: Sequence[tuple[int, Ring]],
        on_masks: MasksCallback,
    ) -> DeferredGate[list[MaskedValue]]:
        """Mask gradients and Hessians of rows, in formats of fraction bits and rings."""
        if self._lattice is None:
            return defer_uniform_mask(self._runtime, gradients, formats, on_masks)
        rows = []
        for x, (fraction_bits, ring) in zip(gradients, formats, strict=False):
            bits = max(x.fraction_bits, fraction_bits)
            rows.append(
                truncate_locally(self._runtime, x.rescale(bits), bits - fraction_bits, ring)
            )
        return lattice_mask.defer(*rows, lattice=self._lattice, on_masks=on_masks)


def defer_uniform_mask(
    runtime: Runtime,
    gradients: Sequence[SharedFixedPoint],
    formats: Sequence[tuple[int, Ring]],
    on_masks: MasksCallback | None = None,
) -> DeferredGate[list[MaskedValue]]:
    """Mask gradients and Hessians uniformly, in formats of fraction bits and rings."""
    rows, guard_bits, rings = [], [], []
    for x, (fraction_bits, ring) in zip(gradients, formats, strict=False):
        # The shares drop all surplus bits but two, which the opening drops.
        drop = x.fraction_bits - fraction_bits
        guard = min(2, drop)
        wide = get_integer_ring(ring.bits + guard)
        rows.append(truncate_locally(runtime, x.share, drop - guard, wide))
        guard_bits.append(guard)
        rings.append(ring)
    return reduce_ring.defer(*rows, dropped_bits=guard_bits, rings=rings, on_masks=on_masks)


def to_sum_units(runtime: Runtime, units: GradientUnits, derivative: int, sums: Share) -> Share:
    """Return sums of gradients (`derivative` 0) or Hessians (1) without the extra bits of rows."""
    if derivative == 0:
        return truncate_locally(runtime, sums, units.g_extra_bits, units.g_ring)
    return truncate_locally(runtime, sums, units.h_extra_bits, units.h_ring)


def lift_gradients(
    runtime: Runtime, masked: Sequence[MaskedValue], formats: Sequence[tuple[int, Ring]]
) -> list[SharedFixedPoint]:
    """Return masked gradients and Hessians over Z64, with headroom for sums of any rows."""
    return [
        SharedFixedPoint(lift_signed(runtime, x).to_share(runtime), fraction_bits)
        for x, (fraction_bits, _) in zip(masked, formats, strict=True)
    ]


SEEDS_PER_PARTICIPANT = 3
"""The seeds of each participant: one from each of three dealers. With one dealer there is less
noise."""
_FEW_ROWS = 1 << 15
"""Up to this number of rows lattice masks save little, and masks are uniform."""
_MIN_SAVING_FACTOR = 2
"""Lattice masks are chosen only if they are cheaper by this factor, since they assume more."""
_PRODUCTS_PER_BYTE = 100
"""The multiplications that take as long as sending a byte at 100 Mbit/s."""
_OUT_OF_CORE_FACTOR = 8
"""The factor on the time of multiplications with a matrix that does not fit memory."""


def choose_masks(protocol_type: type[SecureProtocol], plan: Plan, n_parties: int) -> Plan:
    """Return a plan with its masks: those of the parameter `masks`, or the cheaper ones."""
    lattice_plan = replace(plan, n_lattice_errors=SEEDS_PER_PARTICIPANT * n_parties)
    conflict = _find_lattice_conflict(plan)
    if plan.params.masks == "lattice":
        if conflict:
            raise ParameterError(
                f"masks: masked has no lattice masks with {conflict}: leave one of them out"
            )
        return lattice_plan
    if plan.params.masks == "uniform" or conflict or plan.n_samples <= _FEW_ROWS:
        return plan
    lattice_cost, uniform_cost = (
        _estimate_cost_if_supported(protocol_type, each, n_parties) for each in (lattice_plan, plan)
    )
    if uniform_cost is None:  # an error about this plan is then one about lattice masks
        return lattice_plan
    if lattice_cost is not None and _MIN_SAVING_FACTOR * lattice_cost < uniform_cost:
        return lattice_plan
    return plan


def _estimate_cost_if_supported(
    protocol_type: type[SecureProtocol], plan: Plan, n_parties: int
) -> float | None:
    """Return the cost of a training run, or None if these masks do not support it."""
    try:
        return _estimate_cost(protocol_type, plan, n_parties)
    except ParameterError:
        return None


def _estimate_cost(protocol_type: type[SecureProtocol], plan: Plan, n_parties: int) -> float:
    """Return the cost of a training run in bytes, to which multiplications are converted."""
    counter = CostCounter(n_parties)
    training = protocol_type(
        counter, replace(plan, cached_owners=None), ProtocolInput()
    )  # the same in all trainings
    training.setup()
    setup = counter.total
    training.train_table(0)
    both = counter.total
    table = both.online_bytes + both.offline_bytes - setup.online_bytes - setup.offline_bytes
    products = protocol_type.count_multiplications(plan) / _PRODUCTS_PER_BYTE
    if not plan.n_lattice_errors and not LimbMatrix.fits(sum(plan.cut_counts), plan.n_samples):
        products *= _OUT_OF_CORE_FACTOR
    return setup.online_bytes + plan.params.tables * (table + products)


def _find_lattice_conflict(plan: Plan) -> str:
    """Return the setting that lattice masks do not support, or an empty string."""
    if plan.is_weighted and plan.objective.constant_hessian:
        return "a regression's weights"
    return "subsample" if plan.n_sampled < plan.n_samples else ""


class SampleWeights:
    """The masked weights of all samples, which the label holder knows."""

    masked: MaskedValue
    """(1, 1, N)."""

    def __init__(
        self,
        runtime: Runtime,
        units: GradientUnits,
        local_weights: FloatArray | None,
        n_samples: int,
    ) -> None:
        """Mask the weights: one opening."""
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
        """Return values of rows with `bits` fraction bits, (K, 1, rows), times their weights."""
        factors = [lift_signed(self._runtime, x), self._lifted.take(rows)]
        product = polynomial(self._runtime, factors, [(1, (0, 1))])
        return SharedFixedPoint(product, bits + self._bits)
