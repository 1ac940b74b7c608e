"""Profile of training on many rows: computing time of every role by activity.

    python -m benchmarks.profile_rows [--sizes 20000x20 200000x100] [--tasks regression]

`privet train` of two participants and a dealer, synthetic rows, tables of depth 5, lattice masks,
over TLS on loopback. In each process a thread samples a hundred times a second which function every
other thread runs, and its computing time since the last sample. Therefore the result is computing
time, independent of other load. The current step separates tables from the setup before them.

For comparison, CatBoost and XGBoost in plaintext on the same rows. Also an extrapolation to
training on many machines, from the costs of `privet estimate` and the measurements.

Needs catboost and xgboost. Writes docs/results/profile_rows.json (of other sizes: build/quick).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.shards import DEPTH, PARTIES, columns_of, prepare, run
from privet.boosting.cost_estimate import count_training_cost, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.training import TrainingSpec
from privet.spec.params import Params

NAME = "profile_rows"
SIZES = ["20000x20", "20000x100", "200000x20", "200000x100", "1000000x20"]
FITTED = SIZES[:4]
"""Sizes for the fit of terms in rows, features, both, and neither."""
TASKS = ["regression", "classification"]
TABLES = 3
_EVERY = 0.01
_SHOWN = 25
_CORES = 16
"""Cores of the hypothetical machines."""
_ROWS, _FEATURES, _MACHINES = 100_000_000, 200, 20
_RATES = {"10 Gbit/s": 1e10, "1 Gbit/s": 1e9}
_ROLE = "--as-role"
KINDS = {
    "arithmetic/prg": "drawing masks",
    "arithmetic/ring_lwe": "lattice masks",
    "arithmetic/packing": "packing",
    "runtime/opening": "packing",
    "transport/": "TLS and sockets",
    "gates/masked/histogram": "sums by bucket",
    "gates/masked/indicators": "sums by bucket",
    "gates/masked/routing": "splits and leaves",
    "gates/masked/fourier": "waves",
    "gates/masked/functions": "waves",
    "gates/": "other gates",
}
"""Activity by module or package; of nested calls the innermost listed one counts."""
OTHER = "all else"
ORDER = [*dict.fromkeys(KINDS.values()), OTHER]


def _by_stage() -> dict[str, dict[str, float]]:
    return {"setup": defaultdict(float), "tables": defaultdict(float)}


class Sampler(threading.Thread):
    """Sampler of the computing time of all threads by activity."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds = _by_stage()
        self.main = _by_stage()
        """The main thread's seconds: computing, waiting for a core, and wall-clock time."""
        self.functions = _by_stage()
        """Seconds by the innermost function of Privet."""
        self.stage = "setup"
        self._before: dict[int, tuple[int, int]] = {}
        self._last: dict[int, str] = defaultdict(lambda: OTHER)
        self._over = threading.Event()

    def run(self) -> None:
        """Sample until the end."""
        last_time = time.monotonic()
        while not self._over.wait(_EVERY):
            self._look()
            now = time.monotonic()
            self.main[self.stage]["wall"] += now - last_time
            last_time = now

    def end(self) -> dict[str, Any]:
        """Stop sampling; return the results."""
        self._over.set()
        self.join()
        self._look()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        return {
            "seconds": self.seconds,
            "main": self.main,
            "functions": {stage: _largest(found) for stage, found in self.functions.items()},
            "memory_mb": peak,
        }

    def _look(self) -> None:
        threads = {thread.ident: thread for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            thread = threads.get(ident)
            if thread is None or thread is self or thread.native_id is None:
                continue
            computed, queued = self._since(thread.native_id)
            # An idle pool thread has computed for its previous activity.
            kind = self._last[thread.native_id] = kind_of(frame) or self._last[thread.native_id]
            self.seconds[self.stage][kind] += computed
            self.functions[self.stage][function_of(frame)] += computed
            if thread is threading.main_thread():
                self.main[self.stage]["computing"] += computed
                self.main[self.stage]["queued"] += queued

    def _since(self, thread: int) -> tuple[float, float]:
        """Return the seconds of computing and of waiting for a core since the last sample."""
        try:
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
        except OSError:  # it has ended
            return 0.0, 0.0
        computed, queued = (int(number) for number in text.split()[:2])
        before = self._before.get(thread, (0, 0))
        self._before[thread] = computed, queued
        return (computed - before[0]) / 1e9, (queued - before[1]) / 1e9


def _largest(seconds: dict[str, float]) -> dict[str, float]:
    """Return the largest values in descending order."""
    return dict(sorted(seconds.items(), key=lambda item: -item[1])[:_SHOWN])


def kind_of(frame: FrameType | None) -> str | None:
    """Return the activity of a thread; None outside Privet."""
    activity = None
    while frame is not None:
        _, found, module = frame.f_code.co_filename.rpartition("/privet/")
        if found:
            activity = OTHER
            for prefix, kind in KINDS.items():
                if module.startswith(prefix):
                    return kind
        frame = frame.f_back
    return activity


def function_of(frame: FrameType | None) -> str:
    """Return the innermost function of Privet in a stack."""
    while frame is not None:
        _, found, module = frame.f_code.co_filename.rpartition("/privet/")
        if found:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no co_qualname
            return f"{module.removesuffix('.py')}: {name}"
        frame = frame.f_back
    return OTHER


def be_role(out: Path, arguments: list[str]) -> None:
    """Run a `privet` command in this process, and write its profile."""
    from privet.__main__ import main
    from privet.runtime.runtime import Runtime

    sampler, step = Sampler(), Runtime.step

    def traced_step(self: Runtime, name: str, number: int | None = None) -> Any:
        if name == "table":
            sampler.stage = "tables"
        return step(self, name, number)

    Runtime.step = traced_step  # type: ignore[method-assign]
    sys.argv = ["privet", *arguments]
    sampler.start()
    try:
        main()
    finally:
        out.write_text(json.dumps(sampler.end()))


def measure(rows: int, features: int, task: str) -> Figures:
    """Train once; return the profile of every role."""
    with tempfile.TemporaryDirectory(prefix="privet-profile-") as folder:
        x, label = columns_of(rows, features)
        local = prepare(Path(folder), x, label, task, tables=TABLES)
        del x, label
        paths = {name: Path(folder) / f"{name}.json" for name in local.member_names}

        def command(name: str) -> list[str]:
            prefix = [sys.executable, "-m", "benchmarks.profile_rows", _ROLE, str(paths[name])]
            return [*prefix, *local.make_command(name, "train", "--log-format=json")[3:]]

        run(local, command)
        roles = {name: json.loads(path.read_text()) for name, path in paths.items()}
        reports = [
            json.loads(local.get_report_path(n, "train").read_text()) for n in local.party_names
        ]
    return {
        "rows": rows,
        "features": features,
        "task": task,
        "tables": TABLES,
        "roles": roles,
        "sent": [report["bytes_sent"] for report in reports],
        "dealt": [report["bytes_from_dealer"] for report in reports],
        "rounds": reports[0]["rounds"],
    }


def in_the_clear(rows: int, features: int) -> dict[str, float]:
    """Return the computing seconds of a regression tree for CatBoost and XGBoost."""
    from catboost import CatBoostRegressor
    from xgboost import XGBRegressor

    x, label = columns_of(rows, features)
    kinds: dict[str, Callable[[int], Any]] = {
        "CatBoost": lambda trees: CatBoostRegressor(
            iterations=trees,
            depth=DEPTH,
            border_count=31,
            thread_count=1,  # more would count waiting for each other as computing
            verbose=False,
            allow_writing_files=False,
        ),
        "XGBoost": lambda trees: XGBRegressor(
            n_estimators=trees, max_depth=DEPTH, max_bin=32, tree_method="hist", n_jobs=1
        ),
    }

    def seconds(model: Any) -> float:
        started = time.process_time()
        model.fit(x.T, label)
        return time.process_time() - started

    few, many = 2, 22
    return {
        name: (seconds(kind(many)) - seconds(kind(few))) / (many - few)
        for name, kind in kinds.items()
    }


def on_paper(runs: list[Figures]) -> Figures:
    """Extrapolate the cost of a table with very many rows for a machine of each role."""
    fitted = [
        found
        for found in runs
        if found["task"] == "regression" and f"{found['rows']}x{found['features']}" in FITTED
    ]

    def terms(rows: float, features: float) -> list[float]:
        return [1.0, features, rows, rows * features]

    sizes = np.array([terms(found["rows"], found["features"]) for found in fitted])
    machine = np.array(terms(_ROWS / _MACHINES, _FEATURES))
    seconds = {}
    for role in ("participant", "dealer"):
        role_seconds = [
            max(_a_table(found, name) for name in names)
            for found in fitted
            for names in [set(found["roles"]) & {role} or set(found["roles"]) - {"dealer"}]
        ]
        seconds[role] = float(machine @ np.linalg.solve(sizes, role_seconds))
    half = _FEATURES // 2
    training_spec = TrainingSpec(
        protocol="masked",
        params=Params(task="regression", tables=1, depth=DEPTH, masks="lattice"),
        parties=PARTIES,
        features=tuple(Feature(f"{j}", PARTIES[j // half]) for j in range(_FEATURES)),
        active=1,
        prediction_bits=16,
        shards=_MACHINES,
    )
    plan = training_spec.make_plan(_ROWS)
    _, cost = count_training_cost(training_spec, plan)
    estimate = estimate_cost(training_spec, plan)
    return {
        "rows": _ROWS,
        "features": _FEATURES,
        "machines": _MACHINES,
        "computing": seconds,
        "rounds": cost.rounds,
        "sent": cost.online_bytes / len(PARTIES) / _MACHINES,
        "dealt": cost.offline_bytes / _MACHINES,
        "memory": estimate.memory_bytes,
        "head_memory": estimate.coordinator_memory_bytes,
        "scratch": estimate.scratch_bytes,
    }


def _a_table(found: Figures, role: str) -> float:
    """Return the computing seconds of a role for a table."""
    return float(sum(found["roles"][role]["seconds"]["tables"].values()) / found["tables"])


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="rows and features, as 1000x20")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    arguments = parser.parse_args()
    runs, plaintext = [], {}
    for size in arguments.sizes:
        rows, features = (int(number) for number in size.split("x"))
        for task in arguments.tasks:
            runs.append(measure(rows, features, task))
            print(json.dumps(runs[-1]), flush=True)
        plaintext[size] = in_the_clear(rows, features)
        print(plaintext[size], flush=True)
    figures: Figures = {
        "runs": runs,
        "clear": plaintext,
        "paper": on_paper(runs) if set(FITTED) <= set(arguments.sizes) else None,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    path = results((arguments.sizes, arguments.tasks) != (SIZES, TASKS)) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-profile"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Where the time goes with many rows\n"
    yield (
        "`privet train` of two participants and a dealer, made rows, depth "
        f"{DEPTH}, lattice masks, over TLS on loopback, a process for each role on "
        f"{figures['cores']} cores that others use, too. Seconds of computing for a table, of all "
        "threads of a process, by what they were at, a hundred times a second; how much of it is "
        "the main thread's, which no other core can do; and the most memory. Before the first "
        f"table is starting Python, reading and meeting. {where(figures)}\n"
    )
    head = ("", "role", "s before", *ORDER, "s a table", "main thread", "GB of memory")
    runs = figures["runs"]
    yield from table(head, [_row(found, role) for found in runs for role in found["roles"]])
    yield (
        f"The largest part of a role's is {_largest_share(runs)}. With {_CORES} cores for every "
        "role, and nothing to wait for, a table takes what its main thread does and a "
        f"{_CORES}th of the rest, so at best: {'; '.join(_at_best(found) for found in runs)}.\n"
    )
    yield (
        "In the clear, a tree of that depth and as many buckets takes, in a regression of the same "
        "rows, so many seconds of computing, on one core; and all roles together for a table, so "
        "many times as much:\n"
    )
    yield from table(("", *next(iter(figures["clear"].values()))), list(_ratios(figures)))
    if figures["paper"]:
        yield from _paper(figures["paper"])


def _row(found: Figures, role: str) -> list[str]:
    own, tables = found["roles"][role], found["tables"]
    return [
        f"{_size(found)}, {found['task']}" if role == next(iter(found["roles"])) else "",
        role,
        f"{sum(own['seconds']['setup'].values()):.1f}",
        *(f"{own['seconds']['tables'].get(kind, 0.0) / tables:.2f}" for kind in ORDER),
        f"{_a_table(found, role):.1f}",
        f"{own['main']['tables']['computing'] / tables:.1f}",
        f"{own['memory_mb'] / 1e3:.1f}",
    ]


def _size(found: Figures) -> str:
    return f"{found['rows']:,} x {found['features']}"


def _largest_share(runs: list[Figures]) -> str:
    """Return the activity with the largest share of any role, and the share."""
    share, kind, role, found = max(
        (
            (seconds / found["tables"] / _a_table(found, role), kind, role, found)
            for found in runs
            for role in found["roles"]
            for kind, seconds in found["roles"][role]["seconds"]["tables"].items()
        ),
        key=lambda each: float(each[0]),
    )
    return f"{kind}, {share:.0%} of the {role}'s ({_size(found)}, {found['task']})"


def _at_best(found: Figures) -> str:
    """Return the time of a table if every role has many cores."""
    longest = 0.0
    for role, own in found["roles"].items():
        alone = own["main"]["tables"]["computing"] / found["tables"]
        longest = max(longest, alone + (_a_table(found, role) - alone) / _CORES)
    return f"{longest:.1f} s ({_size(found)}, {found['task']})"


def _ratios(figures: Figures) -> Iterator[list[str]]:
    for found in figures["runs"]:
        if found["task"] == "regression":
            whole = sum(_a_table(found, role) for role in found["roles"])
            clear = figures["clear"][f"{found['rows']}x{found['features']}"]
            yield [_size(found), *(f"{s:.3f} s, {whole / s:,.0f} times" for s in clear.values())]


def _paper(paper: Figures) -> Iterator[str]:
    """Yield the section on training on many machines."""
    machines, dealt = paper["machines"], paper["dealt"]
    yield (
        f"**On paper**: {paper['rows'] / 1e6:,.0f} million rows of {paper['features']} features, "
        f"two participants, {machines} machines of {_CORES} cores for each and for the dealer, a "
        "shard for each. Bytes, rounds and memory are counted; computing is made of what was "
        "measured for a row, a feature, and each of both. A table takes a machine:\n"
    )
    arriving = paper["sent"] + dealt / 2
    rows = [
        [
            role,
            f"{seconds:,.0f}",
            f"{seconds / _CORES:,.1f}",
            f"{nbytes / 1e9:,.2f}",
            *(f"{nbytes * 8 / rate:,.1f}" for rate in _RATES.values()),
        ]
        for (role, seconds), nbytes in zip(
            paper["computing"].items(), (arriving, dealt), strict=True
        )
    ]
    head = (
        *("", "s of computing", f"on {_CORES} cores", "GB that arrive, or are dealt"),
        *(f"s at {name}" for name in _RATES),
    )
    yield from table(head, rows)
    first = {
        name: "the dealer's link" if dealt * 8 / rate > computing else "computing"
        for name, rate in _RATES.items()
        for computing in [max(paper["computing"].values()) / _CORES]
    }
    yield (
        f"{paper['rounds']} rounds, which are {paper['rounds'] / 1e3:.2f} s for each ms of delay; "
        f"{paper['memory'] / 1e9:.1f} GB of memory a worker. What is full first: "
        + "; ".join(f"at {name}, {what}" for name, what in first.items())
        + ". Before any of it a head reads its whole table, to learn cuts and categories, which "
        f"takes {paper['head_memory'] / 1e9:,.0f} GB of memory, and with its workers' tables "
        f"{paper['scratch'] / 1e9:,.0f} GB of disk for a while.\n"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [_ROLE]:
        with contextlib.suppress(SystemExit):
            be_role(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main())
