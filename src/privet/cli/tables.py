"""Lines that several commands show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from privet.service.report import Reveal


def show_reveals(reveals: Sequence[Reveal]) -> Iterator[str]:
    """Yield a line for everything that left the protocol in the clear."""
    for reveal in reveals:
        yield f"revealed: {reveal.what} to {', '.join(reveal.to)}: {reveal.count:,}"
