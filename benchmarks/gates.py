"""Cost of the runtime and the paper's gates: processes over TLS on loopback.

Four participants share the machine's cores. The dealer's work is preprocessed, so the times are of
the online phase; the result is the fastest of three runs.

    python benchmarks/gates.py [--parties 4] [--elements 1000000] [--network loopback]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from privet.arithmetic.prg import Place, Prg, fresh_seed
from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.gates.arithmetic import truncate
from privet.gates.beaver import multiply
from privet.protocols.paper.gates import less_than
from privet.runtime.local.launcher import simulate
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

REPEATS = 3


@dataclass(frozen=True)
class Sizes:
    """Number of elements and rounds."""

    elements: int
    rounds: int = 500


def program(runtime: Runtime, _: object, sizes: Sizes) -> dict[str, tuple[float, float, int, int]]:
    """Time openings and gates one after the other."""
    results: dict[str, tuple[float, float, int, int]] = {}
    count = sizes.elements
    x = runtime.share_public(np.arange(count, dtype=np.uint64), Z64)
    y = runtime.share_public(np.arange(count, dtype=np.uint64)[::-1].copy(), Z64)

    def measure(name: str, body: Callable[[], Any], times: int = 1) -> None:
        for _ in range(REPEATS):
            if isinstance(runtime, Party):
                barrier(runtime)
                before = runtime.meter.sum_traffic()
            start, cpu = time.perf_counter(), time.process_time()
            for _ in range(times):
                body()
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            if isinstance(runtime, Party):
                after = runtime.meter.sum_traffic()
                rounds, sent = after.rounds - before.rounds, after.sent - before.sent
                row = (seconds / times, cpu / times, rounds // times, sent // times)
                results[name] = min(results.get(name, row), row)

    measure("open one element", lambda: barrier(runtime), sizes.rounds)
    measure("open", lambda: runtime.open(x) if isinstance(runtime, Party) else None)
    measure("multiply", lambda: multiply(runtime, x, y))
    measure(
        "multiply and truncate", lambda: truncate(runtime, multiply(runtime, x, y), dropped_bits=20)
    )
    measure("less", lambda: less_than(runtime, x, y))
    return results


def barrier(runtime: Runtime) -> None:
    """Wait for all participants: an opening of one element."""
    if isinstance(runtime, Party):
        runtime.open(Share(np.zeros(1, dtype=np.uint64), Z64))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=4)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--network", default="loopback")
    options = parser.parse_args()
    timed = partial(program, sizes=Sizes(options.elements))
    outcome = simulate(timed, options.parties, network=options.network, ahead=True)
    prg, count = Prg(fresh_seed()), 1 << 26
    start = time.perf_counter()
    prg.uniform(Place("benchmark", (), 0), (count // 8,), Z64)
    print(f"randomness on one core: {count / (time.perf_counter() - start) / 1e9:.1f} GB/s")
    print(f"{options.parties} parties, {options.elements:,} elements, {options.network}")
    print(f"{'':26} {'ms':>9} {'CPU ms/party':>12} {'rounds':>7} {'MB sent/party':>14}")
    for name in outcome.results[0]:
        rows = [result[name] for result in outcome.results]
        seconds, cpu = max(r[0] for r in rows), float(np.mean([r[1] for r in rows]))
        sent = float(np.mean([r[3] for r in rows])) / 1e6
        print(f"{name:26} {1e3 * seconds:9.2f} {1e3 * cpu:12.2f} {rows[0][2]:7} {sent:14.2f}")


if __name__ == "__main__":
    main()
