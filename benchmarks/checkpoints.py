"""Cost of a checkpoint for each table, and of a model part: bytes written and milliseconds.

python benchmarks/checkpoints.py                 50 tables of depth 5, 16,512 samples
python benchmarks/checkpoints.py 500 8 16512     500 tables of depth 8
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from privet.boosting.model import Feature
from privet.boosting.model_part import ModelPart
from privet.boosting.training import TrainingState
from privet.config.job import Job
from privet.storage.checkpoint import CheckpointStore
from privet.storage.model_part import ModelPartFile, load_part, save_part

NAMES = ("bank", "telecom", "shop", "utility")
N_FEATURES = 8
RUN = "5" * 64
_Result = TypeVar("_Result")


def part_of(tables: int, depth: int, rng: np.random.Generator) -> ModelPart:
    """Return a participant's part of some model."""
    features = tuple(Feature(f"feature {j}", NAMES[j % len(NAMES)]) for j in range(N_FEATURES))
    feature = rng.integers(0, N_FEATURES, (tables, depth))
    is_local = np.array([f.owner == NAMES[0] for f in features])[feature]
    return ModelPart(
        protocol="masked",
        task="regression",
        features=features,
        party=NAMES[0],
        feature=feature,
        bucket=np.where(is_local, rng.integers(0, 32, feature.shape), -1),
        threshold=np.where(is_local, rng.normal(size=feature.shape), np.nan),
        leaf_shares=rng.integers(0, 1 << 32, (tables, 1, 1 << depth), dtype=np.uint32),
        fraction_bits=18,
        label_unit=None,
    )


def first(part: ModelPart, tables: int) -> ModelPart:
    """Return a model part after its first tables."""
    cut = {name: getattr(part, name)[:tables] for name in ("feature", "bucket", "threshold")}
    values = {**vars(part), **cut, "leaf_shares": part.leaf_shares[:tables]}
    return ModelPart(**values)


def sizes(folder: Path) -> dict[Path, int]:
    """Return the size of each file."""
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def timed(action: Callable[[], _Result]) -> tuple[float, _Result]:
    """Run an action; return its milliseconds and its result."""
    started = time.perf_counter()
    result = action()
    return 1000 * (time.perf_counter() - started), result


def main(tables: int = 50, depth: int = 5, samples: int = 16_512) -> None:
    """Write checkpoints and a part, read them, and print a line for each."""
    rng = np.random.default_rng(0)
    part = part_of(tables, depth, rng)
    scores = rng.integers(0, 1 << 63, (1, samples), dtype=np.uint64)
    written, times = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoints = CheckpointStore(folder / "checkpoints", "job", "data")
        for done in range(1, tables + 1):
            state = TrainingState(first(part, done), scores)
            before = sizes(folder)
            times.append(timed(lambda state=state: checkpoints.save(state, RUN))[0])  # type: ignore[misc]
            after = sizes(folder)
            written.append(
                sum(
                    size - before.get(path, 0)
                    for path, size in after.items()
                    if size > before.get(path, 0)
                )
            )
        kept = sum(sizes(folder).values())
        reading = timed(lambda: CheckpointStore(folder / "checkpoints", "job", "data").list_keys())[
            0
        ]
        file = ModelPartFile(part, job(tables, depth), "data", RUN, ())
        saving = timed(lambda: save_part(file, folder / "bank.part"))[0]
        size = (folder / "bank.part").stat().st_size
        loading = timed(lambda: load_part(folder / "bank.part"))[0]
    print(f"{tables} tables of depth {depth}, {samples:,} samples")
    last = statistics.median(times[-10:])
    print(f"the last checkpoint      {written[-1]:>10,} bytes  {last:8.2f} ms")
    print(f"all {tables:<3} checkpoints      {sum(written):>10,} bytes  {sum(times):8.2f} ms")
    print(f"two stages, on disk      {kept:>10,} bytes  {reading:8.2f} ms to read")
    print(f"the part, to write       {size:>10,} bytes  {saving:8.2f} ms")
    print(f"the part, to read        {size:>10,} bytes  {loading:8.2f} ms")


def job(tables: int, depth: int) -> Job:
    """Return a job of all participants."""
    people = [
        {"name": name, "address": f"{name}:1", "fingerprint": f"{number}" * 64}
        for number, name in enumerate(NAMES, start=1)
    ]
    people[-1]["role"] = "active"
    dealer = {"address": "dealer:1", "fingerprint": "0" * 64}
    params = {"tables": tables, "depth": depth}
    return Job.parse(
        {
            "name": "houses",
            "task": "regression",
            "params": params,
            "dealer": dealer,
            "participants": people,
        }
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
