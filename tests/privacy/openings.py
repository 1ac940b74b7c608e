"""The table of all openings in docs/privacy.md: the mask of each, and its recipients.

`python -m tests.privacy.openings` writes it; a test compares it with the openings of a run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from privet.spec.plan import ExplainBy
from tests.privacy.cases import (
    ALL_TERMS,
    NOISE_RISES,
    prediction,
    training,
    twins_trained,
    two_stages,
    uniform_cases,
    uniform_session,
)
from tests.privacy.explain import Hidden, solve
from tests.privacy.stage import Randomness, perform

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
START, END = "<!-- openings: begin -->\n", "<!-- openings: end -->\n"
_MASKS = {"open": "dealt", "publish": "owner's", "note": "owner's permutation"}
TASKS: tuple[str, str] = ("regression", "classification")


def hidden(protocol: str) -> tuple[list[Hidden], int]:
    """Return all openings of a participant in training and predictions, and the uses of a mask."""
    by_session = []
    for task in TASKS:
        program, data = training(protocol, task, 3, 0, tables=1, **_list_settings(protocol))
        local, _ = data[0]
        with two_stages():
            session = perform(program, data, Randomness("openings"))
            by_session.append(solve(session, 0, (twins_trained(local), None)).hidden)
    explanations: list[ExplainBy | None] = [None, "feature"] if protocol == "masked" else [None]
    for explain in explanations:
        predict, parts = prediction(protocol, 3, 0, 1, explain=explain)
        session = perform(predict, parts, Randomness("openings"))
        by_session.append(solve(session, 0, parts[0]).hidden)
    uses = [times for each in by_session for times in Counter(h.mask for h in each).values()]
    return [entry for each in by_session for entry in each], max(uses)


def _list_settings(protocol: str) -> dict[str, Any]:
    return {**ALL_TERMS, "monotone": NOISE_RISES} if protocol == "masked" else {}


def tested(protocol: str) -> Counter[str]:
    """Return the number of opened elements of each step in the tests of uniformity."""
    counts: Counter[str] = Counter()
    for case in range(len(uniform_cases(protocol))):
        session = uniform_session(protocol, case)
        for step, _, value in session.seen[0].opened:
            counts[step] += value.size
    return counts


def table(protocol: str) -> str:
    """Return the table of one protocol in Markdown, a row a step."""
    entries, uses = hidden(protocol)
    counts = tested(protocol)
    rings: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        ring = "positions" if entry.ring is None else entry.ring.name
        rings.setdefault((entry.step, entry.kind), {})[ring] = None
    lines = [
        f"| step of `{protocol}` | over | mask | a mask hides | who sees it | tested |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (step, kind), over in rings.items():
        seen = "the feature's owner" if step.endswith("permute") and kind == "open" else "all"
        count = {"publish": "as messages", "note": "as permutations"}.get(kind, f"{counts[step]:,}")
        cells = [step, ", ".join(over), _MASKS[kind], f"{uses} opening", seen, count]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables() -> str:
    """Return the tables of both protocols."""
    return f"{table('masked')}\n{table('paper')}"


def written() -> str:
    """Return the tables of the page."""
    text = PAGE.read_text()
    return text[text.index(START) + len(START) : text.index(END)]


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page.replace(f"{START}{written()}{END}", f"{START}{tables()}{END}"))
