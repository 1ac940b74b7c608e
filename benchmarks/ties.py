"""Rounding errors of candidate scores, which can swap candidates with close scores.

    python benchmarks/ties.py california,credit,breast-cancer --seeds 2

Trains by `masked`, reconstructs every candidate's score from all shares, and compares it with the
exact score of the same rounded gradients. The result is the relative error among candidates within
a tenth of the best, the share of the reference's splits, and the gap of the two best candidates.
"""

from __future__ import annotations

import argparse
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from privet import Experiment, run
from privet.arithmetic.rings import signed
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.protocols.masked.rows import RowSums
from privet.protocols.masked.split_search import SplitSearch

SIZES = {"california": (50, 5), "credit": (10, 4), "breast-cancer": (10, 3)}


class Recorder:
    """Recorder of all participants' shares of sums and scores at each level."""

    def __init__(self) -> None:
        self.levels: dict[int, dict[int, list[Any]]] = defaultdict(dict)
        self._lock = threading.Lock()
        self._count: dict[int, int] = defaultdict(int)

    def watching(
        self, scores: Callable[[SplitSearch, RowSums], Share]
    ) -> Callable[[SplitSearch, RowSums], Share]:
        """Return a recording replacement for the protocol's method."""

        def recording_scores(cuts: SplitSearch, sums: RowSums) -> Share:
            share_of_scores = scores(cuts, sums)
            runtime, index = cuts._runtime, cuts._runtime.index
            if index >= 0:
                assert cuts._gradient_sums is not None
                assert cuts._hessian_sums is not None
                masked = (
                    cuts._gradient_sums.left,
                    cuts._hessian_sums.left,
                    cuts._gradient_sums.total,
                    cuts._hessian_sums.total,
                )
                shares = [share_of_scores, *(x.to_share(runtime) for x in masked)]
                with self._lock:
                    level = self._count[index]
                    self._count[index] += 1
                    parts = [(share.part.copy(), share.ring) for share in shares]
                    self.levels[level][index] = [*parts, cuts._scales, cuts._tie_break]
            return share_of_scores

        return recording_scores


def errors(level: dict[int, list[Any]]) -> tuple[float, float]:
    """Return the standard deviation of relative score errors, and the gap of the two best."""
    scales, tie_break = next(iter(level.values()))[5:]
    units = scales.units
    l2 = scales.l2 / 2.0 ** (units.h_bits + scales.y_bits)

    def real(i: int, bits: int) -> FloatArray:
        ring = next(iter(level.values()))[i][1]
        total = sum(parts[i][0].astype(np.uint64) for parts in level.values())
        spare = np.uint64(64 - ring.bits)
        return np.asarray(signed(total << spare) / 2.0 ** (bits + int(spare)))

    g, h = real(1, units.g_bits), real(2, units.h_bits)
    all_g, all_h = real(3, units.g_bits), real(4, units.h_bits)
    exact = (g**2 / (h + l2) + (all_g - g) ** 2 / (all_h - h + l2)).sum((1, 2))
    ratio = real(0, 0) / (exact * tie_break.reshape(-1))
    near = ratio[exact >= 0.9 * exact.max()]
    best = np.sort(exact, axis=None)[::-1]
    gap = next((1 - other / best[0] for other in best[1:] if other < best[0] * (1 - 1e-12)), 1.0)
    return float(np.std(near / np.median(near))), float(gap)


def main() -> None:
    """Measure on data sets and splits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default=",".join(SIZES))
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    print(
        f"{'data':>14} {'seed':>4} {'levels':>6} {'same tests':>10} {'closest gap':>11} "
        f"{'error, median':>13} {'of 99 %':>8}"
    )
    for name in arguments.data.split(","):
        tables, depth = SIZES.get(name, (5, 4))
        params = {"tables": tables, "depth": depth, "buckets": 32, "l2": 1.0, "learning_rate": 1.0}
        for seed in range(arguments.seeds):
            recorder = Recorder()
            with mock.patch.object(
                SplitSearch, "_compute_scores", recorder.watching(SplitSearch._compute_scores)
            ):
                _, report = run(
                    Experiment(data=name, n_parties=4, network="memory", seed=seed, params=params)
                )
            found = [errors(level) for _, level in sorted(recorder.levels.items())]
            noise, gaps = zip(*found, strict=True)
            print(
                f"{name:>14} {seed:>4} {len(found):>6} {report.same_tests:>10.3f} "
                f"{min(gaps):>11.1e} {np.median(noise):>13.1e} {np.quantile(noise, 0.99):>8.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
