"""Cost of three dealers compared with one: bytes, processor time and time, in the same run.

    python -m benchmarks.dealers [--quick]

The paper's data sets and parameters, four participants, a few tables each by `masked`. Rounds and
bytes at participants must be equal for one and three dealers; estimated bytes between dealers must
equal the metered ones. Dealers are online on loopback, online at 1 ms and 1 Gbit/s with a separate
link for each dealer and between dealers, or offline (preprocessing). Times are those of tables,
without the start of processes. All processes share the cores of one machine: with fewer cores than
processes, times depend more on the machine than on the protocol.

Writes docs/results/dealers.json (a quick run: build/quick).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.rows import PAPER
from benchmarks.options import BASE, PARTIES, PROTOCOL, Task, task_of
from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import FederatedResult, train_federated, train_locally

NAME = "dealers"
NETWORK = "1,1000"
WAYS = {"loopback": ("loopback", False), "live": (NETWORK, False), "ahead": (NETWORK, True)}
"""The network of the dealers' bytes, and whether they are preprocessed."""
TABLES = 12
"""Tables of each training run: every dealer has every role four times."""
DEALERS = (1, 3)


def run(task: Task, tables: int, dealers: int, way: str) -> FederatedResult:
    """Train with one or three dealers."""
    params, _ = task.with_option(BASE, tables)
    network, ahead = WAYS[way]
    inputs = task.parties, task.label, params, PROTOCOL
    return train_federated(*inputs, network=network, n_dealers=dealers, offline=ahead)


def measure(task: Task, tables: int) -> Figures:
    """Return the results of a data set; raise ArithmeticError if counts differ."""
    params, _ = task.with_option(BASE, tables)
    plain = train_locally(task.parties, task.label, params)
    found: Figures = {"data": task.data, "samples": len(task.label), "tables": tables}
    rows = []
    metered = []
    for dealers in DEALERS:
        training_spec = task.make_training_spec(BASE, tables)
        counted = estimate_cost(
            training_spec, training_spec.make_plan(len(task.label)), dealers=dealers
        )
        for way in WAYS:
            federated = run(task, tables, dealers, way)
            outcome = federated.program_result
            online = [meter.sum_traffic("online") for meter in outcome.meters]
            dealt = sum(meter.sum_traffic("offline").received for meter in outcome.meters)
            metered.append((online[0].rounds, sum(each.sent for each in online), dealt))
            between = [meter.sum_traffic("online").sent for meter in outcome.dealer_meters]
            if sum(between) != counted.dealer_bytes:
                raise ArithmeticError(f"between dealers: {between}, counted {counted.dealer_bytes}")
            model = join_parts(federated.parts)
            same = int(((model.feature == plain.feature) & (model.bucket == plain.bucket)).sum())
            rows.append(
                {
                    "dealers": dealers,
                    "way": way,
                    "same_tests": same,
                    "tests": int(model.feature.size),
                    "online": metered[-1][1],
                    "dealt": dealt,
                    "between": between,
                    "dealer_seconds": outcome.dealer_seconds,
                    "seconds": max(meter.seconds["table"] for meter in outcome.meters),
                    "ahead_seconds": outcome.ahead_seconds,
                }
            )
            print(rows[-1], flush=True)
    if len(set(metered)) != 1:
        raise ArithmeticError(f"{task.data}: participants' rounds and bytes differ: {metered}")
    return {**found, "rounds": metered[0][0], "runs": rows}


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="300 rows, 3 tables, one data set")
    quick = parser.parse_args().quick
    names = ["breast-cancer"] if quick else list(PAPER)
    sets = [
        measure(task_of(data, 300 if quick else None), 3 if quick else TABLES) for data in names
    ]
    figures: Figures = {
        "sets": sets,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    path = results(quick) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-dealers"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    tables = figures["sets"][0]["tables"]
    yield "## Three dealers\n"
    yield (
        f"Trainings of {tables} tables with the paper's parameters by `masked`, {PARTIES} "
        "participants, with one dealer and with three, of whom none knows a mask. Participants "
        "take the same rounds and bytes, to the byte; what dealers say to each other was counted "
        "before, and metered the same. Seconds are those of tables, without the start of "
        "processes: live on loopback; live at 1 ms and 1 Gbit/s, each dealer on a link of its own, "
        "and two of them with a line between them at that rate each way, all emulated; and dealt "
        "ahead, with what that took before. "
        f"All processes share {figures['cores']} cores. "
        f"{where(figures)}\n"
    )
    head = (
        "",
        "dealers",
        "tests as in the clear",
        "MB a table: between participants",
        "dealt",
        "between dealers",
        "dealers' processor s a table",
        "s a table: loopback",
        "1 ms, 1 Gbit/s",
        "dealt ahead",
        "(before)",
    )
    rows = []
    for found in figures["sets"]:
        count = found["tables"]
        for dealers in DEALERS:
            ways = {r["way"]: r for r in found["runs"] if r["dealers"] == dealers}
            live = ways["loopback"]
            rows.append(
                [
                    found["data"] if dealers == DEALERS[0] else "",
                    str(dealers),
                    f"{live['same_tests']} of {live['tests']}",
                    f"{live['online'] / count / 1e6:.1f}",
                    f"{live['dealt'] / count / 1e6:.1f}",
                    f"{sum(live['between']) / count / 1e6:.1f}" if dealers > 1 else "",
                    f"{live['dealer_seconds'] / count:.2f}",
                    *(f"{ways[way]['seconds'] / count:.2f}" for way in WAYS),
                    f"{ways['ahead']['ahead_seconds'] / count:.2f}",
                ]
            )
    yield from table(head, rows)
    yield f"All of it took {figures['run_seconds'] / 60:.1f} minutes.\n"


if __name__ == "__main__":
    sys.exit(main())
