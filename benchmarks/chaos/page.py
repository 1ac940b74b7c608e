"""Results of all interruptions as a section of the results page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from benchmarks.chaos.strike import ACTIONS, PHASES, WORKERS
from benchmarks.evidence.kept import Figures, where
from benchmarks.evidence.markdown import table

NAME = "chaos"
_LONGEST = 160
"""Maximum characters of a problem on the page; the results file has all."""


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    rows = figures["interruptions"]
    good = sum(not row["problems"] for row in rows)
    yield "## Interruptions\n"
    yield (
        f"{figures['federations']} federations of three participants and one dealer or three, as "
        f"processes over TLS, were interrupted {len(rows)} times: one to three roles at once, "
        "dealers among them, by SIGKILL, by SIGSTOP and SIGCONT after all others had ended, by "
        "SIGTERM, or by cutting all their connections, at an event of their logs. In every third "
        "federation rows are in two shards, and one participant's workers are processes, which are "
        f"victims, too ({sum(WORKERS in row['what'] for row in rows)} times). After each, "
        "everybody must end by itself within seconds and name who was lost, or, before all have "
        "met, wait for it to come again; the same commands must then go on from the last table "
        "that all have, to the tests, leaf values and predictions of training in the clear, and "
        f"leave no other file. **{good} of {len(rows)} are good.** {where(figures)}\n"
    )
    head = ("good of all", *ACTIONS, "longest, s")
    body = []
    for phase in PHASES:
        phase_rows = [row for row in rows if row["phase"] == phase]
        cells = []
        for action in ACTIONS:
            action_rows = [row for row in phase_rows if row["action"] == action]
            cells.append(f"{sum(not row['problems'] for row in action_rows)} of {len(action_rows)}")
        longest = max((row["seconds"] for row in phase_rows), default=0.0)
        body.append([phase, *cells, f"{longest:.1f}"])
    yield from table(head, body)
    for row in rows:
        for problem in row["problems"]:
            yield f"- {row['what']}: {textwrap.shorten(problem, _LONGEST)}"
    yield ""
