"""Comparison of the splits of `masked` with those of the reference, and the gaps of candidates.

    python -m benchmarks.same_tests [DATA ...] [--seeds 10] [--other-seeds 3] [--quick]

Trains by `masked`, four participants as threads of this process, on several splits into training
and test rows: the paper's data sets with its parameters, others with those of Credit. Then the
reference replays the training run: at each level it scores all candidates on the nodes of `masked`,
and continues with the split that `masked` chose. Two splits are equal if they divide all training
rows in the same way.

Rounding can swap candidates whose relative score difference is below 3e-6. The exit code is 1 if a
chosen split has a score further from the best. `ties.py` measures the rounding errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.rows import PAPER
from benchmarks.public_data import OTHERS, load
from privet import Params
from privet.arrays import BucketArray, FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.model import Model
from privet.boosting.reference import round_for_exact_sums, score_candidates, sum_by_bucket
from privet.boosting.simulation import train_locally
from privet.data.partition import split_frame, split_rows

NAME = "same-tests"
CLOSE = 3e-6
"""Relative score difference below which rounding can swap candidates."""
_EQUAL = 1e-9
"""Relative difference of scores of equal splits, from the last bits of float64."""
_SIZES = {name: (printed.tables, printed.depth) for name, printed in PAPER.items()}
_OTHER_SIZES = _SIZES["credit"]
_PARTIES = 4
_QUICK_ROWS = 500

Test = tuple[int, int]


@dataclass(frozen=True)
class Level:
    """One level of a trained table."""

    data: str
    seed: int
    table: int
    level: int
    runner_up: float
    """Relative gap of the second best candidate's score to the best."""
    chosen: float
    """Relative gap of the chosen split's score; 0 if it is the reference's."""
    differs: bool


def levels_of(data: str, seed: int, params: Params, rows: int = 0) -> Iterator[Level]:
    """Train on one split; yield the reference's judgement of every level."""
    frame, _ = split_rows(load(data).frame, 0.2, seed)
    if rows:
        frame = frame.take(np.arange(min(rows, frame.n_samples)))
    assert frame.label is not None
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in split_frame(frame, _PARTIES)
    ]
    model = train_locally(parties, frame.label, params, "masked")
    buckets = np.concatenate([party.buckets for party in parties])
    for (number, level), found in follow(model, buckets, frame.label, params):
        yield Level(data, seed, number, level, *found)


def follow(
    model: Model, buckets: BucketArray, label: FloatArray, params: Params
) -> Iterator[tuple[tuple[int, int], tuple[float, float, bool]]]:
    """Train the reference with the splits of a model; yield its judgement of each split."""
    objective = params.objective
    target = objective.make_targets(label)
    score = np.repeat(params.compute_initial_scores(label)[:, None], target.shape[1], axis=1)
    everything = np.ones(len(label), dtype=np.bool_)
    for number in range(params.tables):
        g, h = (
            round_for_exact_sums(values) for values in objective.compute_gradients(score, target)
        )
        node = np.zeros(len(label), dtype=np.intp)
        for level in range(params.depth):
            sums = sum_by_bucket(buckets, everything, node, 1 << level, g, h, params.buckets)
            test = int(model.feature[number, level]), int(model.bucket[number, level])
            yield (number, level), judge(score_candidates(sums, params), buckets, test)
            node = 2 * node + (buckets[test[0]] > test[1])
        leaf_g, leaf_h = (
            np.stack([np.bincount(node, weights=row, minlength=params.n_leaves) for row in rows])
            for rows in (g, h)
        )
        score += (-params.learning_rate * leaf_g / (leaf_h + params.l2))[:, node]


def judge(scores: FloatArray, buckets: BucketArray, test: Test) -> tuple[float, float, bool]:
    """Return the gaps of the second best and the chosen score, and whether the split differs."""
    order = np.argsort(scores, axis=None, kind="stable")
    best = _test(order[0], scores)
    if scores[best] == 0.0:  # nothing is left to learn, and all candidates are equal
        return 0.0, 0.0, False

    def gap(other: Test) -> float:
        return float(1.0 - scores[other] / scores[best])

    others = (_test(place, scores) for place in order[1:])
    second = next((o for o in others if gap(o) > _EQUAL or not _alike(buckets, best, o)), None)
    runner_up = 1.0 if second is None else gap(second)
    if _alike(buckets, best, test):
        return runner_up, 0.0, False
    return runner_up, gap(test), True


