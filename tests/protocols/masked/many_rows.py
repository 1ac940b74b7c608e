"""Patches that make training runs of few rows use the scales of many rows."""

from __future__ import annotations

import pytest

from privet.arithmetic import ring_lwe
from privet.errors import ParameterError
from privet.protocols.masked.precision import rows, scores
from privet.protocols.masked.precision.rows import GradientUnits
from privet.protocols.masked.precision.scores import Scales
from privet.spec.plan import Plan


def as_with_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use wide sums with many integer bits, and long polynomials."""

    def refuse(plan: Plan) -> GradientUnits:
        raise ParameterError("narrow sums are disabled")

    monkeypatch.setattr(GradientUnits, "choose_narrow", refuse)
    monkeypatch.setattr(rows, "_SLACK", rows._SLACK / 256)
    monkeypatch.setitem(ring_lwe.SAFE_MODULUS_BITS, 2048, 20)


def as_with_very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also mask gradients and Hessians once more, and check squares by two sums."""
    as_with_many_rows(monkeypatch)
    monkeypatch.setattr(rows, "_MIN_SIGMOID_BITS", 54)
    monkeypatch.setattr(scores, "WORD_BITS", 8)
    monkeypatch.setattr(Scales, "_do_squares_fit", lambda self, plan: True)
