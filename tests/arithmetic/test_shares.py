from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import BITS, Z32, Z64
from privet.arithmetic.shares import Share, concatenate, stack


@pytest.fixture
def share() -> Share:
    return Share(np.arange(6, dtype=np.uint64).reshape(2, 3), Z64)


def test_a_share_shows_its_shape_and_nothing_else(share: Share) -> None:
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
def test_a_share_is_not_its_value(share: Share, use: Callable[[Share], Any]) -> None:
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


def test_what_cannot_be_combined(share: Share) -> None:
    other = Share(np.ones((2, 3), dtype=np.uint32), Z32)
    bits = Share(np.ones(3, dtype=np.uint8), BITS)
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
        lambda x: x.cumsum(0),
        lambda x: x[:, 1:],
        lambda x: x[..., [0, 0, 2]],
        lambda x: x.reshape(6),
        lambda x: x.transpose(1, 0),
        lambda x: x.broadcast_to((5, 2, 3)),
        lambda x: concatenate([x, x]),
        lambda x: stack([x, x], axis=1),
    ],
)
def test_the_dealer_follows_the_shapes(share: Share, operation: Callable[[Share], Share]) -> None:
    """Without data, and without memory: an unknown share of any size is one number."""
    unknown = Share.unknown(share.shape, Z64)
    result = operation(unknown)
    assert result.shape == operation(share).shape
    assert not result.known
    with pytest.raises(AssertionError, match="the dealer has no data"):
        _ = result.part
    assert Share.unknown((10**6, 10**6), Z64).shape == (10**6, 10**6)