def _test(place: int, scores: FloatArray) -> Test:
    feature, bucket = divmod(int(place), scores.shape[1])
    return feature, bucket


def _alike(buckets: BucketArray, one: Test, other: Test) -> bool:
    """Return whether two splits divide all rows in the same way, up to swapped sides."""
    same = (buckets[one[0]] <= one[1]) == (buckets[other[0]] <= other[1])
    return bool(same.all() or not same.any())


def summary(levels: Sequence[Level]) -> Figures:
    """Return what is told of the levels of a data set."""
    close = [level for level in levels if level.runner_up < CLOSE]
    differ = [level for level in levels if level.differs]
    return {
        "levels": len(levels),
        "close": len(close),
        "closest": min(level.runner_up for level in levels),
        "differ": len(differ),
        "furthest_chosen": max((level.chosen for level in differ), default=0.0),
        "too_far": sum(level.chosen >= CLOSE for level in differ),
    }


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="*", default=[*_SIZES, *OTHERS])
    parser.add_argument("--seeds", type=int, default=10, help="splits of the paper's data sets")
    parser.add_argument("--other-seeds", type=int, default=3, help="splits of the others")
    parser.add_argument("--quick", action="store_true", help="500 rows, 2 tables, one seed")
    arguments = parser.parse_args()
    sets, all_levels = [], []
    for name in arguments.data:
        set_started = time.perf_counter()
        tables, depth = _SIZES.get(name, _OTHER_SIZES)
        seeds, rows = arguments.seeds if name in _SIZES else arguments.other_seeds, 0
        if arguments.quick:
            tables, seeds, rows = 2, 1, _QUICK_ROWS
        task = load(name).task
        params = Params(task=task, tables=tables, depth=depth, buckets=32, learning_rate=1.0)
        levels = [level for seed in range(seeds) for level in levels_of(name, seed, params, rows)]
        all_levels += levels
        settings = {"data": name, "seeds": seeds, "tables": tables, "depth": depth}
        sets.append({**settings, **summary(levels), "seconds": time.perf_counter() - set_started})
        print(sets[-1], flush=True)
    total = summary(all_levels)
    figures = {
        "close": CLOSE,
        "run_seconds": time.perf_counter() - started,
        "sets": sets,
        "all": total,
        "differing": [asdict(level) for level in all_levels if level.differs],
    }
    path = results(arguments.quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-same-tests"))))
    return 1 if total["too_far"] else 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    whole = figures["all"]
    yield "## The same tests as in plain text\n"
    yield (
        "`masked` rounds, so it can take one of two candidates for the other whose scores are "
        "nearly the same. Here the reference follows trainings by `masked`, of four participants, "
        "and scores every candidate of every level in plain text. The paper's data sets have its "
        f"T and D, the others T = {_OTHER_SIZES[0]} and D = {_OTHER_SIZES[1]}; B = 32, l2 = 1, "
        "learning rate 1. `close`: levels where the two best candidates that part rows "
        f"differently are closer than {figures['close']:g} of the best score; `differ`: levels "
        f"where `masked` chose another than the best. {where(figures)}\n"
    )
    rows = [[found["data"], f"{found['seeds']}", *_cells(found)] for found in figures["sets"]]
    head = ("", "splits", "levels", "closest two", "close", "differ", "furthest", "too far")
    yield from table(head, [*rows, ["all", "", *_cells(whole)]])
    yield (
        f"Of {whole['levels']:,} levels, {whole['close']} were close and {whole['differ']} have "
        "another test than the best (`furthest`: how far its score was from the best, as a share "
        f"of it); {whole['too_far'] or 'none'} where that was {figures['close']:g} or more (`too "
        f"far`). The run took {figures['run_seconds'] / 60:.1f} minutes.\n"
    )


def _cells(found: Figures) -> list[str]:
    furthest = f"{found['furthest_chosen']:.1e}" if found["differ"] else ""
    counts = [f"{found[name]:,}" for name in ("close", "differ")]
    return [
        f"{found['levels']:,}",
        f"{found['closest']:.1e}",
        *counts,
        furthest,
        f"{found['too_far']}",
    ]


if __name__ == "__main__":
    sys.exit(main())
