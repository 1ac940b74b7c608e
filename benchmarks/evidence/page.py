"""The results page, written from the CSVs, JSON files and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import (
    boosters,
    columns,
    dealers,
    engines,
    growth,
    heads,
    link,
    many_rows,
    masks,
    multiclass,
    nonsense,
    options,
    profile_rows,
    same_tests,
    secretflow,
    shards,
    soak,
)
from benchmarks.chaos import page as chaos
from benchmarks.evidence.kept import read
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.evidence.measure import load
from benchmarks.evidence.model import has_time, lies_on_disk, predicted
from benchmarks.evidence.rows import NETWORKS, PAPER

Rows = list[dict[str, str]]
_FAR = 0.2
"""Relative difference from which the page explains the error of the cost model."""


def write(folder: Path, page: Path, drawn: Sequence[str], quick: bool) -> None:
    """Write the page, with a note for a quick run."""
    found = {path.stem: load(path) for path in sorted(folder.glob("*.csv"))}
    text = wrapped([*_lines(found, folder.name, drawn, quick), *_programs(folder)])
    page.write_text(text, encoding="utf-8")


def _lines(found: dict[str, Rows], folder: str, drawn: Sequence[str], quick: bool) -> Iterator[str]:
    yield "# Results\n"
    if quick:
        yield (
            "**Quick mode: at most 1,000 samples and few tables. To see that everything runs; the "
            "figures mean nothing beside "
            "the paper's, whatever the text below says of their sizes.**\n"
        )
    yield (
        "Written by `python -m benchmarks.evidence show` from the CSV and JSON files in "
        f"[{folder}/]({folder}/), which have the command that "
        "measured each row, the versions, the machine and the date. All participants and the "
        "dealer share one machine. What is dated before "
        '"At the limit of the link" is of the protocol before that change, with more rounds and bytes. Figures of services, and of training in '
        "the clear, are in [the researcher's guide](guides/researcher.md#more-figures).\n"
    )
    if "learning" in found:
        yield from _accuracy(found["learning"])
    if "efficiency" in found:
        yield from _efficiency(found["efficiency"], quick)
    for name, title, words in _CURVES:
        if name in drawn:
            yield f"## {title}\n\n{words} {_where(found.get(name) or found['depth'])}\n"
            yield f"![{title}]({folder}/{name}.svg)\n"
    if "long" in found:
        yield from _largest(found["long"])
    yield from _cost_model(found, folder, drawn)


def _programs(folder: Path) -> Iterator[str]:
    """Yield the sections of benchmarks with JSON results."""
    programs = (
        link,
        growth,
        options,
        dealers,
        masks,
        many_rows,
        shards,
        heads,
        engines,
        profile_rows,
        same_tests,
        boosters,
        columns,
        multiclass,
        secretflow,
        chaos,
        nonsense,
        soak,
    )
    for program in programs:
        path = folder / f"{program.NAME}.json"
        if path.exists():
            yield from program.section(read(path))


def _where(rows: Rows) -> str:
    """Return the machines and dates of rows, in words."""
    places = dict.fromkeys(f"{row['machine']}, {row['date']}" for row in rows)
    return f"({'; '.join(places)}.)"


def _accuracy(rows: Rows) -> Iterator[str]:
    yield "## Accuracy (the paper's Table III)\n"
    yield (
        "On a fifth of the rows, set aside (seed 0), with the paper's T, D and B = 32, l2 = 1, "
        "learning rate 1 and scores from 0. CatBoost grows symmetric "
        f"trees with the same parameters and its own borders. {_where(rows)}\n"
    )
    protocols = ("plain", "paper", "masked", "catboost")
    body = []
    for data, printed in PAPER.items():
        for metric, value in printed.metrics.items():
            cells = []
            for protocol in protocols:
                mine = [r for r in rows if (r["data"], r["protocol"]) == (data, protocol)]
                last = max(mine, key=lambda row: int(row["table"]), default=None)
                cells.append(f"{float(last[metric]):.4f}" if last and last.get(metric) else "")
            body.append([f"{data}, {metric}", f"{value:g}", *cells])
    yield from table(["", "the paper, printed", *protocols], body)


def _efficiency(rows: Rows, quick: bool) -> Iterator[str]:
    yield "## Efficiency (the paper's Table IV)\n"
    yield (
        "Whole trainings with four participants: everything from bucketing to the parts of the "
        "model, the start of five processes included. "
        "`paper` (the network): 5 ms and 100 Mbit/s that all share, the paper's setting; "
        "`paper-per-party`: 5 ms and 100 Mbit/s for each "
        "participant; `lan`: 0.1 ms and 1 Gbit/s. The dealer's traffic does not pass the link: it "
        "can be sent before. "
        f"The protocol `paper` is measured on one table and scaled. {_where(rows)}\n"
    )
    body = []
    best = []
    for data, printed in PAPER.items():
        body.append(
            [
                f"{data}, the paper, printed",
                "paper",
                f"{printed.seconds:,}",
                "",
                "",
                f"{1000 * printed.gigabytes:,.0f}",
                *[""] * 3,
            ]
        )
        for protocol in ("paper", "masked"):
            for network in NETWORKS:
                row = next((r for r in rows if r["key"] == f"{data}-{protocol}-{network}"), None)
                if row is None:
                    continue
                scaled = int(row["run_tables"]) not in (0, int(row["tables"]))
                sent = float(row["online_bytes"]) + float(row["setup_bytes"])
                body.append(
                    [
                        f"{data}, `{protocol}`{', scaled' if scaled else ''}",
                        network,
                        f"{float(row['seconds']):,.1f}",
                        f"{float(row['setup_seconds']):,.1f}",
                        f"{float(row['offline_seconds']):,.1f}",
                        f"{sent / 1e6:,.0f}",
                        f"{float(row['offline_bytes']) / 1e6:,.0f}",
                        f"{int(row['rounds']):,}",
                        f"{float(row['peak_rss_mb']):,.0f}",
                    ]
                )
                if (protocol, network) == ("masked", "paper"):
                    faster = printed.seconds / float(row["seconds"])
                    fewer = 1e9 * printed.gigabytes / sent
                    best.append(f"{data} {faster:.0f} times faster, {fewer:.0f} times less traffic")
    head = (
        "",
        "network",
        "s",
        "setup s",
        "dealer s",
        "MB online",
        "MB offline",
        "rounds",
        "MB memory",
    )
    yield from table(head, body)
    if not quick:
        yield f"Over the paper's printed figures, at its own network: {'; '.join(best)}.\n"


_CURVES = (
    (
        "learning",
        "Learning curves (Fig. 5)",
        "RMSE, or the share of wrong classes, on the test rows, by the number of tables.",
    ),
    (
        "samples",
        "By samples (Fig. 6)",
        "syn-a, 80 features, D = 2, B = 32, T = 10, at 5 ms and a shared 100 Mbit/s; 3 tables "
        "measured and scaled.",
    ),
    ("features", "By features (Fig. 7)", "syn-a, 10,000 samples, as above."),
    (
        "syn-b",
        "Regression by D, B and T (Fig. 8)",
        "syn-b, 60 features, at 5 ms and a shared 100 Mbit/s; B = 32, D = 2 and T = 10 where they "
        "do not vary; by D and B, 2 tables "
        "measured and scaled. Most of the time is the link, carrying every feature's masked "
        "indicators once.",
    ),
    ("syn-c", "Classification by D, B and T (Fig. 9)", "syn-c, 40 features, as above."),
    (
        "parties",
        "By participants",
        "California, T = 50, D = 5, at 5 ms and a shared 100 Mbit/s; 3 tables measured and scaled.",
    ),
    ("delay", "By network delay", "California with four participants and 100 Mbit/s, as above."),
    (
        "wide",
        "Wide data",
        "1,000 samples, D = 3, T = 10, four participants, at 0.1 ms and 1 Gbit/s; 2 tables "
        "measured and scaled.",
    ),
    (
        "long",
        "Long data",
        "4 features, D = 3, T = 10, two participants, at 0.1 ms and 1 Gbit/s; one table measured "
        "and scaled.",
    ),
)


def _largest(rows: Rows) -> Iterator[str]:
    largest = max(rows, key=lambda row: int(row["samples"]))
    yield (
        f"{int(largest['samples']):,} samples took {float(largest['wall_seconds']):.0f} s for one "
        "table, and "
        f"{float(largest['peak_rss_mb']):,.0f} MB in the largest process. Uniform masks stop at "
        "2,097,152 samples, where sums of gradients "
        'would be left with fewer than 12 fraction bits; lattice masks go on ("Many rows").\n'
    )


def _cost_model(found: dict[str, Rows], folder: str, drawn: Sequence[str]) -> Iterator[str]:
    yield "## The cost model\n"
    yield (
        "Rounds and bytes follow from the plan of a training, exactly (tests compare them with the "
        "meter). Seconds are rounds times the delay, "
        "bytes over the rate, and computing by constants fitted to the rows at LAN speed (`python "
        "-m benchmarks.evidence calibrate`, "
        "`boosting/cost_estimate.py`), times the number of processes that share a core. `privet "
        "estimate` uses the same.\n"
    )
    if "cost-model" in drawn:
        yield f"![Predicted and measured seconds]({folder}/cost-model.svg)\n"
    body, near, count = [], 0, 0
    exact = True
    for rows in found.values():
        for row in rows:
            if not has_time(row):
                continue
            count += 1
            if row.get("online_bytes"):
                sent = int(row["online_bytes"]) + int(row["setup_bytes"])
                exact &= abs(sent - int(row["predicted_bytes"])) <= 1
                exact &= row["rounds"] == row["predicted_rounds"]
            measured, model = float(row["seconds"]), predicted(row).total
            difference = model / measured - 1
            if abs(difference) <= _FAR:
                near += 1
                continue
            body.append(
                [
                    row["section"],
                    row["key"] + (f", T = {row['tables']}" if row["section"] == "tables" else ""),
                    f"{measured:.1f}",
                    f"{model:.1f}",
                    f"{100 * difference:+.0f} %",
                    _why(row),
                ]
            )
    yield (
        f"Of {count} rows, {near} are predicted within {100 * _FAR:.0f} percent; rounds and bytes "
        f"are {'exact in all' if exact else 'NOT exact in all'}. The others:\n"
    )
    yield from table(("section", "row", "measured s", "predicted s", "off by", "why"), body)


def _why(row: dict[str, str]) -> str:
    """Return the likely cause of a difference, by the largest part of the prediction."""
    time = predicted(row)
    if lies_on_disk(row):
        return "the indicators lie in a file, which is read for every level"
    if row["protocol"] == "paper":
        return "the constants are fitted to `masked`; `paper` computes more for each byte"
    if float(row["wall_seconds"]) < 5:
        return "a run of seconds: starting the processes varies"
    if time.compute_seconds > max(time.delays, time.transfer_seconds):
        return (
            "mostly computing, at sizes or with numbers of processes that the constants were not "
            "fitted to"
        )
    if time.transfer_seconds > time.delays:
        return "mostly carrying: how much of computing it hides varies"
    return "mostly delays: processes that share two cores wake up late"
