"""Growth of the plaintext training time with samples, features and tables.

Each series doubles one of the three and prints the seconds a unit of work (a sample, feature and
table), which are flat where the cost is linear. Small sizes pay a fixed cost per table.

    python benchmarks/reference_cost.py            up to 1,000,000 x 50
    python benchmarks/reference_cost.py --quick    a tenth of that
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from privet import Params
from privet.boosting.binning import bucket_columns
from privet.boosting.reference import train_plaintext

DEPTH, BUCKETS = 5, 32


def measure(n_samples: int, n_features: int, tables: int) -> tuple[float, float]:
    """Return the seconds that bucketing and training take on random data."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((n_features, n_samples))
    label = columns[0] + rng.standard_normal(n_samples)
    params = Params(task="regression", tables=tables, depth=DEPTH, buckets=BUCKETS)
    start = time.perf_counter()
    party = bucket_columns("party1", [f"x{j}" for j in range(n_features)], columns, BUCKETS)
    bucketed = time.perf_counter()
    train_plaintext([party], label, params)
    return bucketed - start, time.perf_counter() - bucketed


def main() -> None:
    """Print the three series."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    most = 100_000 if parser.parse_args().quick else 1_000_000
    series = {
        "samples": [(most // 8 * k, 50, 2) for k in (1, 2, 4, 8)],
        "features": [(most // 4, j, 2) for j in (6, 12, 25, 50)],
        "tables": [(most // 4, 12, t) for t in (1, 2, 4, 8)],
    }
    print(f"depth {DEPTH}, {BUCKETS} buckets, regression")
    for varied, sizes in series.items():
        print(
            f"\n{varied:>9}: {'N':>9} {'J':>4} {'T':>4} {'bucketing':>10} {'training':>9} ns/unit"
        )
        for n_samples, n_features, tables in sizes:
            bucketing, training = measure(n_samples, n_features, tables)
            unit = 1e9 * training / (n_samples * n_features * tables)
            print(
                f"{'':>9}  {n_samples:>9,} {n_features:>4} {tables:>4} "
                f"{bucketing:>8.2f} s {training:>7.2f} s {unit:>7.1f}"
            )


if __name__ == "__main__":
    main()
