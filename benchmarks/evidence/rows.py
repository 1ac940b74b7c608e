"""The measured runs, in sections that are tables and plots of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple


class Printed(NamedTuple):
    """One of the paper's experiments, with its printed results (Tables III and IV)."""

    tables: int
    depth: int
    seconds: float
    gigabytes: float
    metrics: dict[str, float]


PAPER = {
    "california": Printed(50, 5, 6333, 41.1, {"rmse": 0.51}),
    "credit": Printed(10, 4, 1724, 11.8, {"accuracy": 0.803, "auc": 0.7433}),
    "breast-cancer": Printed(10, 3, 486, 0.54, {"accuracy": 0.965, "auc": 0.998}),
}
NETWORKS = ("paper", "paper-per-party", "lan")


@dataclass(frozen=True)
class Row:
    """One run."""

    section: str
    key: str
    data: str
    protocol: str = "masked"
    network: str = "paper"
    parties: int = 4
    tables: int = 10
    """Tables of the reported model."""
    run_tables: int = 0
    """Number of trained tables; times and traffic are scaled to `tables`. 0: all."""
    depth: int = 2
    buckets: int = 32
    samples: int = 0
    """Training rows; 0: all."""
    features: int = 0
    """Columns; 0: all."""

    @property
    def trained(self) -> int:
        """Number of trained tables."""
        return self.run_tables or self.tables

    @property
    def command(self) -> str:
        """Command that measures the row."""
        return f"python -m benchmarks.evidence run {self.section} {self.key}"


def all_rows(quick: bool = False) -> list[Row]:
    """Return every run."""
    rows = [*_learning(), *_efficiency(), *_by_size(), *_by_parameter(), *_beyond()]
    return [_shortened(row) for row in rows if _in_quick(row)] if quick else rows


def _learning() -> Iterator[Row]:
    for data, printed in PAPER.items():
        for protocol in ("plain", "paper", "masked", "catboost"):
            yield Row(
                section="learning",
                key=f"{data}-{protocol}",
                data=data,
                protocol=protocol,
                network="memory",
                tables=printed.tables,
                depth=printed.depth,
            )


def _efficiency() -> Iterator[Row]:
    for data, printed in PAPER.items():
        for network in NETWORKS:
            for protocol in ("masked", "paper"):
                yield Row(
                    section="efficiency",
                    key=f"{data}-{protocol}-{network}",
                    data=data,
                    protocol=protocol,
                    network=network,
                    tables=printed.tables,
                    run_tables=0 if protocol == "masked" else 1,
                    depth=printed.depth,
                )


def _by_size() -> Iterator[Row]:
    for samples in (4000, 8000, 12000, 16000):
        key = f"samples-{samples}"
        yield Row("samples", key, "syn-a", run_tables=3, samples=samples)
    for features in (20, 40, 60, 80):
        key = f"features-{features}"
        yield Row("features", key, "syn-a", run_tables=3, samples=10_000, features=features)


def _by_parameter() -> Iterator[Row]:
    for data in ("syn-b", "syn-c"):
        for samples in (4000, 16000):
            base = Row("", "", data, run_tables=2, samples=samples)
            for depth in (2, 3, 4, 5):
                key = f"{data}-{samples}-depth-{depth}"
                yield replace(base, section="depth", key=key, depth=depth)
            for buckets in (8, 16, 32, 64):
                key = f"{data}-{samples}-buckets-{buckets}"
                yield replace(base, section="buckets", key=key, buckets=buckets)
            key = f"{data}-{samples}-tables"
            yield replace(base, section="tables", key=key, tables=25, run_tables=0)


def _beyond() -> Iterator[Row]:
    california = Row("", "", "california", tables=50, run_tables=3, depth=5)
    for parties in range(2, 9):
        key = f"parties-{parties}"
        yield replace(california, section="parties", key=key, parties=parties)
    for delay in (0, 1, 5, 10, 20, 50):
        key, network = f"delay-{delay}", f"{delay},100"
        yield replace(california, section="delay", key=key, network=network)
    for features in (100, 300, 1000):
        yield Row(
            section="wide",
            key=f"wide-{features}",
            data="wide",
            network="lan",
            run_tables=2,
            samples=1000,
            features=features,
            depth=3,
        )
    for samples in (10_000, 100_000, 1_000_000):
        yield Row(
            section="long",
            key=f"long-{samples}",
            data="long",
            network="lan",
            parties=2,
            run_tables=1,
            samples=samples,
            features=4,
            depth=3,
        )


# Slow rows that the quick mode omits.
_SLOW = ("california-paper", "credit-paper", "long-1000000", "wide-1000", "parties-8")
_REPEATED = "-16000"
"""In quick mode all have 1,000 samples."""


def _in_quick(row: Row) -> bool:
    slow = any(row.key.startswith(part) or row.key.endswith(part) for part in _SLOW)
    return not slow and _REPEATED not in row.key


def _shortened(row: Row) -> Row:
    """Return a run of at most 2 tables and few samples."""
    samples = min(row.samples, 20_000 if row.section == "long" else 1000) or 1000
    trained = row.tables if row.section == "tables" else min(2, row.trained)
    tables = min(row.tables, 5)
    return replace(row, samples=samples, tables=tables, run_tables=min(trained, tables))
