"""Programs that keep their figures as JSON: small runs, and whether they find what is wrong."""

from __future__ import annotations

from pathlib import Path

from benchmarks import growth
from benchmarks.evidence.kept import keep, read


def test_counts_are_what_a_training_takes(tmp_path: Path) -> None:
    sizes = {**growth.TIMED, "samples": 60, "features": 4, "buckets": 4, "parties": 2}
    found = growth.clock(sizes, "masked", times=1)  # raises where counts and meters differ
    assert found["seconds"] > 0
    counted = growth.sweep(growth.count, sizes, {"parties": (2, 3)})
    (two,) = [r for r in counted if (r["value"], r["protocol"]) == (2, "masked")]
    assert two.items() > growth.count(sizes, "masked").items()
    timed = [{"by": "parties", "value": 2, "protocol": "masked", **found}]
    rows = {"counted_sizes": sizes, "counted": counted, "timed_sizes": sizes, "timed": timed}
    figures = {**rows, "times": 1, "run_seconds": 1.0}
    kept = keep(tmp_path / "growth.json", figures, "make bench-growth")
    growth.draw(tmp_path / "growth", kept)
    assert (tmp_path / "growth.svg").exists()
    assert "| n = 3 | " in "\n".join(growth.section(kept))


def test_figures_are_kept_with_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "results" / "made.json"
    found = keep(path, {"answer": 42}, "make bench-made")
    assert found == read(path)
    assert (found["answer"], found["command"]) == (42, "make bench-made")
    assert all(found[name] for name in ("date", "version", "python", "numpy", "machine"))
