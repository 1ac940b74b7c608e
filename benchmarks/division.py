"""Relative error of SDiv's reciprocals by fraction bits, with three participants.

    python benchmarks/division.py

The rows are typical sums of Hessians plus l2. The last column is exp(-y), the error of Newton's
method after 20 iterations from 2^-20.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from privet.arithmetic.rings import Z64, signed
from privet.protocols.paper.algorithms import FIXED_POINT, compute_reciprocal
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime

BITS = (20, 21, 22, 24, 26, 28, 30)
VALUES = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0, 16512.0, 2.0**20)
REPEATS = 200


def program(runtime: Runtime, _: object, bits: int) -> object:
    """Reveal reciprocals of public values, each many times."""
    y = runtime.share_public(FIXED_POINT.encode(np.repeat(VALUES, REPEATS)), Z64)
    return runtime.reveal(
        compute_reciprocal(runtime, y, bits=bits), recipients=[0], disclosure="reciprocals"
    )


def main() -> None:
    """Print the largest error of each."""
    print("largest relative error of 1/y by fraction bits\n")
    print(f"{'y':>9}" + "".join(f"{bits:>10}" for bits in BITS) + f"{'exp(-y)':>10}")
    errors = []
    for bits in BITS:
        z = simulate(partial(program, bits=bits), 3).results[0]
        found = (signed(z) * 2.0**-bits).reshape(len(VALUES), REPEATS)
        errors.append(np.abs(found * np.array(VALUES)[:, None] - 1).max(axis=1))
    for row, y in enumerate(VALUES):
        cells = "".join(f"{error[row]:10.2g}" for error in errors)
        print(f"{y:9.0f}{cells}{np.exp(-y):10.2g}")


if __name__ == "__main__":
    main()
