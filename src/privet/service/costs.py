"""What a run cost, from its meters and ledgers, as the reports show it."""

from __future__ import annotations

from collections.abc import Sequence

from privet.runtime.launcher import Outcome
from privet.runtime.ledger import Ledger
from privet.runtime.meter import Meter
from privet.runtime.roles import Record
from privet.service.part_file import PartFile
from privet.service.report import Bytes, PartyReport, Reveal, Rounds, Seconds
from privet.version import __version__

# The steps of `boosting.federation.train`.
_SETUP, _TABLE, _LEVEL = "setup", "table", "table/level"


def seconds(outcome: Outcome, train: float) -> Seconds:
    """Return where the time went; the slowest participant's counts."""
    return Seconds(
        train=train,
        setup=max(meter.seconds[_SETUP] for meter in outcome.meters),
        online=max(meter.seconds[_TABLE] for meter in outcome.meters),
        offline=outcome.dealer_seconds,
    )


def traffic(meters: Sequence[Meter]) -> Bytes:
    """Return the bytes of a training."""
    online = [meter.total("online", _TABLE).sent for meter in meters]
    return Bytes(
        online_total=sum(online),
        online_max_party=max(online),
        offline_total=sum(
            meter.total("offline", step).received for meter in meters for step in (_SETUP, _TABLE)
        ),
        setup_total=sum(meter.total("online", _SETUP).sent for meter in meters),
    )


def rounds(meter: Meter, levels: int) -> Rounds:
    """Return the rounds of a training: all participants wait for the same ones."""
    steps = [meter.total("online", step).rounds for step in (_SETUP, _TABLE)]
    return Rounds(total=sum(steps), per_level=meter.total("online", _LEVEL).rounds / levels)


def party_report(
    record: Record, *, command: str, file: PartFile, samples: int, seconds: float, resumed: int = 0
) -> PartyReport:
    """Return what one participant's run took."""
    online, offline = record.meter.total("online"), record.meter.total("offline")
    return PartyReport(
        version=__version__,
        command=command,
        job=file.job.name,
        party=file.part.party,
        model=file.model,
        tables=file.part.n_tables,
        resumed_from=resumed,
        n_samples=samples,
        seconds=seconds,
        rounds=online.rounds,
        bytes_sent=online.sent,
        bytes_received=online.received,
        bytes_from_dealer=offline.received,
        reveals=reveals(record.ledger),
        peak_rss_mb=record.peak_rss_mb,
    )


def reveals(ledger: Ledger) -> list[Reveal]:
    """Return what left the protocol, in the order in which it first did."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for entry in ledger.entries:
        counts[entry.what, entry.to] = counts.get((entry.what, entry.to), 0) + entry.count
    return [Reveal(what=what, to=list(to), count=n) for (what, to), n in counts.items()]
