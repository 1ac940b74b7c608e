"""The loss on validation rows: one number after every table, for the label holder.

Tables are added to the scores of these rows, which are in no sum of gradients. The target of the
scores never leaves the label holder, except for the label of a classification, which is masked
once.
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
"""The largest residual, in the label's unit or twice that. The label of a validation row is at most
half as far from the initial score (`spec.sampling.MAX_LABEL_DISTANCE`), and a table moves a score
by less than a quarter of it."""
_MAX_FRACTION_BITS = 20
_MAX_SUM_BITS = 62  # bits of values that can be lifted from Z64
_LOGISTIC_BITS = 40
_LABEL = get_integer_ring(2)  # a bit, and one more for lifting


class ValidationSum(NamedTuple):
    """The sum of the losses of some validation rows, and their range check."""

    loss: SharedFixedPoint
    range_checked: MaskedValue
    """The values whose leading bits must not be negative."""
    problem: str
    """The problem if one is negative."""


class ValidationRows(SharedLosses):
    """The validation rows of one training run, or of a shard, table by table."""

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
            self._label = self._mask_label()

    def _mask_label(self) -> LiftedValue:
        """Return the label, 0 or 1, masked once in a training run."""
        encoded = None if self._target is None else self._target.astype(_LABEL.dtype)
        with self._runtime.step("validation"):
            masked = mask_value(
                self._runtime, share_trivially(self._runtime, encoded, self._shape, _LABEL)
            )
            return lift(self._runtime, masked)

    def sum_losses(self, scores: Share) -> ValidationSum:
        """Return the sum of the losses of validation rows at these scores.

        The input of the loss is masked, row by row; the sum follows without an opening.

        Cost: one opening of about 4 bytes a score.
        """
        rows = copy(self)  # several tables can be in progress at once
        rows._scores = scores
        loss = self._plan.objective.compute_shared_loss(rows)
        assert rows._checked is not None
        return ValidationSum(loss, *rows._checked)

    def sum_half_squares(self) -> SharedFixedPoint:
        """Return half the sum of squared residuals, in the label's unit."""
        runtime, ring = self._runtime, self._scores.ring
        encoded = None
        if self._target is not None:
            encoded = FixedPoint(SCORE_BITS).encode(self._target).astype(ring.dtype)
        residual = self._scores - share_trivially(runtime, encoded, self._shape, ring)
        bits = self._count_residual_bits()
        truncated = truncate_locally(runtime, residual, SCORE_BITS - bits, _get_residual_ring(bits))
        masked = mask_value(runtime, truncated)
        self._check(masked + (MAX_RESIDUAL << bits), MAX_RESIDUAL, "residuals")
        squares = polynomial(runtime, [lift_signed(runtime, masked)], [(1, (0, 0))])
        return SharedFixedPoint(squares.sum(), 2 * bits + 1)

    def _count_residual_bits(self) -> int:
        """Return the fraction bits of a residual with which the sum of squares fits."""
        headroom = _MAX_SUM_BITS - 2 * _MAX_RESIDUAL_BITS - ceil_log2(self._plan.n_validation)
        return min(_MAX_FRACTION_BITS, headroom // 2)

    def sum_logistic_losses(self) -> SharedFixedPoint:
        """Return the sum of logistic losses: (s - 2 y s) / 2 plus a term even in s, by a series."""
        runtime, label = self._runtime, self._label
        assert label is not None
        masked = mask_value(runtime, self._scores)
        self._check(masked + (MAX_SCORE << SCORE_BITS), MAX_SCORE, "scores")
        count_bits = ceil_log2(self._plan.n_validation * self._plan.objective.n_outputs)
        bits = min(_LOGISTIC_BITS, _MAX_SUM_BITS - ceil_log2(2 * MAX_SCORE) - count_bits)
        even = evaluate_softplus(runtime, masked, bits)
        odd = polynomial(runtime, [lift_signed(runtime, masked), label], [(1, (0,)), (-2, (0, 1))])
        half_odd = SharedFixedPoint(odd.sum(), SCORE_BITS + 1)
        return SharedFixedPoint(even.sum() + half_odd.rescale(bits), bits)

    def _check(self, headroom: MaskedValue, limit: int, values: str) -> None:
        self._checked = headroom, f"validation rows' {values} of {limit} and more in size"


def mask_and_check_sum(range_checks: RangeChecks, total: ValidationSum) -> MaskedValue:
    """Mask the sum of losses together with the range check of rows: one opening."""
    masking = mask.defer(total.loss.share.reshape(1))
    (masked,) = range_checks.check(total.range_checked, SCORE_CHECK_BITS, total.problem, masking)
    return masked


def compute_mean_loss(
    runtime: Runtime, plan: Plan, range_checks: RangeChecks, total: MaskedValue, bits: int
) -> Share:
    """Return the mean loss as one number, from a masked sum with `bits` fraction bits.

    Reveal to all participants that all values are in range, or end training. The sum is divided
    exactly by a power of two, so that the mean has about LOSS_BITS fraction bits.
    """
    drop = bits - LOSS_BITS + floor_log2(plan.n_validation)
    rounded = total + (1 << (drop - 1))
    reached = range_checks.reveal_and_require(defer_borrow_comparison(rounded, drop))
    return divide_masked_exactly(runtime, rounded, drop, reached)


def decode_mean_loss(plan: Plan, revealed: RingArray) -> float:
    """Decode a revealed mean loss."""
    count = plan.n_validation
    return float(revealed[0]) * 2.0 ** (floor_log2(count) - LOSS_BITS) / count


def _get_residual_ring(bits: int) -> Ring:
    """Return a ring of four times the largest residual: for signed numbers twice that size."""
    return get_integer_ring(bits + _MAX_RESIDUAL_BITS + 2)
