from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from privet.arithmetic.prg import SEED_BYTES, Prg, derive_seed, fresh_seed
from privet.arithmetic.rings import BITS, Z32, Z64, Ring

SEED = bytes(range(SEED_BYTES))


def test_a_seed_determines_the_stream_however_it_is_drawn() -> None:
    whole = Prg(SEED).bytes(3_000_000)  # across the blocks that it is made in
    pieces = Prg(SEED)
    cut = np.concatenate([pieces.bytes(n) for n in (1, 0, 15, 17, 2_000_000, 999_967)])
    assert (whole == cut).all()


def test_the_stream_is_known() -> None:
    """The first bytes, so that two versions that disagree do not go unnoticed."""
    import hashlib

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = hashlib.blake2b(SEED, digest_size=16, person=b"privet prg").digest()
    expected = Cipher(algorithms.AES128(key), modes.CTR(bytes(16))).encryptor().update(bytes(64))
    assert Prg(SEED).bytes(64).tobytes() == expected
    assert expected[:4].hex() == Prg(SEED).bytes(4).tobytes().hex()


def test_different_seeds_and_purposes_give_different_streams() -> None:
    streams = {
        Prg(seed).bytes(32).tobytes()
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


@pytest.mark.parametrize("ring", [Z64, Z32, BITS], ids=lambda ring: ring.name)
def test_elements_are_uniform(ring: Ring) -> None:
    values = Prg(SEED).uniform((1 << 16, 2), ring)
    assert values.shape == (1 << 16, 2)
    assert values.dtype == ring.dtype
    counts = np.bincount(values.reshape(-1).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.isf(1 - 1e-6, 255) < statistic < chi2.isf(1e-6, 255)


def test_permutations_are_uniform() -> None:
    """All 24 orders of four, about equally often."""
    prg = Prg(SEED)
    orders = [tuple(prg.permutation(4)) for _ in range(24_000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.isf(1e-6, 23)
