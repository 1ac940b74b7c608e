"""The homomorphic work of one tree of SecretFlow's SGB, with only `sf-heu`.

    python benchmarks/homomorphic.py TREE.npz [--keys 2048] [--trees 3]

It runs in a separate virtual environment with numpy and sf-heu, without Privet;
`benchmarks/secretflow.py` writes the tree's data, starts this, and reads the JSON that it prints.

The steps are those of SGB's level-wise trainer, with its defaults: the label holder encrypts every
row's g and h (in one ciphertext, or in two without `batch encoding`) under Okamoto and Uchiyama's
scheme. Every passive participant adds up the ciphertexts left of every cut of its features, at the
smaller of two sibling nodes; the larger is the parent less the smaller. The label holder decrypts
all of them. One process plays all participants, so its processor time is that of all together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

MISSING = 3
"""Exit code if sf-heu is not installed."""
_FRACTION_BITS = 20
"""SGB's default for encoded numbers."""


class Clock:
    """Seconds by step: processor time of all threads, and wall-clock time."""

    def __init__(self) -> None:
        self.processor: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of the body to a step."""
        processor, wall = time.process_time(), time.perf_counter()
        yield
        self.processor[name] += time.process_time() - processor
        self.wall[name] += time.perf_counter() - wall


def grow(kit: Any, encoding: Any, tree: Any, clock: Clock) -> dict[str, int]:
    """Time the work of one tree; return bytes by step."""
    sent: dict[str, int] = defaultdict(int)
    parties = [tree[name] for name in sorted(tree) if name.startswith("buckets")]
    derivatives, n_buckets = tree["derivatives"], int(tree["n_buckets"])
    with clock.step("encrypt"):
        encrypted = kit.encryptor().encrypt(kit.array(derivatives, encoding))
    with clock.step("serialise"):
        sent["derivatives"] = len(encrypted.serialize()) * len(parties)
    evaluator, decryptor = kit.evaluator(), kit.decryptor()
    encoder = encoding.instance(kit.get_schema())
    for buckets in parties:
        sums: list[Any] = []
        for level in range(int(tree["depth"])):
            node = tree["nodes"][level]
            chosen = _smaller(node, level)
            selects = [(node == k).astype(np.int8)[None, :] for k in chosen]
            with clock.step("add"):
                found = evaluator.batch_feature_wise_bucket_sum(
                    encrypted, selects, buckets, n_buckets, True
                )
                if level:
                    found = [
                        part
                        for parent, small, k in zip(sums, found, chosen, strict=True)
                        for part in _in_order(small, evaluator.sub(parent, small), k)
                    ]
            sums = found
            with clock.step("serialise"):
                sent["sums"] += sum(len(part.serialize()) for part in sums)
            with clock.step("decrypt"):
                plain = [decryptor.decrypt(part).to_numpy(encoder) for part in sums]
            for k, part in enumerate(plain):
                exact = _exact(derivatives, node == k, buckets, n_buckets)
                error = float(np.max(np.abs(part.reshape(exact.shape) - exact)))
                # Each row's numbers are rounded once; a larger error means a wrong computation.
                if error > len(derivatives) / (1 << _FRACTION_BITS):
                    raise ArithmeticError(f"level {level}: a decrypted sum is off by {error}")
    return dict(sent)


def measure(kit: Any, encoding: Any, tree: Any, count: int) -> dict[str, Any]:
    """Grow the same tree several times; return seconds by step of one, and bytes."""
    clock = Clock()
    sent = [grow(kit, encoding, tree, clock) for _ in range(count)]
    return {
        "processor_seconds": {step: value / count for step, value in clock.processor.items()},
        "wall_seconds": {step: value / count for step, value in clock.wall.items()},
        "bytes": sent[0],
    }


def _smaller(node: np.ndarray, level: int) -> list[int]:
    """Return the root, or the node of each pair of siblings that has fewer rows."""
    if level == 0:
        return [0]
    sizes = np.bincount(node, minlength=1 << level).reshape(-1, 2)
    return [int(2 * pair + np.argmin(size)) for pair, size in enumerate(sizes)]


def _in_order(small: Any, large: Any, number: int) -> tuple[Any, Any]:
    """Return two siblings, left one first; `number` is that of the smaller one."""
    return (large, small) if number % 2 else (small, large)


def _exact(derivatives: np.ndarray, inside: np.ndarray, buckets: np.ndarray, n: int) -> np.ndarray:
    """Return the sums left of every cut in plain text: (features times buckets, 2)."""
    parts = [
        np.cumsum(
            [np.bincount(column[inside], weights=w[inside], minlength=n) for w in derivatives.T],
            axis=1,
        ).T
        for column in buckets.T
    ]
    return np.concatenate(parts)


def main() -> int:
    """Measure both ways of encoding; print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree")
    parser.add_argument("--keys", type=int, default=2048, help="bits of a key")
    parser.add_argument("--trees", type=int, default=3, help="to average over")
    arguments = parser.parse_args()
    try:
        from heu import numpy as hnp  # type: ignore[import-not-found]
        from heu import phe
    except ImportError as error:
        print(f"sf-heu is not installed for {sys.executable}: {error}", file=sys.stderr)
        return MISSING
    with np.load(arguments.tree) as file:
        tree = dict(file)
    clock = Clock()
    with clock.step("keys"):
        kit = hnp.setup(phe.SchemaType.OU, arguments.keys)
    scale = 1 << _FRACTION_BITS
    ways = {
        "together": phe.BatchFloatEncoderParams(scale=scale),
        "apart": phe.FloatEncoderParams(scale=scale),
    }
    found = {name: measure(kit, way, tree, arguments.trees) for name, way in ways.items()}
    metadata: dict[str, Any] = {
        "sf_heu": version("sf-heu"),
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }
    metadata |= {"key_bits": arguments.keys, "fraction_bits": _FRACTION_BITS}
    metadata |= {"keys_seconds": clock.processor["keys"], "trees": arguments.trees}
    print(json.dumps({**metadata, "ways": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
