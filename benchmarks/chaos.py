"""Kill a random process of a federation at a random moment, start all again, and look at the end.

    python benchmarks/chaos.py [--runs 30] [--seed 0] [--kills 1]

Every run trains Breast Cancer with a dealer and three participants as processes over TLS. A run is
good if everybody ended by itself within seconds of the kill and named who was lost, if the same
commands then finished the training, if the model has the tests of training in the clear, and if
nothing but the parts of the model is left.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from privet.boosting.binning import bucket_columns
from privet.boosting.model import Model
from privet.boosting.part import join
from privet.boosting.trainer import train
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.files.part_file import load_part
from privet.laboratory.local_federation import LocalFederation
from privet.terms.params import Params

TABLES, DEPTH = 8, 3
LATEST = 12.0
"""Seconds within which everybody must have ended after a kill."""


def interrupted(local: LocalFederation, victim: str, moment: float) -> tuple[str, list[str]]:
    """Start everybody, kill one; return where it was and what went wrong, if anything did."""
    processes = {name: local.start(name, "train", "--wait=20") for name in local.everybody}
    time.sleep(moment)
    processes[victim].kill()
    killed = time.monotonic()
    problems = []
    where = "before meeting"
    for name, process in processes.items():
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            problems.append(f"{name} hangs")
            continue
        last = said.strip().splitlines()[-1] if said.strip() else ""
        if name == victim:
            where = last or where
            continue
        # Whoever was done before the kill, or waits for somebody to come, is not disturbed by it.
        if process.returncode == 7:
            if victim not in last:
                problems.append(f"{name} does not name {victim}: {last}")
            if "not reached" not in last and time.monotonic() - killed > LATEST:
                problems.append(f"{name} took {time.monotonic() - killed:.0f} s to end")
        elif process.returncode != 0:
            problems.append(f"{name} ended with {process.returncode}: {last}")
    return where, problems


def finished(local: LocalFederation, plain: Model) -> list[str]:
    """Run the training to its end; return what is wrong with it."""
    problems = [
        f"{name} ended with {ended.code}: {ended.err.splitlines()[-1]}"
        for name, ended in local.run("train", timeout=100).items()
        if ended.code
    ]
    if problems:
        return problems
    model = join([load_part(local.part(name)).part for name in local.names])
    same = (model.feature == plain.feature) & (model.bucket == plain.bucket)
    if not same.all():
        problems.append(f"{np.count_nonzero(~same)} tests differ")
    elif np.abs(model.leaf_values - plain.leaf_values).max() > 1e-3:
        problems.append("leaf values differ")
    for name in local.names:
        left = [p.name for p in local.part(name).parent.iterdir()]
        if left != [local.part(name).name]:
            problems.append(f"{name} is left with {left}")
    return problems


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=1, help="before each training may finish")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311
    data = load_dataset("breast-cancer")
    rows, new = split_rows(data.frame, 0.2, 0)
    assert rows.label is not None
    params = Params(task=data.task, tables=TABLES, depth=DEPTH, learning_rate=1.0)
    bucketed = bucket_columns("all", rows.names, rows.columns, params.buckets)
    plain = train([bucketed], rows.label, params)
    bad = 0
    longest = 4.5
    for run in range(1, arguments.runs + 1):
        with tempfile.TemporaryDirectory(prefix="privet-chaos-") as folder:
            local = LocalFederation(Path(folder))
            local.write_tables(rows, new)
            chosen = params.model_dump(include={"tables", "depth", "learning_rate"})
            local.write_configuration(data.task, chosen)
            problems, told = [], []
            for _ in range(arguments.kills):
                victim = chance.choice(local.everybody)
                where, found = interrupted(local, victim, chance.uniform(0.5, longest))
                told.append(f"{victim} at {where[:60]!r}")
                problems += found
            problems += finished(local, plain)
        bad += bool(problems)
        print(f"run {run}: killed {', '.join(told)}: {'; '.join(problems) or 'good'}", flush=True)
    print(f"{arguments.runs - bad} of {arguments.runs} runs are good")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
