"""Every gate: its value, within its derived bound, and its measured and counted cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import BIT_RING, Z32, Z64, Ring, signed
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerError, PeerMisbehavedError
from privet.gates.arithmetic import multiply_fixed_point, truncate
from privet.gates.beaver import multiply, square
from privet.gates.permute import permute
from privet.protocols.paper.gates import (
    bits_to_arithmetic,
    extract_msb,
    less_than,
    packed_length,
    unpack_bits,
)
from privet.runtime.cost import Cost, count_program_cost
from privet.runtime.local.launcher import simulate
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from tests.runtime.harness import View, check_count, measured, play
from tests.runtime.test_party import opening_cost

PARTIES = (2, 3, 5)
SHAPES = ((), (0,), (1,), (7,), (3, 4))
EXTREME = [0, 1, 2**64 - 1, 2**63, 2**63 - 1, 2**62, 2**62 - 1, 2**32, 2**32 - 1]


def values(shape: tuple[int, ...], ring: Ring, seed: int) -> np.ndarray:
    """Random elements, some of them extreme."""
    rng = np.random.default_rng(seed)
    uniform = rng.integers(0, (1 << ring.bits) - 1, shape, dtype=ring.dtype, endpoint=True)
    extreme = rng.choice(np.array(EXTREME, dtype=np.uint64), shape).astype(ring.dtype)
    return np.where(rng.random(shape) < 0.5, extreme, uniform).astype(ring.dtype)


def split(value: np.ndarray, ring: Ring, n: int, seed: int) -> list[np.ndarray]:
    """Split a value into n uniform shares."""
    rng = np.random.default_rng(seed)
    top = (1 << ring.bits) - 1
    parts = rng.integers(0, top, (n - 1, *value.shape), dtype=ring.dtype, endpoint=True)
    return [*parts, ring.subtract(value, ring.sum(parts, 0))]


def body(
    runtime: Runtime,
    parts: list[np.ndarray] | None,
    gate: Callable[..., Share],
    likes: list[np.ndarray],
    rings: list[Ring],
) -> Any:
    """Run a gate on shares that were split beforehand; return the local part of the result."""
    if isinstance(runtime, Party):
        assert parts is not None
        shares = [Share(part, ring) for part, ring in zip(parts, rings, strict=True)]
        return gate(runtime, *shares).part
    shares = [Share.unknown(like.shape, ring) for like, ring in zip(likes, rings, strict=True)]
    return gate(runtime, *shares)


def run(
    gate: Callable[..., Share], inputs: list[np.ndarray], rings: list[Ring], n: int, out: Ring
) -> tuple[np.ndarray, Cost, list[View]]:
    """Return the result and the cost of a gate; check that a counter counts the same cost."""
    shares = [split(v, r, n, seed) for seed, (v, r) in enumerate(zip(inputs, rings, strict=True))]
    program = partial(body, gate=gate, likes=inputs, rings=rings)
    views = play(program, n, [[parts[k] for parts in shares] for k in range(n)])
    for view in views:
        assert view.ledger.entries == []  # no gate reveals anything
    check_count(program, views)
    result = out.sum(np.stack([view.result for view in views]), 0)
    return result, measured(views), views


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [Z64, Z32, BIT_RING], ids=lambda ring: ring.name)
def test_multiply(n: int, shape: tuple[int, ...], ring: Ring) -> None:
    x, y = values(shape, ring, 1), values(shape, ring, 2)
    result, cost, _ = run(multiply, [x, y], [ring, ring], n, ring)
    assert (result == ring.multiply(x, y)).all()
    nbytes = ring.nbytes(shape)
    assert cost == opening_cost(2 * nbytes, n) + Cost(offline_bytes=nbytes)


@pytest.mark.parametrize("n", PARTIES)
def test_multiply_broadcasts(n: int) -> None:
    x, y = values((3, 1), Z64, 1), values((2, 1, 4), Z64, 2)
    result, cost, _ = run(multiply, [x, y], [Z64, Z64], n, Z64)
    assert (result == x * y).all()
    assert cost == opening_cost(8 * (3 + 8), n) + Cost(offline_bytes=8 * 24)


@pytest.mark.parametrize("n", PARTIES)
def test_multiply_in_slices(n: int) -> None:
    """Large enough to be opened by reduce-scatter and all-gather."""
    x, y = values((10_001,), Z64, 1), values((10_001,), Z64, 2)
    result, cost, _ = run(multiply, [x, y], [Z64, Z64], n, Z64)
    assert (result == x * y).all()
    assert cost == opening_cost(8 * 20_002, n) + Cost(offline_bytes=8 * 10_001)
    assert cost.rounds == (1 if n == 2 else 2)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [Z64, Z32], ids=lambda ring: ring.name)
def test_square(n: int, shape: tuple[int, ...], ring: Ring) -> None:
    x = values(shape, ring, 1)
    result, cost, _ = run(square, [x], [ring], n, ring)
    assert (result == ring.multiply(x, x)).all()
    assert cost == opening_cost(ring.nbytes(shape), n) + Cost(offline_bytes=ring.nbytes(shape))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [*SHAPES, (9_001,)])
@pytest.mark.parametrize("bits", [1, 20, 32])
def test_truncate(n: int, shape: tuple[int, ...], bits: int) -> None:
    """Over the whole range of the gate: near 2^62, the paper's protocol fails one time in four."""
    rng = np.random.default_rng(n)
    z = rng.integers(-(2**62) + 1, 2**62, shape)
    z = np.where(rng.random(shape) < 0.5, z, rng.choice([0, 1, -1, 2**62 - 1, 1 - 2**62], shape))
    result, cost, _ = run(partial(truncate, dropped_bits=bits), [z.view(np.uint64)], [Z64], n, Z64)
    low = signed(result)
    # Each of n shifts rounds down by less than one, and n // 2 units are added.
    assert ((z >> bits) - (n - 1) + n // 2 <= low).all()
    assert (low <= (z >> bits) + n // 2).all()
    assert cost == opening_cost(Z64.nbytes(shape), n) + Cost(offline_bytes=2 * Z32.nbytes(shape))


@pytest.mark.parametrize("n", PARTIES)
def test_fixed_point_products(n: int) -> None:
    """Half a unit from each encoding, times the other factor, and n/2 units of truncation."""
    code = FixedPoint()
    rng = np.random.default_rng(0)
    x, y = rng.normal(scale=300, size=500), rng.normal(scale=300, size=500)

    def product(runtime: Runtime, a: Share, b: Share) -> Share:
        return multiply_fixed_point(runtime, a, b, bits=code.fraction_bits)

    result, cost, _ = run(product, [code.encode(x), code.encode(y)], [Z64, Z64], n, Z64)
    openings = opening_cost(8 * 1000, n) + opening_cost(8 * 500, n)
    assert cost == openings + Cost(offline_bytes=8 * 500 + 8 * 500)
    bound = code.resolution * (n - n // 2 + (np.abs(x) + np.abs(y)) / 2 + code.resolution)
    assert (np.abs(code.decode(result) - x * y) <= bound).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("count", [0, 1, 8, 13, 100])
def test_most_significant_bit(n: int, count: int) -> None:
    x = values((count,), Z64, 3)
    result, cost, _ = run(extract_msb, [x], [Z64], n, BIT_RING)
    assert (unpack_bits(result, count) == (x >> np.uint64(63))).all()
    # 63 bits for every number beyond two; then 63 again, and the 62 nodes of a tree, of which all
    # but the last need the product of propagates, too.
    products = 63 * (n - 2) + 63 + 62 + 61
    assert cost.offline_bytes == products * packed_length(count)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_rounds_of_most_significant_bit(n: int) -> None:
    """An adder of 64 bits in 1 + 6 rounds, after the rounds that reduce n numbers to two."""
    carry_save = {2: 0, 3: 1, 4: 2, 5: 3, 8: 4}[n]
    x = Share.unknown((8,), Z64)
    assert count_program_cost(extract_msb, n, x).rounds == carry_save + 7


def test_known_costs() -> None:
    """Costs are fixed here, so that a change is detected."""
    x, y = Share.unknown((8,), Z64), Share.unknown((20,), Z64)
    assert count_program_cost(extract_msb, 2, x) == Cost(7, 622, 186)
    assert count_program_cost(extract_msb, 3, x) == Cost(8, 2622, 249)
    assert count_program_cost(extract_msb, 5, x) == Cost(10, 13_780, 375)
    assert count_program_cost(less_than, 2, y, y) == Cost(8, 1872, 718)
    assert count_program_cost(less_than, 5, y, y) == Cost(11, 41_400, 1285)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [(0,), (1,), (13,), (2, 13)])
@pytest.mark.parametrize("ring", [Z64, Z32], ids=lambda ring: ring.name)
def test_bits_to_arithmetic(n: int, shape: tuple[int, ...], ring: Ring) -> None:
    count = shape[-1]
    packed = (*shape[:-1], packed_length(count))
    x = values(packed, BIT_RING, 5)
    gate = partial(bits_to_arithmetic, count=count, ring=ring)
    result, cost, _ = run(gate, [x], [BIT_RING], n, ring)
    assert (result == unpack_bits(x, count)).all()
    assert cost == opening_cost(x.nbytes, n) + Cost(offline_bytes=ring.nbytes(shape))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [Z64, Z32], ids=lambda ring: ring.name)
def test_less_than(n: int, shape: tuple[int, ...], ring: Ring) -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(-(2**62), 2**62, shape)
    y = np.where(rng.random(shape) < 0.7, rng.integers(-(2**62), 2**62, shape), x)
    y = np.where(rng.random(shape) < 0.2, x + 1, y)
    inputs = [x.astype(np.int64).view(np.uint64), y.astype(np.int64).view(np.uint64)]
    result, cost, _ = run(partial(less_than, ring=ring), inputs, [Z64, Z64], n, ring)
    assert (result == (x < y)).all()
    assert result.shape == shape
    sign = count_program_cost(extract_msb, n, Share.unknown((x.size,), Z64))
    number = opening_cost(packed_length(x.size), n) + Cost(offline_bytes=ring.nbytes(shape))
    assert cost == sign + number


def permute_input(
    runtime: Runtime,
    data: tuple[list[np.ndarray], np.ndarray] | None,
    owners: list[int],
    shape: tuple[int, ...],
    ring: Ring,
) -> Any:
    """Each participant inputs its permutations, and its part of x."""
    if not isinstance(runtime, Party):
        return permute(runtime, Share.unknown(shape, ring), [None] * len(owners), owners)
    assert data is not None
    permutations, part = data
    local = [p if o == runtime.index else None for p, o in zip(permutations, owners, strict=True)]
    return permute(runtime, Share(part, ring), local, owners).part


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("owners", [[], [0], [1, 1, 0], [0, 1, 1, 0, 1]])
@pytest.mark.parametrize("length", [0, 1, 50])
@pytest.mark.parametrize("ring", [Z64, Z32, BIT_RING], ids=lambda ring: ring.name)
def test_permute(n: int, owners: list[int], length: int, ring: Ring) -> None:
    rng = np.random.default_rng(7)
    shape = (len(owners), 3, length)
    permutations = [rng.permutation(length) for _ in owners]
    x = values(shape, ring, 8)
    inputs = [(permutations, part) for part in split(x, ring, n, 9)]
    views = play(partial(permute_input, owners=owners, shape=shape, ring=ring), n, inputs)
    result = ring.sum(np.stack([view.result for view in views]), 0)
    for j, permutation in enumerate(permutations):
        assert (result[j] == x[j][:, permutation]).all()
    sent = len(owners) * (3 * ring.nbytes((length,)) + 4 * length)
    assert measured(views) == Cost(1, (n - 1) * sent, ring.nbytes(shape))
    check_count(partial(permute_input, owners=owners, shape=shape, ring=ring), views)


def test_invalid_permutation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions out of range come from a peer, which the error names."""
    monkeypatch.setattr(
        Party,
        "open_to_owners",
        lambda *_: ({}, [np.full(4, 9, dtype=np.uint32)]),
    )
    x = np.zeros((1, 1, 4), dtype=np.uint64)
    program = partial(permute_input, owners=[1], shape=x.shape, ring=Z64)
    with pytest.raises(PeerMisbehavedError, match="party2: sent no permutation"):
        play(program, 2, [([np.arange(4)], x)] * 2)


@pytest.mark.parametrize("n", [4, 6, 7, 8])
def test_more_participants(n: int) -> None:
    x, y = values((20,), Z64, 1) >> np.uint64(2), values((20,), Z64, 2) >> np.uint64(2)
    result, cost, _ = run(less_than, [x, y], [Z64, Z64], n, Z64)
    assert (result == (x < y)).all()
    assert cost == count_program_cost(less_than, n, *[Share.unknown((20,), Z64)] * 2)
    result, _, _ = run(multiply, [x, y], [Z64, Z64], n, Z64)
    assert (result == x * y).all()
    z = run(partial(truncate, dropped_bits=20), [x], [Z64], n, Z64)[0]
    assert ((x >> np.uint64(20)) + np.uint64(n // 2) - z <= np.uint64(n - 1)).all()


def run_with_difference(runtime: Runtime, _: object, difference: str) -> None:
    """One participant runs a gate with another option, or reveals to other recipients."""
    odd = isinstance(runtime, Party) and runtime.index == 1
    x = runtime.share_public(np.zeros(4, dtype=np.uint64), Z64)
    truncate(runtime, x, dropped_bits=10 if odd and difference == "option" else 20)
    owners = [1 if odd and difference == "owner" else 0]
    permute(runtime, x.reshape(1, 1, 4), [np.arange(4)], owners)
    recipients = [0, 1] if odd and difference == "recipients" else [1, 0]
    runtime.reveal(x, recipients=recipients, disclosure="x")


@pytest.mark.parametrize("difference", ["option", "owner", "recipients"])
def test_different_options_are_detected(difference: str) -> None:
    with pytest.raises((CorrelationError, PeerError), match="lost step"):
        play(partial(run_with_difference, difference=difference), 2)
    play(partial(run_with_difference, difference="nothing"), 2)


def _reveal_signs(runtime: Runtime, _: object) -> Any:
    x = runtime.share_public(np.arange(-5, 5).view(np.uint64), Z64)
    y = runtime.share_public(np.zeros(10, dtype=np.uint64), Z64)
    return runtime.reveal(less_than(runtime, x, y), recipients=[0], disclosure="signs")


def test_the_same_gates_run_between_processes() -> None:
    outcome = simulate(_reveal_signs, 3, network="loopback")
    assert outcome.results[0].tolist() == [1] * 5 + [0] * 5
