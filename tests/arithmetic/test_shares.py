from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import BIT_RING, Z8, Z32, Z36, Z64, get_integer_ring
from privet.arithmetic.shares import Elements, Share, concatenate, stack


@pytest.fixture
def share() -> Share:
    return Share(np.arange(6, dtype=np.uint64).reshape(2, 3), Z64)


def test_repr_of_a_share_shows_only_its_shape(share: Share) -> None:
    secret = Share(np.array([123456789], dtype=np.uint64), Z64)
    assert repr(secret) == str(secret) == "<Share of shape (1,) over Z64>"
    assert f"{share}" == "<Share of shape (2, 3) over Z64>"


@pytest.mark.parametrize(
    "use",
    [
        bool,
        list,
        int,
        float,
        iter,
        np.asarray,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        hash,
        lambda x: x == x,  # noqa: PLR0124
        lambda x: x != 3,
        lambda x: x < 3,
        lambda x: 3 in x,
        lambda x: np.zeros(3, dtype=np.uint64) == x,
        lambda x: x & x,
    ],
)
def test_shares_refuse_use_as_a_value(share: Share, use: Callable[[Share], Any]) -> None:
    with pytest.raises(TypeError):
        use(share)


def test_linear_operations(share: Share) -> None:
    part = share.part
    assert ((share + share).part == 2 * part).all()
    assert ((share - share).part == 0).all()
    assert ((-share).part == np.negative(part)).all()
    assert ((share * 3).part == 3 * part).all()
    assert ((-1 * share).part == np.negative(part)).all()
    factors: Any = np.array([1, 2, 3], dtype=np.uint64)
    assert ((factors * share).part == part * factors).all()
    assert (share.sum(0).part == part.sum(0)).all()
    assert share.sum().part == 15
    assert (share.cumsum(1).part == part.cumsum(1)).all()
    assert (share[1].part == part[1]).all()
    assert share[1, 2].shape == ()
    assert share.reshape(3, 2).shape == (3, 2)
    assert share.transpose(1, 0).shape == (3, 2)
    assert share.broadcast_to((4, 2, 3)).shape == (4, 2, 3)
    assert concatenate([share, share], axis=1).shape == (2, 6)
    assert stack([share, share]).shape == (2, 2, 3)
    assert len(share) == 2
    assert share.size == 6
    assert share.array is share.part


def test_elements_have_the_same_operations_as_shares() -> None:
    """Masks at the dealer and opened values have the operations of shares; results are elements."""
    values = np.arange(6, dtype=np.uint64).reshape(2, 3)
    elements = Elements(values, Z64)
    assert repr(elements) == "<Elements of shape (2, 3) over Z64>"
    results = (
        elements + elements,
        elements - elements,
        -elements,
        elements * 3,
        elements[0],
        elements.sum(1),
        elements.cumsum(0),
        elements.sum_slices([1, 3]),
        elements.reduce_to_ring(Z32),
        concatenate([elements, elements]),
        stack([elements, elements]),
    )
    for result in results:
        assert type(result) is Elements
        assert result.known
    assert (results[3].array == 3 * values).all()
    assert not hasattr(elements, "part")


@pytest.mark.parametrize("ring", [Z64, Z32, Z36], ids=lambda ring: ring.name)
def test_sums_of_slices(ring: Any) -> None:
    """Of the last axis; any slice can be empty, even the first and the last."""
    part = np.random.default_rng(0).integers(0, 1 << 32, (2, 10), dtype=np.uint64)
    share = Share(part.astype(ring.dtype), ring)
    for ends in ([10], [3, 10], [0, 4, 4, 10], [5, 10, 10], [0, 0, 10], [3, 7]):
        starts = [0, *ends[:-1]]
        expected = [ring.sum(share.part[:, i:j], 1) for i, j in zip(starts, ends, strict=True)]
        found = share.sum_slices(ends)
        assert (found.part == np.stack(expected, axis=1)).all()
        assert Share.unknown(share.shape, ring).sum_slices(ends).shape == found.shape


