"""Comparison of the two secure protocols, with the paper's parameters and four parties.

    python benchmarks/protocols.py traffic           one California table by each, and the ratio
    python benchmarks/protocols.py steps             what each step of a masked table costs
    python benchmarks/protocols.py time [DATA ...]   whole trainings by `masked`, as processes over
                                                     TLS: on loopback, and at 5 ms and a shared
                                                     100 Mbit/s, beside the paper's printed times

`make bench-protocols` does all three.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from privet import Experiment, Params, Report, load_dataset, run
from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_federated
from privet.data.partition import split_frame, split_rows

PARTIES = 4


class Printed(NamedTuple):
    """One of the paper's experiments, with its printed results (Table IV)."""

    tables: int
    depth: int
    seconds: float
    gigabytes: float


PAPER = {
    "california": Printed(50, 5, 6333, 41.1),
    "credit": Printed(10, 4, 1724, 11.8),
    "breast-cancer": Printed(10, 3, 486, 0.54),
}


def train(data: str, protocol: str, tables: int, network: str) -> Report:
    """Run one experiment."""
    params = {"tables": tables, "depth": PAPER[data].depth, "buckets": 32, "learning_rate": 1.0}
    experiment = Experiment(
        data=data,
        n_parties=PARTIES,
        protocol=protocol,
        params=params,
        network=network,
        dealer_link="none",
    )
    return run(experiment)[1]


def traffic() -> None:
    """Print the traffic of one table of California for each protocol, scaled to 50."""
    tables = {"paper": 1, "masked": 2}
    reports = {name: train("california", name, count, "memory") for name, count in tables.items()}
    print("California, per table\n")
    print(f"{'':24}{'paper':>12}{'masked':>12}{'ratio':>9}")
    rows: dict[str, Callable[[Report, int], float]] = {
        "rounds": lambda r, t: r.rounds.total / t,
        "rounds a level": lambda r, _: r.rounds.per_level,
        "MB sent online": lambda r, t: r.bytes.online_total / t / 1e6,
        "MB from the dealer": lambda r, t: r.bytes.offline_total / t / 1e6,
    }
    for name, figure in rows.items():
        paper, masked = (figure(reports[p], tables[p]) for p in ("paper", "masked"))
        print(f"{name:24}{paper:12.1f}{masked:12.1f}{paper / masked:9.1f}")
    masked_report = reports["masked"]
    # An opening of x bytes is sent 2(n - 1) times in slices; the few small ones more often.
    opened = masked_report.bytes.online_total / tables["masked"] / (2 * (PARTIES - 1)) / 1e6
    print(f"\nmasked opens about {50 * opened:.0f} MB for 50 tables, counted once;")
    print(f"{masked_report.bytes.setup_total / 1e6:.1f} MB are sent once, before the first table")


STEPS = (
    "setup/publish indicators",
    "table/gradients",
    "table/level/histogram",
    "table/level/scores/sums",
    "table/level/scores/class",
    "table/level/scores/squares",
    "table/level/scores/reciprocal",
    "table/level/tournament",
    "table/level/reveal",
    "table/level/split",
    "table/level/children",
    "table/leaves",
    "table/update",
)


def steps(data: str = "california") -> None:
    """Print the cost of each step of one table on loopback."""
    loaded = load_dataset(data)
    rows, _ = split_rows(loaded.frame, 0.2, 0)
    assert rows.label is not None
    params = Params(task=loaded.task, tables=1, depth=PAPER[data].depth, learning_rate=1.0)
    parties = [
        bucket_columns(party.name, party.frame.names, party.frame.columns, params.buckets)
        for party in split_frame(rows, PARTIES)
    ]
    meters = train_federated(
        parties, rows.label, params, "masked", network="loopback"
    ).program_result.meters
    print(f"\n{data}, one table, step by step (MB of all participants, on loopback)\n")
    print(f"{'':34}{'rounds':>8}{'online':>10}{'offline':>10}{'ms':>9}")
    for step in STEPS:
        sent = sum(meter.sum_traffic("online", step).sent for meter in meters) / 1e6
        dealt = sum(meter.sum_traffic("offline", step).received for meter in meters) / 1e6
        longest = 1000 * max(meter.seconds[step] for meter in meters)
        rounds = meters[0].sum_traffic("online", step).rounds
        print(f"{step:34}{rounds:8}{sent:10.2f}{dealt:10.2f}{longest:9.0f}")


def time(names: list[str]) -> None:
    """Print the time of complete training runs."""
    print("\nmasked, whole trainings, four parties and the dealer as processes on this machine\n")
    head = ("network", "seconds", "setup", "online", "offline", "MB online", "rounds", "same tests")
    print(f"{'':16}" + "".join(f"{h:>12}" for h in head) + f"{'paper: s':>10}{'faster':>8}")
    for name in names:
        for network in ("loopback", "paper"):
            report = train(name, "masked", PAPER[name].tables, network)
            s, b = report.seconds, report.bytes
            cells = [
                network,
                f"{s.train:.1f}",
                f"{s.setup:.1f}",
                f"{s.online:.1f}",
                f"{s.offline:.1f}",
                f"{b.online_total / 1e6:.0f}",
                f"{report.rounds.total}",
                f"{report.same_tests:.3f}",
            ]
            row = f"{name:16}" + "".join(f"{cell:>12}" for cell in cells)
            if network == "paper":
                row += f"{PAPER[name].seconds:10.0f}{PAPER[name].seconds / s.train:8.0f}"
            print(row, flush=True)
            figures = {k: (v, report.plain_metrics[k]) for k, v in report.metrics.items()}
            print(
                " " * 16
                + ", ".join(f"{k} {v:.4f} (plain {p:.4f})" for k, (v, p) in figures.items())
            )


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    choices = ["traffic", "steps", "time", "all"]
    parser.add_argument("what", choices=choices, nargs="?", default="all")
    parser.add_argument("data", nargs="*", default=list(PAPER))
    arguments = parser.parse_args()
    if arguments.what in ("traffic", "all"):
        traffic()
    if arguments.what in ("steps", "all"):
        steps()
    if arguments.what in ("time", "all"):
        time(arguments.data)


if __name__ == "__main__":
    main()
