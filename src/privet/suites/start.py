"""What every training starts with: labels shared by their holder, and scores that it knows."""

from __future__ import annotations

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Ring
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.gates.outcomes import owned_share
from privet.runtime.runtime import Runtime


def start_share(
    runtime: Runtime,
    start: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Return a share of scores (K, N) that all start alike, from what the label's holder has: (K,).

    Nobody else knows where, and nothing is sent. To be masked.
    """
    own = None
    if start is not None:
        own = np.broadcast_to(encoding.encode(start).astype(ring.dtype)[:, None], shape)
    return owned_share(runtime, own, shape, ring)


def target_share(
    runtime: Runtime,
    active: int,
    target: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Share what scores (K, N) are compared with, which the label's holder has: its first rows."""
    encoded = None
    if target is not None:
        encoded = encoding.encode(target[:, : shape[1]]).astype(ring.dtype)
    return runtime.share(encoded, active, shape, ring)
