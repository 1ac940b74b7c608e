"""What levels gain: the score of the best test, rounded, for the label's holder alone."""

from __future__ import annotations

import numpy as np

from privet.arithmetic.exact import floor_log2
from privet.arrays import FloatArray
from privet.suites.masked.candidates import units_of_score
from privet.suites.masked.scales import Scales

GAIN_BITS = 16
"""Bits of a score that are told, where it is as large as the first table's can be: later ones are
smaller, in the same unit."""
_BEYOND = 4  # times what a classification starts from, scores are still computed with


def told_drop(scales: Scales) -> int:
    """Return how many low bits of a score nobody is told."""
    largest = scales.score_limit if scales.proven else scales.score_limit / _BEYOND
    return max(1, floor_log2(largest * units_of_score(scales)) - GAIN_BITS)


class Gains:
    """The gains of one table, level by level, as far as somebody is told the scores."""

    def __init__(self, scales: Scales) -> None:
        self._unit = float((1 << told_drop(scales)) / units_of_score(scales))
        # The score of the one node before the first test is taken as zero: tables start where first
        # derivatives add up to zero, or nearly so.
        self._scores = [0]

    def add(self, score: int | None) -> None:
        """Take the score of the next level; None, if it tests nothing: then nodes stay alike."""
        self._scores.append(self._scores[-1] if score is None else score)

    def found(self) -> FloatArray:
        """Return by how much each level lowers the loss, to second order: (depth,)."""
        return np.diff(np.array(self._scores)) * (self._unit / 2)