def test_reduce_to_a_smaller_ring(share: Share) -> None:
    big = Share(np.array([2**63 + 5, 300, 2**64 - 1], dtype=np.uint64), Z64)
    assert big.reduce_to_ring(Z32).part.tolist() == [5, 300, 2**32 - 1]
    assert big.reduce_to_ring(Z8).part.tolist() == [5, 44, 255]
    one = get_integer_ring(1)
    assert one.reduce_modulus(big.reduce_to_ring(one).part).tolist() == [1, 0, 1]
    assert big.reduce_to_ring(Z36).ring is Z36
    with pytest.raises(AssertionError):
        big.reduce_to_ring(Z32).reduce_to_ring(Z64)


def test_incompatible_elements_are_refused(share: Share) -> None:
    other = Share(np.ones((2, 3), dtype=np.uint32), Z32)
    bits = Share(np.ones(3, dtype=np.uint8), BIT_RING)
    with pytest.raises(AssertionError, match="Z64 with Z32"):
        share + other
    with pytest.raises(AssertionError, match="XOR"):
        share ^ share
    with pytest.raises(AssertionError, match="running sums"):
        bits.cumsum(0)
    with pytest.raises(TypeError):
        share + 1  # type: ignore[operator]
    with pytest.raises(AssertionError, match="uint8 in Z64"):
        Share(np.ones(3, dtype=np.uint8), Z64)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + x,
        lambda x: x - x[0],
        operator.neg,
        lambda x: x * np.ones((4, 1, 1), dtype=np.uint64),
        lambda x: x.sum(1),
        lambda x: x.sum(-1),
        lambda x: x.sum((0, 1)),
        lambda x: x.sum(),
        lambda x: x.cumsum(0),
        lambda x: x.sum_slices([1, 1, 3]),
        lambda x: x.reduce_to_ring(Z36),
        lambda x: x[1, 2],
        lambda x: x[:, 1:],
        lambda x: x[..., [0, 0, 2]],
        lambda x: x.reshape(6),
        lambda x: x.transpose(1, 0),
        lambda x: x.broadcast_to((5, 2, 3)),
        lambda x: concatenate([x, x]),
        lambda x: concatenate([x, x], axis=1),
        lambda x: stack([x, x]),
        lambda x: stack([x, x], axis=1),
        lambda x: stack([x, x], axis=2),
    ],
)
def test_unknown_elements_have_the_same_shapes(
    share: Share, operation: Callable[[Share], Share]
) -> None:
    """The dealer runs programs without data, on unknown shares, which take no memory."""
    for elements in (share, Elements(share.part, Z64)):
        known = operation(elements)  # type: ignore[arg-type]
        result = operation(type(elements).unknown(elements.shape, Z64))  # type: ignore[arg-type]
        assert result.shape == known.shape
        assert result.ring is known.ring
        assert type(result) is type(known) is type(elements)
        assert known.known
        assert not result.known
        with pytest.raises(AssertionError, match="only the shape of these elements is known here"):
            _ = result.array
    with pytest.raises(AssertionError, match="only the shape of these elements is known here"):
        _ = operation(Share.unknown(share.shape, Z64)).part


def test_unknown_elements_take_no_memory() -> None:
    huge = Share.unknown((10**6, 10**6), Z64)
    assert huge.shape == (10**6, 10**6)
    assert (huge + huge - huge).shape == (10**6, 10**6)
    assert (-huge * 3).cumsum(1).sum(0).shape == (10**6,)
    assert stack([huge, huge]).reduce_to_ring(Z32).reshape(-1).size == 2 * 10**12


def test_mixed_known_and_unknown_elements_are_unknown(share: Share) -> None:
    unknown = Share.unknown((4, 1, 3), Z64)
    for result in (share + unknown, unknown + share, unknown - share):
        assert result.shape == (4, 2, 3)
        assert not result.known
    mixed = [share, Share.unknown((2, 3), Z64)]
    assert not concatenate(mixed).known
    assert not stack(mixed).known
    assert not stack(mixed[::-1]).known
