"""One training run behind an emulated link, with results as JSON; `benchmarks.link` runs it.

    python benchmarks/link_run.py SRC TABLES.npz california paper ahead

It requires only numpy and the dependencies of `privet.boosting`. SRC is the source tree to measure,
so that two versions with the same modules can be compared in one run. TABLES.npz contains training
columns (J, N), labels and test columns by data set: NAME_x, NAME_y, NAME_t.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SIZES = {
    "california": ("regression", 50, 5),
    "credit": ("classification", 10, 4),
    "breast-cancer": ("classification", 10, 3),
}
"""Task, tables and depth of the paper's experiments."""
PARTIES = 4
# Options of a run for each dealer mode.
DEALERS: dict[str, dict[str, Any]] = {
    "ahead": {"ahead": True},
    "own": {"dealer_link": "own"},
    "shared": {"dealer_link": "shared"},
    "none": {"dealer_link": "none"},
}
# Arguments of `train_federated` that have another name than their option.
ARGUMENTS = {"ahead": "offline", "cuts": "cut_disclosure"}


def main() -> None:
    """Train, and print the cost."""
    tree, tables, data, network, dealer, *more = sys.argv[1:]
    sys.path.insert(0, tree)
    os.environ["PYTHONPATH"] = tree
    import numpy as np

    from privet.boosting.binning import bucket_columns
    from privet.boosting.model_part import join_parts
    from privet.boosting.simulation import train_federated, train_locally
    from privet.spec.params import Params

    with np.load(tables) as found:
        columns, label, new = (found[f"{data}_{kind}"] for kind in "xyt")
    task, count, depth = SIZES[data]
    params = Params(task=task, tables=count, depth=depth, learning_rate=1.0)
    column_groups = np.array_split(np.arange(len(columns)), PARTIES)
    options = {**DEALERS[dealer], **dict(pair.split("=", 1) for pair in more)}
    started = time.perf_counter()
    parties = [
        bucket_columns(f"party{k + 1}", [f"x{j}" for j in group], columns[group], params.buckets)
        for k, group in enumerate(column_groups)
    ]
    federated = train_federated(
        parties,
        label,
        params,
        "masked",
        network=network,
        new_columns=[new[group] for group in column_groups],
        **{ARGUMENTS.get(name, name): value for name, value in options.items()},
    )
    outcome = federated.program_result
    wall = time.perf_counter() - started - outcome.ahead_seconds
    meters = outcome.meters
    steps = ("setup", "table")
    working_seconds = max(sum(meter.seconds[step] for step in steps) for meter in meters)
    online = [meter.sum_traffic("online", step) for meter in meters for step in steps]
    offline = [meter.sum_traffic("offline", step) for meter in meters for step in steps]
    seconds = meters[0].seconds
    predicting = sum(seconds[name] for name in ("predict", "unit") if name in seconds)
    result = {
        "data": data,
        "network": network,
        "dealer": dealer,
        **dict(pair.split("=", 1) for pair in more),
        "seconds": wall - predicting,
        "start": wall - predicting - working_seconds,
        "dealing_ahead": outcome.ahead_seconds,
        "dealer_seconds": outcome.dealer_seconds,
        "rounds": sum(meters[0].sum_traffic("online", step).rounds for step in steps),
        "online": sum(traffic.sent for traffic in online),
        "offline": sum(traffic.received for traffic in offline),
        "same_tests": float(
            join_parts(federated.parts).compare_splits(
                train_locally(parties, label, params), columns
            )
        ),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
