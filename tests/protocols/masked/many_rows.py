"""Trainings of few rows that take the ways of many."""

from __future__ import annotations

import pytest

from privet.arithmetic import ring_lwe
from privet.errors import ParameterError
from privet.protocols.masked.precision import rows, scores
from privet.protocols.masked.precision.rows import GradientUnits
from privet.protocols.masked.precision.scores import Scales
from privet.spec.plan import Plan


def as_with_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no narrow sums, many bits above their point, and long polynomials."""

    def none(plan: Plan) -> GradientUnits:
        raise ParameterError("narrow sums are not to be had here")

    monkeypatch.setattr(GradientUnits, "choose_narrow", none)
    monkeypatch.setattr(rows, "_SLACK", rows._SLACK / 256)
    monkeypatch.setitem(ring_lwe.SAFE_MODULUS_BITS, 2048, 20)


def as_with_very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have derivatives masked once more, too, and squares checked by two sums."""
    as_with_many_rows(monkeypatch)
    monkeypatch.setattr(rows, "_MIN_SIGMOID_BITS", 54)
    monkeypatch.setattr(scores, "WORD_BITS", 8)
    monkeypatch.setattr(Scales, "_do_squares_fit", lambda self, plan: True)
