"""Fuzz for a time or a number of cases; write failing cases to the corpus."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.evidence.kept import Figures, keep, results
from benchmarks.nonsense import NAME

from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.sessions import peak_memory
from tests.fuzz.tally import CORPUS, Tally

_REPORT_SECONDS = 30.0


def main() -> int:
    """Fuzz as the options say; return 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="duration (default: 60)")
    parser.add_argument("--cases", type=int, default=None, help="number of frames and messages")
    parser.add_argument("--seed", type=int, default=None, help="seed (default: random)")
    parser.add_argument("--keep", action="store_true", help="write docs/results/fuzz.json")
    arguments = parser.parse_args()
    cases, seconds = arguments.cases, arguments.seconds
    if cases is None and seconds is None:
        seconds = 60.0
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="privet-fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder), random.Random(seed), tally)
        started = reported = time.monotonic()
        while (seconds is None or time.monotonic() - started < seconds) and (
            cases is None or tally.cases < cases
        ):
            fuzzer.round()
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                print_line(
                    f"{reported - started:6.0f} s {tally.cases:12,} cases, {len(tally.found)} found"
                )
        elapsed = time.monotonic() - started
    found = figures(tally, elapsed, seed)
    for row in found["tried"]:
        print_line(f"{row['cases']:12,} {row['kind']}: {row['what']}")
    print_line(f"{tally.cases:12,} in {elapsed:.0f} s, seed {seed}; {len(tally.found)} found")
    print_line(
        "".join(f"{kind}: {problem}\n" for kind, problem in tally.found.items()) or str(CORPUS)
    )
    if arguments.keep:
        options = " ".join(sys.argv[1:])
        keep(results(quick=False) / f"{NAME}.json", found, f"python -m tests.fuzz {options}")
    return bool(tally.found)


def figures(tally: Tally, seconds: float, seed: int) -> Figures:
    """Return the figures for docs/results/fuzz.json."""
    rows = []
    for name, count in sorted(tally.tried.items()):
        kind, _, target = name.partition(": ")
        rows.append({"kind": kind, "what": target, "cases": count})
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "cases": tally.cases,
        "tried": rows,
        "files": dict(sorted(tally.aside.items())),
        "found": tally.found,
        "peak_mb": round(peak_memory() / 1e6),
    }


def print_line(text: str) -> None:
    """Print a line immediately."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
