"""The results page matches its rows, and every row can be measured again by its name."""

from __future__ import annotations

from pathlib import Path

from benchmarks.evidence import figures, page
from benchmarks.evidence.measure import load, measure, save
from benchmarks.evidence.model import has_time, predicted
from benchmarks.evidence.rows import Row, all_rows

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


def test_page_matches_the_rows(tmp_path: Path) -> None:
    page.write(RESULTS, tmp_path / "results.md", figures.available(RESULTS), quick=False)
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()


def test_every_row_exists_and_has_its_command() -> None:
    rows = {(row.section, row.key): row for row in all_rows()}
    assert len(rows) == len(all_rows())
    found = [row for path in RESULTS.glob("*.csv") for row in load(path)]
    assert {(row["section"], row["key"]) for row in found} == set(rows)
    for row in found:
        assert row["command"] == rows[row["section"], row["key"]].command
        for column in ("date", "version", "python", "numpy", "machine"):
            assert row[column], column


def test_rounds_and_bytes_are_predicted_exactly() -> None:
    timed = [r for path in RESULTS.glob("*.csv") for r in load(path) if has_time(r)]
    assert len(timed) > 80
    for row in timed:
        if row["section"] != "tables":  # whose rows contain only times
            assert row["rounds"] == row["predicted_rounds"], row["key"]
            sent = int(row["online_bytes"]) + int(row["setup_bytes"])
            assert abs(sent - int(row["predicted_bytes"])) <= 1, row["key"]
            assert abs(int(row["offline_bytes"]) - int(row["predicted_offline_bytes"])) <= 1


def test_a_row_is_measured_and_replaced(tmp_path: Path) -> None:
    row = Row(
        "features", "tiny", "breast-cancer", network="memory", samples=50, features=4, tables=2
    )
    path = tmp_path / "features.csv"
    for _ in range(2):
        save(path, measure(row))
    (found,) = load(path)
    assert (found["samples"], found["features"], found["tables"]) == ("50", "4", "2")
    assert found["rounds"] == found["predicted_rounds"]
    assert predicted(found).total > 0
