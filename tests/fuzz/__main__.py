"""Send nonsense for a while, or so often; keep what should not have happened."""

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
from tests.fuzz.sessions import peak
from tests.fuzz.tally import CORPUS, Tally

_TELL_SECONDS = 30.0


def main() -> int:
    """Run for as long as was asked for; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="60, if nothing is said")
    parser.add_argument("--cases", type=int, default=None, help="how many frames and messages")
    parser.add_argument("--seed", type=int, default=None, help="by default another every time")
    parser.add_argument("--keep", action="store_true", help="write docs/results/fuzz.json")
    arguments = parser.parse_args()
    cases, seconds = arguments.cases, arguments.seconds
    if cases is None and seconds is None:
        seconds = 60.0
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="privet-fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder), random.Random(seed), tally)
        started = told = time.monotonic()
        while (seconds is None or time.monotonic() - started < seconds) and (
            cases is None or tally.cases < cases
        ):
            fuzzer.round()
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                say(f"{told - started:6.0f} s {tally.cases:12,} cases, {len(tally.found)} found")
        taken = time.monotonic() - started
    found = figures(tally, taken, seed)
    for row in found["tried"]:
        say(f"{row['cases']:12,} {row['kind']}: {row['what']}")
    say(f"{tally.cases:12,} in {taken:.0f} s, seed {seed}; {len(tally.found)} found")
    say("".join(f"{kind}: {problem}\n" for kind, problem in tally.found.items()) or str(CORPUS))
    if arguments.keep:
        given = " ".join(sys.argv[1:])
        keep(results(quick=False) / f"{NAME}.json", found, f"python -m tests.fuzz {given}")
    return bool(tally.found)


def figures(tally: Tally, seconds: float, seed: int) -> Figures:
    """Return what is kept of all that was tried."""
    rows = []
    for name, count in sorted(tally.tried.items()):
        kind, _, what = name.partition(": ")
        rows.append({"kind": kind, "what": what, "cases": count})
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "cases": tally.cases,
        "tried": rows,
        "files": dict(sorted(tally.aside.items())),
        "found": tally.found,
        "peak_mb": round(peak() / 1e6),
    }


def say(text: str) -> None:
    """Tell whoever looks."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
