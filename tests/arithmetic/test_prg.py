from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chi2

from privet.arithmetic.prg import SEED_BYTES, Place, Prg, derive_seed, fresh_seed
from privet.arithmetic.rings import BIT_RING, Z32, Z64, Ring, get_integer_ring

SEED = bytes(range(SEED_BYTES))
HERE = Place("test", (3, 1), 2)

rings = st.integers(1, 64).map(get_integer_ring) | st.just(BIT_RING)
sizes = st.lists(st.integers(1, 9), max_size=2)
shapes = st.builds(lambda first, last: (*first, last), sizes, st.integers(0, 40))
places = st.builds(
    Place,
    st.sampled_from(["uniform", "derived", "private for 1"]),
    st.lists(st.integers(0, 99), max_size=2).map(tuple),
    st.integers(0, 99),
)


def known_stream(seed: bytes, place: Place, count: int) -> bytes:
    """The bytes of a place, computed directly."""
    name = f"{place.kind}|{place.path}|{place.slot}".encode()
    digest = hashlib.blake2b(name, digest_size=12, person=b"privet place").digest()
    key = hashlib.blake2b(seed, digest_size=16, person=b"privet prg").digest()
    stream = Cipher(algorithms.AES128(key), modes.CTR(digest + bytes(4))).encryptor()
    return stream.update(bytes(count))


def test_stream_matches_known_bytes() -> None:
    """The first bytes are fixed, so that a version with another stream is detected."""
    expected = known_stream(SEED, HERE, 64)
    assert Prg(SEED).uniform(HERE, (8,), Z64).tobytes() == expected
    assert Prg(SEED).uniform(HERE, (64,), BIT_RING).tobytes() == expected
    assert expected[:8].hex() == "4b17b0388f661e63"


def test_a_long_draw_is_one_stream() -> None:
    """Across the pieces in which it is generated."""
    size = 3_000_001
    assert Prg(SEED).uniform(HERE, (size,), BIT_RING).tobytes() == known_stream(SEED, HERE, size)
    rows = Prg(SEED).uniform(HERE, (size,), BIT_RING, rows=slice(999_999, 2_500_000))
    assert rows.tobytes() == known_stream(SEED, HERE, size)[999_999:2_500_000]


@given(st.data(), places, shapes, rings)
def test_rows_of_a_draw_equal_those_of_the_whole(
    data: st.DataObject, place: Place, shape: tuple[int, ...], ring: Ring
) -> None:
    """For rows drawn separately, and for the whole drawn in any blocks."""
    whole = Prg(SEED).uniform(place, shape, ring)
    assert whole.shape == shape
    assert whole.dtype == ring.dtype
    ends = st.integers(0, shape[-1])
    start, stop = sorted((data.draw(ends), data.draw(ends)))
    rows = Prg(SEED).uniform(place, shape, ring, rows=slice(start, stop))
    assert rows.shape == (*shape[:-1], stop - start)
    assert rows.dtype == ring.dtype
    assert (rows == whole[..., start:stop]).all()
    prg = Prg(SEED)
    blocks = (slice(None, start), slice(start, stop), slice(stop, None))
    drawn = [prg.uniform(place, shape, ring, rows=block) for block in blocks]
    assert (np.concatenate(drawn, axis=-1) == whole).all()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (0, 0), (3, 0)])
def test_rows_of_empty_draws(shape: tuple[int, ...]) -> None:
    assert Prg(SEED).uniform(HERE, shape, Z64).shape == shape
    rows = Prg(SEED).uniform(HERE, shape, Z64, rows=slice(0, shape[-1] // 2))
    assert rows.shape == (*shape[:-1], shape[-1] // 2)


@given(
    st.lists(st.tuples(places, shapes, rings), max_size=6, unique_by=lambda draw: draw[0]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_draws_does_not_matter(
    draws: list[tuple[Place, tuple[int, ...], Ring]], random: Random
) -> None:
    prg, other = Prg(SEED), Prg(SEED)
    first = {draw: prg.uniform(*draw) for draw in draws}
    shuffled = list(draws)
    random.shuffle(shuffled)
    for draw in shuffled:
        other.permutation(Place("between", (), 0), 3)
        assert (other.uniform(*draw) == first[draw]).all()
    for draw in draws:  # nor whether it was drawn before
        assert (prg.uniform(*draw) == first[draw]).all()


def test_threads_draw_the_same() -> None:
    prg = Prg(SEED)
    draws = [Place("test", (k // 8,), k % 8) for k in range(64)]
    alone = [Prg(SEED).uniform(place, (3, 20_000), Z64) for place in draws]
    with ThreadPoolExecutor(8) as pool:
        for place, whole in zip(draws, alone, strict=True):
            blocks = [slice(start, start + 2_500) for start in range(0, 20_000, 2_500)]
            found = list(
                pool.map(lambda rows, at=place: prg.uniform(at, (3, 20_000), Z64, rows), blocks)
            )
            assert (np.concatenate(found, axis=1) == whole).all()
        together = list(pool.map(lambda place: prg.uniform(place, (3, 20_000), Z64), draws))
    for one, other in zip(together, alone, strict=True):
        assert (one == other).all()


@given(st.lists(places, min_size=2, max_size=8, unique=True))
@example([Place("a", (), 0), Place("a", (0,), 0), Place("a", (0, 0), 0)])
@example([Place("a", (1,), 12), Place("a", (1, 1), 2), Place("a", (11,), 2), Place("a", (), 112)])
@example([Place("a", (), 1), Place("a", (), 2), Place("b", (), 1)])
def test_different_places_give_different_values(distinct: list[Place]) -> None:
    prg = Prg(SEED)
    drawn = {prg.uniform(place, (32,), BIT_RING).tobytes() for place in distinct}
    assert len(drawn) == len(distinct)
    orders = {prg.permutation(place, 64).tobytes() for place in distinct}
    assert len(orders) == len(distinct)


def test_different_seeds_and_purposes_give_different_streams() -> None:
    streams = {
        Prg(seed).uniform(HERE, (32,), BIT_RING).tobytes()
        for seed in (
            SEED,
            bytes(SEED_BYTES),
            derive_seed(SEED, "a"),
            derive_seed(SEED, "b"),
            fresh_seed(),
            fresh_seed(),
        )
    }
    assert len(streams) == 6
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        Prg(b"abc")


def assert_uniform(values: np.ndarray) -> None:
    counts = np.bincount(values.reshape(-1).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.isf(1 - 1e-6, 255) < statistic < chi2.isf(1e-6, 255)


@pytest.mark.parametrize("ring", [Z64, Z32, BIT_RING], ids=lambda ring: ring.name)
def test_elements_are_uniform(ring: Ring) -> None:
    values = Prg(SEED).uniform(HERE, (1 << 16, 2), ring)
    assert values.shape == (1 << 16, 2)
    assert values.dtype == ring.dtype
    assert_uniform(values)


def test_elements_of_neighbouring_places_are_uniform() -> None:
    """Small consecutive draws, and the differences of neighbouring places."""
    prg = Prg(SEED)
    drawn = np.stack([prg.uniform(Place("test", (), k), (2, 4), Z64) for k in range(1 << 13)])
    assert_uniform(drawn)
    assert_uniform(drawn[1:] - drawn[:-1])


def test_permutations_are_uniform() -> None:
    """All 24 orders of four, about equally often."""
    prg = Prg(SEED)
    orders = [tuple(prg.permutation(Place("order", (), k), 4)) for k in range(24_000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.isf(1e-6, 23)
