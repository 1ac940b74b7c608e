"""Lattice masks as ring-LWE says that they look: uniform.

What is assumed is that nobody can tell P s + e from uniform numbers. So here secrets are uniform,
one number for every row, P leaves them as they are, and there are no errors. All else is what it
is: what is masked by them, when, how often, and what else is sent. What is drawn in truth is tested
in tests/arithmetic/test_lattice.py.
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


class _Words:
    """A matrix over up to 64 bits, to be multiplied with any numbers."""

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


def _gather(self: RingLwe, bucket: Sequence[int], cuts: int) -> RingArray:
    below: Any = np.asarray(bucket) <= np.arange(cuts)[:, None]
    found: RingArray = below.astype(self.ring.dtype)
    return found


@contextlib.contextmanager
def uniform_lattice() -> Iterator[None]:
    """Have masks that are uniform wherever lattice ones are drawn."""
    with (
        mock.patch.object(DealtSource, "small", _small),
        mock.patch.object(SingleDealer, "small", _small),
        mock.patch.object(RingLwe, "expand_secrets", lambda self, secrets: secrets),
        mock.patch.object(RingLwe, "project_indicators", _gather),
        mock.patch("privet.arithmetic.ring_lwe.degree_for", return_value=N),
        mock.patch("privet.protocols.masked.protocol.degree_for", return_value=N),
        mock.patch("privet.gates.masked.indicators.SmallFactorMatrix", _Words),
    ):
        yield
