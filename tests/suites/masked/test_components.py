"""Quotients, the tournament and scales: values within their bounds, costs against the meter."""

from __future__ import annotations

import numpy as np
import pytest

from privet.arithmetic.rings import Z8, Z32, Z36, Z64, Ring, signed
from privet.arithmetic.shares import Share
from privet.errors import ParameterError
from privet.gates.masked import mask
from privet.runtime.counter import Cost
from privet.runtime.runtime import Runtime
from privet.suites.masked.quotient import newton_shift, quotient, unit, whole
from privet.suites.masked.scales import Scales
from privet.suites.masked.tournament import best, group_sizes
from privet.terms.params import Params
from privet.terms.plan import Ownership, Plan
from tests.gates.test_masked import on_shares, opened
from tests.runtime.harness import measured_steps

PARTIES = (2, 3, 5)


def plan(task: str = "regression", n_samples: int = 16512, l2: float = 1.0) -> Plan:
    params = Params(task=task, tables=1, depth=3, l2=l2, learning_rate=1.0)
    return Plan(params, Ownership((0, 1), 1), n_samples)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    ("task", "n_samples", "l2"),
    [
        ("regression", 16512, 1.0),
        ("regression", 16512, 0.37),
        ("regression", 2, 1.0),
        ("regression", 10**6, 3.0),
        ("regression", 500, 1e-3),
        ("regression", 500, 1e5),
        ("classification", 24000, 1.0),
        ("classification", 455, 0.1),
        ("classification", 2 * 10**6, 1.0),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_quotient(n: int, task: str, n_samples: int, l2: float, wide: bool) -> None:
    """G / (H + l2) from the smallest to the largest H: to 2^-17.3, and a unit of what is kept."""
    scales = Scales.of(plan(task, n_samples, l2))
    ring = scales.wide_ring if wide else Z36
    rng = np.random.default_rng(0)
    count = 300
    parts = np.concatenate(
        [[0.0, 1.0], rng.random(count // 2), 2.0 ** -rng.uniform(0, 20, count - 2 - count // 2)]
    )
    h_int = np.floor(scales.h_limit * parts).astype(np.int64)
    y = h_int / 2.0**scales.h_bits + scales.l2 / 2.0 ** (scales.h_bits + scales.y_bits)
    largest = min(scales.largest_weight, 2.0**32 / 2.0**scales.g_bits / y.min())
    g_int = np.rint(y * rng.uniform(-1, 1, count) * largest * 2.0**scales.g_bits).astype(np.int64)
    g_int = np.clip(g_int, -(2**33), 2**33)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        masked_g, masked_h = mask(runtime, a, b)
        result = quotient(runtime, scales, masked_g, masked_h, ring=ring)
        return [result.value, result.numerator.share(runtime)]

    inputs: list[tuple[np.ndarray, Ring]] = [
        (g_int.view(np.uint64), Z36),
        (h_int.astype(scales.h_ring.dtype), scales.h_ring),
    ]
    (found, numerator), _, views = on_shares(body, inputs, n)
    exact = g_int / 2.0**scales.g_bits / y
    # The guess is off by 2^-10.6, by a unit of 11 bits in its argument and one of 10 in itself,
    # which Newton's step squares; then a unit of 2^-19 in the correction. G loses a unit of what
    # narrowing leaves, and one of the 30 bits that are kept of it.
    bound = np.abs(exact) * ((2**-10.6 + 2**-11 + 2**-10) ** 2 + 2**-19)
    bound += scales.largest_weight * 2.0**-28 + 2.0 ** (scales.narrowing - scales.g_bits) / y
    assert (np.abs(signed(found) * float(unit(scales)) - exact) <= bound).all()
    # The normalised G: within its bound, which is that of the largest weight, and a unit.
    shift = 64 - ring.bits
    size = np.abs(signed(numerator.astype(np.uint64) << np.uint64(shift)) >> shift)
    assert size.max() <= scales.largest_numerator + scales.top / scales.l2
    steps = measured_steps(views)
    openings = {step: cost for step, cost in steps.items() if cost.rounds}
    error_bits = whole(scales).bit_length() - min(newton_shift(scales), 0) - 8 + 2
    error = next(r for r in (Z32, Z36, Z64) if error_bits <= r.bits)
    bits = openings.pop("exponent/count reached", Cost())
    assert bits.rounds == (scales.exponents > 0)
    assert {step: Cost(c.rounds, c.online) for step, c in openings.items()} == {
        "mask": opened(n, (Z36, count), (scales.h_ring, count)),
        "exponent/lookup": opened(n, (Z8, count)),
        "normalise/mask": opened(n, (scales.y_ring, count), (ring, count)),
        "guess/mask": opened(n, (Z32, count)),
        "correction/mask": opened(n, (error, count)),
    }


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("candidates", [1, 2, 7, 31, 248])
def test_tournament(n: int, candidates: int) -> None:
    """The highest score's payload, the first one's among equals, whatever the groups."""
    rng = np.random.default_rng(candidates)
    scores = rng.integers(-4, 4, candidates) * 2**50
    carried = np.stack([np.arange(candidates), rng.integers(0, 1000, candidates)])

    def body(runtime: Runtime, share: Share) -> Share:
        return best(runtime, share, carried)

    found, cost, _ = on_shares(body, [(scores.view(np.uint64), Z64)], n)
    assert found.tolist() == carried[:, np.argmax(scores)].tolist()
    # Three openings a stage; one that is large goes in slices.
    stages = len(group_sizes(candidates))
    assert 3 * stages <= cost.rounds <= 6 * stages
    assert cost.rounds == 3 * stages or (candidates > 31 and n > 2)


def test_group_sizes() -> None:
    """Stages leave one winner, and no group has more wins than a byte holds."""
    for candidates in (1, 2, 5, 31, 248, 713, 1860, 31000, 255000):
        left = candidates
        for size in group_sizes(candidates):
            assert size <= 128
            left = -(-left // size)
        assert left == 1
    assert len(group_sizes(248)) == 2


def test_scales_leave_no_room_for_overflow() -> None:
    for task in ("regression", "classification"):
        for n_samples in (2, 100, 16512, 10**6):
            for l2 in (1e-3, 0.1, 1.0, 7.5, 1000.0):
                scales = Scales.of(plan(task, n_samples, l2))
                room = n_samples * (0.5 if task == "regression" else 1.0)
                assert room * 2.0**scales.g_bits <= 2**33
                largest = (scales.h_limit << scales.y_bits) + scales.l2
                assert scales.top / 2 <= largest
                assert largest <= scales.top < 2**35
                exact = l2 * 2.0 ** (scales.h_bits + scales.y_bits)
                assert abs(scales.l2 - exact) <= 0.5


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(ParameterError, match="protocol: masked sums gradients of at most 2097152"):
        Scales.of(plan("classification", 3 * 10**6))
    with pytest.raises(ParameterError, match=r"l2: 1e\+12"):
        Scales.of(plan(l2=1e12))
