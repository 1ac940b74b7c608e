"""One training at the limit of a link, as JSON: what `benchmarks.link` runs, once a row.

    python benchmarks/link_run.py SRC TABLES.npz california paper ahead

Needs numpy and what `privet.boosting` needs, of whatever version lies in SRC: so an older one can
be measured in the same run, and on a machine that has little else. TABLES.npz has training columns
(J, N), labels and test columns by data set: NAME_x, NAME_y, NAME_t.
"""

from __future__ import annotations

import inspect
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
"""The paper's: task, tables, depth."""
PARTIES = 4
# How the dealer's randomness comes: what `train_federated` is told.
DEALERS: dict[str, dict[str, Any]] = {
    "ahead": {"ahead": True},
    "own": {"dealer_link": "own"},
    "shared": {"dealer_link": "shared"},
    "none": {"dealer_link": "none"},
}


def main() -> None:
    """Train, and print what it took."""
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
    cut = np.array_split(np.arange(len(columns)), PARTIES)
    options = {**DEALERS[dealer], **dict(pair.split("=", 1) for pair in more)}
    known = inspect.signature(train_federated).parameters
    started = time.perf_counter()
    parties = [
        bucket_columns(f"party{k + 1}", [f"x{j}" for j in own], columns[own], params.buckets)
        for k, own in enumerate(cut)
    ]
    federated = train_federated(
        parties,
        label,
        params,
        "masked",
        network=network,
        new_columns=[new[own] for own in cut],
        **{name: value for name, value in options.items() if name in known},
    )
    outcome = federated.program_result
    before = getattr(outcome, "ahead_seconds", 0.0)
    wall = time.perf_counter() - started - before
    meters = outcome.meters
    steps = ("setup", "table")
    at_work = max(sum(meter.seconds[step] for step in steps) for meter in meters)
    online = [meter.sum_traffic("online", step) for meter in meters for step in steps]
    offline = [meter.sum_traffic("offline", step) for meter in meters for step in steps]
    seconds = meters[0].seconds
    predicting = sum(seconds[name] for name in ("predict", "unit") if name in seconds)
    result = {
        "data": data,
        "network": network,
        "dealer": dealer if "ahead" in known else "none",
        **dict(pair.split("=", 1) for pair in more),
        "seconds": wall - predicting,
        "start": wall - predicting - at_work,
        "dealing_ahead": before,
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
