"""Histograms: sums of masked vectors by buckets that only their owners know, without an opening.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
is in bucket b or below, so M x has the sums over the rows that go left at cut b. It publishes
E = M - A once, with A known only to the owner and the dealer. For a masked vector x = F - r,

    M x = M F - M r = M F - E r - A r

The owner computes M F, each participant computes E times its share of r, and the dealer derives
A r.

If r = P s + e is a sample of ring-LWE (`lattice_mask`), the owner publishes E = M P - A instead,
and

    M x + M e = M F - M P s = M F - E s - A s

requires secrets s of 2048 or 4096 numbers instead of masks of N rows. M e stays in the sums as
noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate
from privet.gates.masked.indicators import Indicators
from privet.gates.masked.value import MaskedValue
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


class IndicatorProducts:
    """Products of the indicators with masks, computed in the background during the opening.

    `start` is the `on_masks` of `mask` or `reduce_ring`. With a lattice, it is that of
    `lattice_mask`: then masks are secrets, and dealers and counters receive them, too.
    """

    def __init__(self, runtime: Runtime, indicators: Indicators) -> None:
        self._runtime = runtime
        self.indicators = indicators
        self._secrets: list[Elements] | None = [] if indicators.has_lattice_masks else None
        self._pending: Future[list[RingArray]] | None = None

    def start(self, masks: list[Elements]) -> None:
        """Start the multiplication, at a participant."""
        if self._secrets is not None:
            self._secrets = masks
        if isinstance(self._runtime, Party):
            self._pending = self._runtime.submit_background(lambda: self._times(masks))

    def list_factors(self, vectors: Sequence[MaskedValue]) -> list[Elements]:
        """Return the masks or secrets to multiply with, for all vectors that are not constants."""
        masks = [x.mask for x in vectors if not x.is_constant]
        if self._secrets is None:
            return masks
        assert len(masks) == len(self._secrets)
        return [s.reshape(-1, s.shape[-1]) for s in self._secrets]

    def get_results(self, vectors: Sequence[MaskedValue]) -> list[RingArray]:
        """Return the products with the vectors' masks; those of constants are zero."""
        rows = sum(self.indicators.cut_counts)
        pending, self._pending = self._pending, None
        found = iter(
            self._times(self.list_factors(vectors)) if pending is None else pending.result()
        )
        return [
            x.ring.zeros((rows, len(x.mask))) if x.is_constant else next(found) for x in vectors
        ]

    def _times(self, masks: list[Elements]) -> list[RingArray]:
        return self.indicators.multiply(0, [(r.array, r.ring) for r in masks])


class Histogram(Gate):
    """Sum masked vectors, (K, N) each, over the rows that go left at each cut of each feature.

    Returns shares of shape (C, K). Cost: no opening; corrections for the sums. Reveals: nothing.
    Error: none; with a lattice, the sum of the errors of a sum's rows.
    """

    name = "histogram"

    def deal(
        self, dealer: Dealer, products: IndicatorProducts, *vectors: MaskedValue
    ) -> list[Share]:
        """Derive A r."""
        return _derive_sums(dealer, products, vectors)

    def run(self, party: Party, products: IndicatorProducts, *vectors: MaskedValue) -> list[Share]:
        """Multiply masked indicators with mask shares, and local indicators with public parts."""
        indicators, found = products.indicators, []
        for sums, x in zip(products.get_results(vectors), vectors, strict=True):
            x.ring.add_in_place(sums, party.derived(sums.shape, x.ring).part)
            result = x.ring.negate(sums)
            for feature, order in indicators.sorted_features.items():
                result[indicators.row_slices[feature]] += order.sum_up_to_cuts(x.public.array)
            found.append(Share(result, x.ring))
        return found

    def count(
        self, counter: CostCounter, products: IndicatorProducts, *vectors: MaskedValue
    ) -> list[Share]:
        """Count the sums."""
        return _derive_sums(counter, products, vectors)


def _derive_sums(
    dealer: Dealer | CostCounter, products: IndicatorProducts, vectors: Sequence[MaskedValue]
) -> list[Share]:
    indicators, masks = products.indicators, products.list_factors(vectors)
    correlations = iter(_HistogramSums.for_masks(indicators, masks))
    found = [Share.unknown((sum(indicators.cut_counts), len(x.mask)), x.ring) for x in vectors]
    for x, sums in zip(vectors, found, strict=True):
        if x.is_constant:
            dealer.derive(_ZeroSums(sums.shape, x.ring), x.ring)
        else:
            dealer.derive(next(correlations), x.ring, *masks)
    return found


class _HistogramSums(Correlation):
    """A r for one of several masks r. All masks are inputs, so that A is read once for all of them.

    A is S + T, too; a dealer has one part of it in each matrix (`arithmetic.shares`).
    """

    def __init__(
        self,
        indicators: Indicators,
        rings: Sequence[Ring],
        position: int,
        found: dict[str, list[RingArray]],
    ) -> None:
        self._indicators, self._rings, self._position = indicators, rings, position
        self._found = found

    @classmethod
    def for_masks(cls, indicators: Indicators, masks: Sequence[Elements]) -> list[_HistogramSums]:
        """Return the correlations of all masks."""
        rings, found = [mask.ring for mask in masks], dict[str, list[RingArray]]()
        return [cls(indicators, rings, k, found) for k in range(len(masks))]

    def shape(self, *masks: Shape) -> Shape:
        """Return one for every cut and row of the mask."""
        return sum(self._indicators.cut_counts), masks[self._position][0]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply S of A, in its parts, and S of r."""
        return [self._total([s] * len(self._indicators.matrices))]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply out (S + T)(S' + T'), one part of A after the other."""
        if not held.is_first:
            return held.s_term_shares[0] + self._total([held.s_shares, held.t_parts])
        whole = [held.get_mask_share(k) for k in range(len(held.t_parts))]
        return held.s_term_shares[0] + self._total([held.t_parts, whole])

    def _total(self, factors: Sequence[Sequence[RingArray]]) -> RingArray:
        """Return the sum of the matrices, each times its factors: computed once for all masks."""
        if "sums" not in self._found:
            products = [
                self._indicators.multiply(part, list(zip(factor, self._rings, strict=True)))
                for part, factor in enumerate(factors)
            ]
            self._found["sums"] = [
                sum(each[1:], start=each[0]) for each in zip(*products, strict=True)
            ]
        return self._found["sums"][self._position]


class _ZeroSums(Correlation):
    """Sums of a mask of zeros, which are public."""

    def __init__(self, shape: Shape, ring: Ring) -> None:
        self._shape, self._ring = shape, ring

    def shape(self, *masks: Shape) -> Shape:
        """Return that of the sums."""
        return self._shape

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Share nothing."""
        return []

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Share nothing."""
        return []

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Return zeros."""
        return self._ring.zeros(self._shape)

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Return zeros."""
        return self.compute_plain()


histogram = Histogram()
