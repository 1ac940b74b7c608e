"""The loss on validation rows: one number after every table, for the label's holder.

These rows have scores, which tables add to as to all others, and are in no sum. What the scores are
compared with never leaves its holder, but for the label of a classification, masked once.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from privet.arithmetic.fixed_point import FixedPoint, ceil_log2, floor_log2
from privet.arithmetic.rings import Z64, Ring, RingArray, get_integer_ring
from privet.arithmetic.shares import Share
from privet.gates.arithmetic import truncate_locally
from privet.gates.masked.functions import MAX_SCORE, SCORE_BITS, evaluate_softplus
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import share_trivially
from privet.gates.masked.truncation import defer_borrow_comparison, divide_masked_exactly
from privet.gates.masked.value import LiftedValue, MaskedValue, lift, lift_signed, mask, mask_value
from privet.objectives.base import SharedFixedPoint, SharedLosses
from privet.protocols.masked.bounds import SCORE_CHECK_BITS, RangeChecks
from privet.protocols.protocol import ProtocolInput
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan, Shard

LOSS_BITS = 16
"""Fraction bits of a revealed loss."""
_MAX_RESIDUAL_BITS = 6
MAX_RESIDUAL = 1 << _MAX_RESIDUAL_BITS
"""In the label's unit, or twice that. A validation row's label is at most half as far from the
start (`spec.sampling.FURTHEST`), and a table moves a score by less than a quarter of it."""
_MAX_FRACTION_BITS = 20
_MAX_SUM_BITS = 62  # bits of what is lifted from Z64
_LOGISTIC_BITS = 40
_LABEL = get_integer_ring(2)  # a bit, and one more for lifting


class ValidationSum(NamedTuple):
    """The loss on some validation rows, added up, and what must hold of them."""

    loss: SharedFixedPoint
    range_checked: MaskedValue
    """What must not be negative, on its leading bits."""
    problem: str
    """What it means if it is."""


class ValidationRows(SharedLosses):
    """The validation rows of one training, or of a shard of it, table by table."""

    def __init__(self, runtime: Runtime, plan: Plan, shard: Shard, data: ProtocolInput) -> None:
        self._runtime = runtime
        self._plan = plan
        target = data.target
        self._target = None if target is None else target[:, shard.n_samples :]
        self._shape = (plan.objective.n_outputs, shard.n_validation)
        self._scores = Share.unknown(self._shape, Z64)
        self._checked: tuple[MaskedValue, str] | None = None
        self._label: LiftedValue | None = None
        if plan.objective.is_classification:
            self._label = self._masked_label()

    def _masked_label(self) -> LiftedValue:
        """Return the label, 0 or 1, masked once a training."""
        own = None if self._target is None else self._target.astype(_LABEL.dtype)
        with self._runtime.step("validation"):
            masked = mask_value(
                self._runtime, share_trivially(self._runtime, own, self._shape, _LABEL)
            )
            return lift(self._runtime, masked)

    def sum_losses(self, scores: Share) -> ValidationSum:
        """Return the loss at these scores of validation rows, added up.

        What it is a function of is masked, row by row; the sum follows without an opening.

        Cost: one opening of 4 bytes a score or so.
        """
        at = copy(self)  # several tables may be under way at once
        at._scores = scores
        loss = self._plan.objective.compute_shared_loss(at)
        assert at._checked is not None
        return ValidationSum(loss, *at._checked)

    def sum_half_squares(self) -> SharedFixedPoint:
        """Return half the squared residuals, in the label's unit, which their holder knows."""
        runtime, ring = self._runtime, self._scores.ring
        own = None
        if self._target is not None:
            own = FixedPoint(SCORE_BITS).encode(self._target).astype(ring.dtype)
        residual = self._scores - share_trivially(runtime, own, self._shape, ring)
        bits = self._residual_bits()
        short = truncate_locally(runtime, residual, SCORE_BITS - bits, _residual_ring(bits))
        masked = mask_value(runtime, short)
        self._check(masked + (MAX_RESIDUAL << bits), MAX_RESIDUAL, "residuals")
        squares = polynomial(runtime, [lift_signed(runtime, masked)], [(1, (0, 0))])
        return SharedFixedPoint(squares.sum(), 2 * bits + 1)

    def _residual_bits(self) -> int:
        """Return the fraction bits of a residual: the sum of squares must fit."""
        room = _MAX_SUM_BITS - 2 * _MAX_RESIDUAL_BITS - ceil_log2(self._plan.n_validation)
        return min(_MAX_FRACTION_BITS, room // 2)

    def sum_logistic_losses(self) -> SharedFixedPoint:
        """Return the logistic loss: half of s - 2 y s, and what is even in s, by a series."""
        runtime, label = self._runtime, self._label
        assert label is not None
        masked = mask_value(runtime, self._scores)
        self._check(masked + (MAX_SCORE << SCORE_BITS), MAX_SCORE, "scores")
        rows = ceil_log2(self._plan.n_validation * self._plan.objective.n_outputs)
        bits = min(_LOGISTIC_BITS, _MAX_SUM_BITS - ceil_log2(2 * MAX_SCORE) - rows)
        even = evaluate_softplus(runtime, masked, bits)
        odd = polynomial(runtime, [lift_signed(runtime, masked), label], [(1, (0,)), (-2, (0, 1))])
        half_odd = SharedFixedPoint(odd.sum(), SCORE_BITS + 1)
        return SharedFixedPoint(even.sum() + half_odd.rescale(bits), bits)

    def _check(self, headroom: MaskedValue, limit: int, values: str) -> None:
        self._checked = headroom, f"validation rows' {values} of {limit} and more in size"


def mask_and_check_sum(range_checks: RangeChecks, total: ValidationSum) -> MaskedValue:
    """Mask the sum of losses, and compare what must lie within bounds on the way: one opening."""
    masking = mask.defer(total.loss.share.reshape(1))
    (masked,) = range_checks.check(total.range_checked, SCORE_CHECK_BITS, total.problem, masking)
    return masked


def compute_mean_loss(
    runtime: Runtime, plan: Plan, range_checks: RangeChecks, total: MaskedValue, bits: int
) -> Share:
    """Return the mean loss as one number, from a masked sum with so many fraction bits.

    All learn that what was compared is within its bounds, or training ends. The sum is divided by a
    power of two, exactly: a unit is LOSS_BITS fraction bits of the mean, then.
    """
    drop = bits - LOSS_BITS + floor_log2(plan.n_validation)
    rounded = total + (1 << (drop - 1))
    reached = range_checks.reveal_and_require(defer_borrow_comparison(rounded, drop))
    return divide_masked_exactly(runtime, rounded, drop, reached)


def decode_mean_loss(plan: Plan, revealed: RingArray) -> float:
    """Return the mean that such a number stands for."""
    count = plan.n_validation
    return float(revealed[0]) * 2.0 ** (floor_log2(count) - LOSS_BITS) / count


def _residual_ring(bits: int) -> Ring:
    """Return a ring of four times the largest residual: signed, and with room for it twice."""
    return get_integer_ring(bits + _MAX_RESIDUAL_BITS + 2)
