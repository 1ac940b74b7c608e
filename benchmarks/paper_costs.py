"""Rounds and bytes of the paper's components: metered, and by the paper's formulas.

    python benchmarks/paper_costs.py            one table of California Housing, four parties
    python benchmarks/paper_costs.py credit     one table of another data set

The second table sums the paper's formulas for all tables of its three experiments, and compares the
sums with the traffic in the paper's Table IV.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import NamedTuple

from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_federated
from privet.data.datasets import load_dataset
from privet.data.partition import split_frame, split_rows
from privet.runtime.accounting import Meter, Traffic
from privet.spec.params import Params

PARTIES = 4
BUCKETS = 32
WORD = 8
"""Bytes of an element of Z_2^64, and of a position in a permutation."""


class Experiment(NamedTuple):
    """One of the paper's experiments."""

    tables: int
    depth: int
    samples: int
    """Training rows: four fifths."""
    features: int
    classification: bool
    printed_gb: float


PAPER = {
    "california": Experiment(50, 5, 16512, 8, False, 41.1),
    "credit": Experiment(10, 4, 24000, 23, True, 11.8),
    "breast-cancer": Experiment(10, 3, 456, 30, True, 0.54),
}


@dataclass(frozen=True)
class Formulas:
    """Bytes of one table by the paper's text.

    The paper does not define how it counts traffic. These formulas count a value opened to all as
    one word from each participant, and a value opened to one participant as one word from each
    other.
    """

    run: Experiment

    @property
    def nodes(self) -> int:
        """Number of split nodes on all levels."""
        return (1 << self.run.depth) - 1

    multiply = PARTIES * 2 * WORD
    truncate = (PARTIES - 1) * WORD
    share = (PARTIES - 1) * WORD

    def divide(self, count: int) -> int:
        """Count 20 iterations of two products, and one with the numerator."""
        return 41 * count * (self.multiply + self.truncate)

    def permute(self) -> int:
        """Count, for each feature and node, g and h: the masked permutation, and the opening."""
        vectors = 2 * self.nodes * self.run.features
        return vectors * self.run.samples * 2 * (PARTIES - 1) * WORD

    def split(self) -> int:
        """Count two indicators a level; four products a node."""
        indicators = 2 * self.run.depth * self.run.samples * self.share
        return indicators + 4 * self.nodes * self.run.samples * self.multiply

    def scores(self) -> int:
        """Count a division and a product for both sides of each candidate."""
        count = 2 * self.nodes * self.run.features * (BUCKETS - 1)
        return self.divide(count) + count * (self.multiply + self.truncate)

    def argmin(self) -> int:
        """Count a comparison each but one, of 64-bit numbers in a prefix adder: 13 ANDs a bit."""
        comparisons = self.run.features * (BUCKETS - 2) + self.run.features - 1
        return self.run.depth * comparisons * 13 * 64 * 2 * PARTIES // 8

    def infer(self) -> int:
        """Count a vector of 2^D shared for each level, and D products of them."""
        elements = self.run.depth * self.run.samples << self.run.depth
        return elements * (self.share + self.multiply)

    def gradients(self) -> int:
        """Count the sigmoid: two squarings and a division; then p(1 - p)."""
        if not self.run.classification:
            return 0
        products = 3 * self.run.samples * (self.multiply + self.truncate)
        return products + self.divide(self.run.samples)


COMPONENTS = {
    "gradients (SecSigmoid)": ("gradients", ("table/gradients",)),
    "SecDisc (SecPerm)": ("permute", ("table/level/discretize",)),
    "scores (SDiv)": ("scores", ("table/level/scores",)),
    "SecArgmin": ("argmin", ("table/level/best bucket", "table/level/best feature")),
    "SecSplit": ("split", ("table/level/split",)),
    "SecInfer": ("infer", ("table/infer",)),
    "leaf values (SDiv)": ("", ("table/leaves",)),
}


def measure(name: str) -> list[Meter]:
    """Train one table and return the participants' meters."""
    data = load_dataset(name)
    rows, _ = split_rows(data.frame, 0.2, 0)
    params = Params(task=data.task, tables=1, depth=PAPER[name].depth, learning_rate=1.0)
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, BUCKETS)
        for party in split_frame(rows, PARTIES)
    ]
    assert rows.label is not None
    return train_federated(parties, rows.label, params, "paper").program_result.meters


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", default="california", choices=PAPER)
    name = parser.parse_args().data
    meters = measure(name)
    formulas = Formulas(PAPER[name])
    print(f"One table of {name}, {PARTIES} parties (MB sent by all)\n")
    print(f"{'':26}{'rounds':>8}{'online':>10}{'offline':>10}{'paper':>10}{'seconds':>10}")
    rounds, sent, offline, printed = 0, 0, 0, 0
    for component, (formula, steps) in COMPONENTS.items():
        found = [sum((m.sum_traffic("online", step) for step in steps), Traffic()) for m in meters]
        dealt = sum(m.sum_traffic("offline", step).received for m in meters for step in steps)
        by_formula = getattr(formulas, formula)() if formula else 0
        seconds = max(sum(m.seconds[step] for step in steps) for m in meters)
        row = (sum(t.sent for t in found), dealt, by_formula)
        print(
            f"{component:26}{found[0].rounds:8}"
            + "".join(f"{size / 1e6:10.2f}" for size in row)
            + f"{seconds:10.2f}"
        )
        rounds, sent, offline = rounds + found[0].rounds, sent + row[0], offline + dealt
        printed += by_formula
    total = "".join(f"{size / 1e6:10.2f}" for size in (sent, offline, printed))
    print(f"{'all':26}{rounds:8}{total}")

    print("\nThe paper's formulas, all tables (GB)\n")
    names = [formula for formula, _ in COMPONENTS.values() if formula]
    print(f"{'':16}" + "".join(f"{n:>11}" for n in names) + f"{'all':>9}{'printed':>9}")
    for data, run in PAPER.items():
        sizes = [getattr(Formulas(run), n)() * run.tables / 1e9 for n in names]
        print(
            f"{data:16}"
            + "".join(f"{size:11.2f}" for size in sizes)
            + f"{sum(sizes):9.2f}{run.printed_gb:9.2f}"
        )


if __name__ == "__main__":
    main()
