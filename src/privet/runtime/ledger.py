"""The disclosure ledger: everything that left the protocol in the clear, and who learned it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Disclosure:
    """One reveal."""

    what: str
    to: tuple[str, ...]
    count: int
    """How many elements."""
    step: str


@dataclass
class Ledger:
    """All reveals that this participant took part in, in order."""

    entries: list[Disclosure] = field(default_factory=list)

    def record(self, what: str, to: tuple[str, ...], count: int, step: str) -> None:
        """Write a reveal down."""
        self.entries.append(Disclosure(what, to, count, step))

    def summary(self) -> list[Disclosure]:
        """Return one entry for each thing, audience and step, with the counts added up."""
        totals: dict[tuple[str, tuple[str, ...], str], int] = {}
        for entry in self.entries:
            key = (entry.what, entry.to, entry.step)
            totals[key] = totals.get(key, 0) + entry.count
        return [Disclosure(what, to, n, step) for (what, to, step), n in totals.items()]

    def compact(self) -> None:
        """Keep the summary alone: for programs that never end."""
        self.entries = self.summary()
