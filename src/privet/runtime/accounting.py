"""The meter of rounds, messages and bytes, and the disclosure ledger.

The meter counts the bytes of the arrays only: a frame adds 32 bytes to a message, and TLS adds 22
to each 16 KiB. A round is one network delay that the program waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import NamedTuple


@dataclass
class Traffic:
    """The network traffic of one participant."""

    rounds: int = 0
    messages: int = 0
    sent: int = 0
    received: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.rounds + other.rounds,
            self.messages + other.messages,
            self.sent + other.sent,
            self.received + other.received,
        )


class MeterTotals(NamedTuple):
    """The totals of a meter: a worker reports them while it is running."""

    rounds: int = 0
    sent: int = 0
    """Bytes sent to the other participants."""
    received: int = 0
    """Bytes received from the other participants."""
    dealt: int = 0
    """Bytes received from the dealer, or dealers."""

    def add_parallel(self, members: Sequence[MeterTotals]) -> MeterTotals:
        """Add the totals of members that run in parallel, as `Meter.add_parallel` does."""
        if not members:
            return self
        rounds = self.rounds + members[0].rounds
        _, sent, received, dealt = map(sum, zip(self, *members, strict=True))
        return MeterTotals(rounds, sent, received, dealt)


@dataclass
class Meter:
    """The traffic of one participant.

    `online` is the traffic with the other participants, `offline` the traffic from the dealer.
    """

    online: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    offline: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float), compare=False)
    """Wall time of each step, including the steps inside it."""

    def add(self, other: Meter) -> None:
        """Add the traffic and times of another meter."""
        for step, traffic in other.online.items():
            self.online[step] += traffic
        for step, traffic in other.offline.items():
            self.offline[step] += traffic
        for step, seconds in other.seconds.items():
            self.seconds[step] += seconds

    def add_parallel(self, members: Sequence[Meter]) -> None:
        """Add the meters of members that run in parallel, with the rounds of the first one."""
        for number, member in enumerate(members):
            for phase in ("online", "offline"):
                steps = getattr(self, phase)
                for step, traffic in getattr(member, phase).items():
                    steps[step] += traffic if number == 0 else replace(traffic, rounds=0)

    def summarise(self) -> MeterTotals:
        """Return the totals so far."""
        online, offline = self.sum_traffic(), self.sum_traffic("offline")
        return MeterTotals(online.rounds, online.sent, online.received, offline.received)

    def to_dict(self) -> dict[str, dict[str, list[int]]]:
        """Return the traffic, without times, as JSON content for another process."""
        return {
            phase: {step: list(astuple(traffic)) for step, traffic in getattr(self, phase).items()}
            for phase in ("online", "offline")
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Mapping[str, Sequence[int]]]) -> Meter:
        """Parse the output of `to_dict`; raise TypeError, KeyError or ValueError if invalid."""
        meter = cls()
        for phase in ("online", "offline"):
            for step, (rounds, messages, sent, received) in content[phase].items():
                counts = (int(rounds), int(messages), int(sent), int(received))
                getattr(meter, phase)[str(step)] = Traffic(*counts)
        return meter

    def sum_traffic(self, phase: str = "online", within: str = "") -> Traffic:
        """Return the sum over all steps, or over one step and the steps inside it."""
        steps: dict[str, Traffic] = getattr(self, phase)
        prefix = f"{within}/" if within else ""
        return sum((t for step, t in steps.items() if f"{step}/".startswith(prefix)), Traffic())


@dataclass(frozen=True)
class LedgerEntry:
    """One reveal."""

    disclosure: str
    recipients: tuple[str, ...]
    n_elements: int
    """Element count."""
    step: str


@dataclass
class DisclosureLedger:
    """All reveals that this participant was part of, in order."""

    entries: list[LedgerEntry] = field(default_factory=list)

    def record(
        self, disclosure: str, recipients: tuple[str, ...], n_elements: int, step: str
    ) -> None:
        """Append a reveal."""
        self.entries.append(LedgerEntry(disclosure, recipients, n_elements, step))

    def summarise(self) -> list[LedgerEntry]:
        """Return one entry for each disclosure, recipients and step, with the counts added up."""
        totals: dict[tuple[str, tuple[str, ...], str], int] = {}
        for entry in self.entries:
            key = (entry.disclosure, entry.recipients, entry.step)
            totals[key] = totals.get(key, 0) + entry.n_elements
        return [
            LedgerEntry(disclosure, recipients, n_elements, step)
            for (disclosure, recipients, step), n_elements in totals.items()
        ]

    def compact(self) -> None:
        """Keep only the summary, for programs that never end."""
        self.entries = self.summarise()
