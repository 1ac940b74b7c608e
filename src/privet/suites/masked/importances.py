"""Importances from contributions: how large they are on average, whatever their sign."""

from __future__ import annotations

from functools import reduce
from operator import add

from privet.arithmetic.rings import signed
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.gates.masked import mask_one, signed_lift
from privet.gates.threshold import compare, step, usual_digits
from privet.runtime.runtime import Runtime

_BLOCK = 1 << 18  # contributions whose signs are found at a time


def absolute_sums(runtime: Runtime, contributions: Share) -> Share:
    """Return shares of the sums over all rows of absolute contributions, (G, K, N) over Z32.

    1. Mask the contributions, and compare them with zero.
    2. Each is multiplied by 1 or -1, and all rows are added up: (G, K) over Z64.

    Cost: an opening of 32 bits, and one of a few more, for each contribution. Reveals: nothing.
    """
    groups, outputs, n_samples = contributions.shape
    block = max(1, _BLOCK // (groups * outputs))
    with runtime.step("importances"):
        parts = [
            _absolute(runtime, contributions[:, :, start : start + block]).sum(2)
            for start in range(0, n_samples, block)
        ]
        return reduce(add, parts)


def reveal_means(
    runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], to: int
) -> FloatArray | None:
    """Reveal means to one participant, (G, K), from sums over so many rows.

    `bits` are fraction bits: those of sums, and those that means keep, or one more. Sums are masked
    and divided by a power of two, since their low bits would say more of single rows than anybody
    agreed to.

    Cost: an opening of each sum. Reveals: the means. Error: below one unit of what is kept.
    """
    fraction_bits, keep_bits = bits
    with runtime.step("importances"):
        shift = fraction_bits - keep_bits + n_samples.bit_length() - 1
        divided = signed_lift(runtime, mask_one(runtime, total), shift=shift).share(runtime)
        revealed = runtime.reveal(divided, [to], "mean absolute contributions")
    if revealed is None:
        return None
    unit = 2.0 ** (shift - fraction_bits) / n_samples
    found: FloatArray = signed(revealed).astype(float) * unit
    return found


def _absolute(runtime: Runtime, values: Share) -> Share:
    """Return values without their signs, over Z64."""
    masked = mask_one(runtime, values)
    width = masked.ring.bits
    reached = compare(runtime, masked, thresholds=(0,), width=width, digits=usual_digits(width))
    return step(runtime, reached, signed_lift(runtime, masked), factors=(-1, 1))
