"""Lattice masks replaced by uniform ones, from which ring-LWE makes them indistinguishable.

The assumption is that P s + e is indistinguishable from uniform numbers. Therefore secrets are
uniform here, one number for every row, P is the identity, and there are no errors. All else is
unchanged: the masked values, the order and number of masks, and all other messages. The real draws
are tested in tests/arithmetic/test_ring_lwe.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from privet.arithmetic.prg import Sampler
from privet.arithmetic.ring_lwe import RingLwe, binomial, ternary
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations.dealer import SingleDealer
from privet.runtime.correlations.source import DealtSource
from tests.privacy.cases import N


class _WordMatrix:
    """A matrix over up to 64 bits that can be multiplied with any numbers."""

    def __init__(self, rows: int, bits: int) -> None:
        self._words = np.zeros((rows, N), dtype=np.uint64)

    def fill_rows(self, start: int, rows: RingArray) -> None:
        self._words[start : start + len(rows)] = rows

    def multiply(self, *vectors: tuple[RingArray, Ring]) -> list[RingArray]:
        return [(self._words @ v.astype(np.uint64)).astype(ring.dtype) for v, ring in vectors]


def _small(
    self: DealtSource | SingleDealer, sampler: Sampler, shape: tuple[int, ...], ring: Ring
) -> Elements:
    if sampler is ternary:
        return self.uniform(shape, ring)
    assert sampler is binomial
    kind = Share if isinstance(self, DealtSource) else Elements
    return kind(ring.zeros(shape), ring)


def _project_indicators(self: RingLwe, bucket: Sequence[int], cuts: int) -> RingArray:
    below: Any = np.asarray(bucket) <= np.arange(cuts)[:, None]
    indicators: RingArray = below.astype(self.ring.dtype)
    return indicators


@contextlib.contextmanager
def uniform_lattice() -> Iterator[None]:
    """Draw uniform masks in place of lattice masks."""
    with (
        mock.patch.object(DealtSource, "small", _small),
        mock.patch.object(SingleDealer, "small", _small),
        mock.patch.object(RingLwe, "expand_secrets", lambda self, secrets: secrets),
        mock.patch.object(RingLwe, "project_indicators", _project_indicators),
        mock.patch("privet.arithmetic.ring_lwe.degree_for", return_value=N),
        mock.patch("privet.protocols.masked.protocol.degree_for", return_value=N),
        mock.patch("privet.gates.masked.indicators.SmallFactorMatrix", _WordMatrix),
    ):
        yield
