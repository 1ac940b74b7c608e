"""The loss on validation rows: one number after every table, for the label's holder.

These rows have scores, which tables add to as to all others, and are in no sum. What the scores are
compared with never leaves its holder, but for the label of a classification, masked once.
"""

from __future__ import annotations

from copy import copy

from privet.arithmetic.exact import ceil_log2, floor_log2
from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z64, Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Share
from privet.gates.masked import Lifted, Masked, lift, mask, mask_one, signed_lift
from privet.gates.outcomes import owned_share
from privet.gates.polynomial import polynomial
from privet.gates.rounding import borrowing, exact_quotient
from privet.gates.sigmoid_series import LARGEST_SCORE, SCORE_BITS
from privet.gates.softplus_series import softplus_series
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.samples import LOSS_BITS, SCORE_WIDTH
from privet.suites.suite import OwnData
from privet.terms.objective import Losses, SharedReal
from privet.terms.plan import Plan

_LARGEST_BITS = 6
LARGEST_RESIDUAL = 1 << _LARGEST_BITS
"""In the label's unit, or twice that. A validation row's label is at most half as far from the
start (`terms.validation.FURTHEST`), and a table moves a score by less than a quarter of it."""
_MOST_FRACTION = 20
_MOST_SUM = 62  # bits of what is lifted from Z64
_LOGISTIC_BITS = 40
_LABEL = integers_modulo(2)  # a bit, and one more for lifting


class Validation(Losses):
    """The validation rows of one training, table by table."""

    def __init__(self, runtime: Runtime, plan: Plan, data: OwnData) -> None:
        self._runtime = runtime
        self._plan = plan
        target = data.target
        self._target = None if target is None else target[:, plan.n_samples :]
        self._shape = (plan.objective.outputs, plan.n_validation)
        self._scores = Share.unknown(self._shape, Z64)
        self._checked: Masked | None = None
        """What must not be negative, on its leading bits; and what it means if it is."""
        self._what = ""
        self._label: Lifted | None = None
        if plan.objective.has_classes:
            self._label = self._masked_label()

    def _masked_label(self) -> Lifted:
        """Return the label, 0 or 1, masked once a training."""
        own = None if self._target is None else self._target.astype(_LABEL.dtype)
        with self._runtime.step("validation"):
            masked = mask_one(self._runtime, owned_share(self._runtime, own, self._shape, _LABEL))
            return lift(self._runtime, masked)

    def loss(self, scores: Share) -> Share:
        """Return the mean loss at these scores of validation rows, as one number.

        1. Mask what the loss is a function of, row by row; the sum follows without an opening.
        2. Mask the sum, and compare what must lie within bounds.
        3. All learn that it does, or training ends. Divide the sum by a power of two, exactly.

        Cost: three openings, of 4 bytes a score and, in the others, of ten bits or so.
        """
        return self._at(scores)._loss()

    def _at(self, scores: Share) -> Validation:
        """Return ourselves after some table: several may be under way at once."""
        found = copy(self)
        found._scores = scores
        return found

    def _loss(self) -> Share:
        runtime, bounds = self._runtime, Bounds(self._runtime)
        total = self._plan.objective.loss_on_shares(self)
        drop = self._drop(total.bits)
        assert self._checked is not None
        masking = mask.later(total.share.reshape(1))
        (masked,) = bounds.check(self._checked, SCORE_WIDTH, self._what, masking)
        rounded = masked + (1 << (drop - 1))
        reached = bounds.settle(borrowing(rounded, drop))
        return exact_quotient(runtime, rounded, drop, reached)

    def loss_of(self, revealed: RingArray) -> float:
        """Return the mean that such a number stands for."""
        count = self._plan.n_validation
        return float(revealed[0]) * 2.0 ** (floor_log2(count) - LOSS_BITS) / count

    def _drop(self, bits: int) -> int:
        """Return how many bits a sum loses: a unit is then LOSS_BITS fraction bits of the mean."""
        return bits - LOSS_BITS + floor_log2(self._plan.n_validation)

    def half_squares(self) -> SharedReal:
        """Return half the squared residuals, in the label's unit, which their holder knows."""
        runtime, ring = self._runtime, self._scores.ring
        own = None
        if self._target is not None:
            own = FixedPoint(SCORE_BITS).encode(self._target).astype(ring.dtype)
        residual = self._scores - owned_share(runtime, own, self._shape, ring)
        bits = self._residual_bits()
        short = drop_bits(runtime, residual, SCORE_BITS - bits, _residual_ring(bits))
        masked = mask_one(runtime, short)
        self._check(masked + (LARGEST_RESIDUAL << bits), LARGEST_RESIDUAL, "residuals")
        squares = polynomial(runtime, [signed_lift(runtime, masked)], [(1, (0, 0))])
        return SharedReal(squares.sum(), 2 * bits + 1)

    def _residual_bits(self) -> int:
        """Return the fraction bits of a residual: the sum of squares must fit."""
        room = _MOST_SUM - 2 * _LARGEST_BITS - ceil_log2(self._plan.n_validation)
        return min(_MOST_FRACTION, room // 2)

    def logistic(self) -> SharedReal:
        """Return the logistic loss: half of s - 2 y s, and what is even in s, by a series."""
        runtime, label = self._runtime, self._label
        assert label is not None
        masked = mask_one(runtime, self._scores)
        self._check(masked + (LARGEST_SCORE << SCORE_BITS), LARGEST_SCORE, "scores")
        rows = ceil_log2(self._plan.n_validation * self._plan.objective.outputs)
        bits = min(_LOGISTIC_BITS, _MOST_SUM - ceil_log2(2 * LARGEST_SCORE) - rows)
        even = softplus_series(runtime, masked, bits)
        odd = polynomial(runtime, [signed_lift(runtime, masked), label], [(1, (0,)), (-2, (0, 1))])
        half_odd = SharedReal(odd.sum(), SCORE_BITS + 1)
        return SharedReal(even.sum() + half_odd.at(bits), bits)

    def _check(self, room: Masked, largest: int, values: str) -> None:
        self._checked = room
        self._what = f"validation rows' {values} of {largest} and more in size"


def _residual_ring(bits: int) -> Ring:
    """Return a ring of four times the largest residual: signed, and with room for it twice."""
    return integers_modulo(bits + _LARGEST_BITS + 2)
