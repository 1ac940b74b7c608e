"""Invalid messages from peers: results of `python -m tests.fuzz` for the page."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.evidence.kept import Figures, where
from benchmarks.evidence.markdown import table

NAME = "fuzz"
_KINDS = {
    "reader": "what parses or reads a message or frame, called as a session calls it",
    "channel": "a live channel over a socket, by what is due on it",
    "session": "a whole federation over TLS, by the state that a member lies in",
}


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    found = figures["found"]
    yield "## Nonsense from peers\n"
    yield (
        f"{figures['cases']:,} different frames and messages of a peer whose certificate is good, "
        "each like one that is due and wrong in one or more places, or nothing like it, in "
        f"{figures['seconds'] / 60:.0f} minutes, in one process beside others. Only errors of ours "
        "may come of them, that name the peer; a live channel may leave no thread, and memory may "
        "grow by 64 MB for the hundreds of cases of a round, 256 for a session: the whole process "
        f"had {figures['peak_mb']:,} MB at most. **{len(found) or 'None'} of them did anything "
        "else.** "
        f"{where(figures)}\n"
    )
    body = []
    for kind, words in _KINDS.items():
        rows = [row for row in figures["tried"] if row["kind"] == kind]
        total = sum(row["cases"] for row in rows)
        body.append([f"**{words}**", f"**{total:,}**"])
        body += [[row["what"], f"{row['cases']:,}"] for row in rows]
    yield from table(("given to", "cases"), body)
    if found:
        yield "What this run found is in the corpus, which the tests go through every time:\n"
    for kind, problem in found.items():
        yield f"- {kind}: {problem}"
    yield ""
