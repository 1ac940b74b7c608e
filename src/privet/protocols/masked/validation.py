"""The loss on validation rows: one number after every table, for the label's holder.

These rows have scores, which tables add to as to all others, and are in no sum. What the scores are
compared with never leaves its holder, but for the label of a classification, masked once.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from privet.arithmetic.fixed_point import FixedPoint, ceil_log2, floor_log2
from privet.arithmetic.rings import Z64, Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Share
from privet.gates.arithmetic import drop_bits
from privet.gates.masked.functions import LARGEST_SCORE, SCORE_BITS, softplus_series
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import owned_share
from privet.gates.masked.truncation import borrowing, exact_quotient
from privet.gates.masked.value import Lifted, Masked, lift, mask, mask_one, signed_lift
from privet.objectives.base import Losses, SharedReal
from privet.protocols.masked.bounds import SCORE_WIDTH, Bounds
from privet.protocols.protocol import OwnData
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan, Shard

LOSS_BITS = 16
"""Fraction bits of a revealed loss."""
_LARGEST_BITS = 6
LARGEST_RESIDUAL = 1 << _LARGEST_BITS
"""In the label's unit, or twice that. A validation row's label is at most half as far from the
start (`spec.sampling.FURTHEST`), and a table moves a score by less than a quarter of it."""
_MOST_FRACTION = 20
_MOST_SUM = 62  # bits of what is lifted from Z64
_LOGISTIC_BITS = 40
_LABEL = integers_modulo(2)  # a bit, and one more for lifting


class Total(NamedTuple):
    """The loss on some validation rows, added up, and what must hold of them."""

    loss: SharedReal
    checked: Masked
    """What must not be negative, on its leading bits."""
    what: str
    """What it means if it is."""


class Validation(Losses):
    """The validation rows of one training, or of a shard of it, table by table."""

    def __init__(self, runtime: Runtime, plan: Plan, shard: Shard, data: OwnData) -> None:
        self._runtime = runtime
        self._plan = plan
        target = data.target
        self._target = None if target is None else target[:, shard.n_samples :]
        self._shape = (plan.objective.outputs, shard.n_validation)
        self._scores = Share.unknown(self._shape, Z64)
        self._checked: tuple[Masked, str] | None = None
        self._label: Lifted | None = None
        if plan.objective.has_classes:
            self._label = self._masked_label()

    def _masked_label(self) -> Lifted:
        """Return the label, 0 or 1, masked once a training."""
        own = None if self._target is None else self._target.astype(_LABEL.dtype)
        with self._runtime.step("validation"):
            masked = mask_one(self._runtime, owned_share(self._runtime, own, self._shape, _LABEL))
            return lift(self._runtime, masked)

    def total(self, scores: Share) -> Total:
        """Return the loss at these scores of validation rows, added up.

        What it is a function of is masked, row by row; the sum follows without an opening.

        Cost: one opening of 4 bytes a score or so.
        """
        at = copy(self)  # several tables may be under way at once
        at._scores = scores
        loss = self._plan.objective.loss_on_shares(at)
        assert at._checked is not None
        return Total(loss, *at._checked)

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
        self._checked = room, f"validation rows' {values} of {largest} and more in size"


def check_total(bounds: Bounds, total: Total) -> Masked:
    """Mask the sum of losses, and compare what must lie within bounds on the way: one opening."""
    masking = mask.later(total.loss.share.reshape(1))
    (masked,) = bounds.check(total.checked, SCORE_WIDTH, total.what, masking)
    return masked


def mean_loss(runtime: Runtime, plan: Plan, bounds: Bounds, total: Masked, bits: int) -> Share:
    """Return the mean loss as one number, from a masked sum with so many fraction bits.

    All learn that what was compared is within its bounds, or training ends. The sum is divided by a
    power of two, exactly: a unit is LOSS_BITS fraction bits of the mean, then.
    """
    drop = bits - LOSS_BITS + floor_log2(plan.n_validation)
    rounded = total + (1 << (drop - 1))
    reached = bounds.settle(borrowing(rounded, drop))
    return exact_quotient(runtime, rounded, drop, reached)


def loss_of(plan: Plan, revealed: RingArray) -> float:
    """Return the mean that such a number stands for."""
    count = plan.n_validation
    return float(revealed[0]) * 2.0 ** (floor_log2(count) - LOSS_BITS) / count


def _residual_ring(bits: int) -> Ring:
    """Return a ring of four times the largest residual: signed, and with room for it twice."""
    return integers_modulo(bits + _LARGEST_BITS + 2)
