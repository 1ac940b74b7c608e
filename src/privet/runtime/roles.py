"""One role in a program: a participant's whole run, or the dealer's."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.errors import ResultError
from privet.runtime.correlations import LiveSink, LiveSource, Source, Undealt
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.dealing_ahead import FileSink, framing_bytes
from privet.runtime.dealt_file import FileSource
from privet.runtime.ledger import Ledger
from privet.runtime.meter import Meter
from privet.runtime.party import Party
from privet.transport.channel import Channel
from privet.transport.frames import HEADER_BYTES
from privet.transport.identity import Identity

Program = Callable[..., Any]
OnProgress = Callable[[int], None]
DEALER = "dealer"
_TOGETHER = 0.5  # seconds for the others to find what we have found


@dataclass
class Record:
    """What comes out of one participant."""

    result: Any
    meter: Meter
    ledger: Ledger
    peak_rss_mb: float


def bytes_ahead(
    program: Program, names: Sequence[str], identity: Identity, terms: Mapping[str, Any]
) -> int:
    """Return how much room the files of a program take, all together, by counting it through."""
    counter = Counter(len(names))
    program(counter, None)
    corrections = counter.total.offline + HEADER_BYTES * counter.corrections
    return corrections + framing_bytes(names, identity, terms)


def deal_ahead(
    program: Program,
    names: Sequence[str],
    folder: str | Path,
    identity: Identity,
    terms: Mapping[str, Any],
    on_progress: OnProgress | None = None,
) -> list[Path]:
    """Run a program as the dealer, before anybody is there; return each participant's file."""
    sink = FileSink(folder, names, identity, terms)
    try:
        dealer = Dealer(len(names), sink)
        dealer.on_progress = on_progress
        program(dealer, None)
        dealer.close()
    except BaseException:
        sink.abandon()
        raise
    return sink.paths


def run_party(
    program: Program,
    index: int,
    names: Sequence[str],
    data: Any,
    channel: Channel,
    correlations: FileSource | Undealt | None = None,
    on_progress: OnProgress | None = None,
) -> Record:
    """Run a program as one participant, with a live dealer, a file that was taken, or none."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(channel)
        source: Source = LiveSource(channel, DEALER)
        if correlations is not None:
            source = stack.enter_context(contextlib.closing(correlations))
        party = Party(index, names, channel, source)
        stack.callback(party.release)
        party.on_progress = on_progress
        try:
            result = program(party, data)
        except ResultError:
            # All find the same in this round, if we do not hang up on those who wait for others.
            channel.flush()
            time.sleep(_TOGETHER)
            raise
        party.finish()
        return Record(result, party.meter, party.ledger, peak_rss_mb())


def peak_rss_mb() -> float:
    """Return the most memory that this process has taken."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def run_dealer(program: Program, names: Sequence[str], channel: Channel) -> float:
    """Run a program as the dealer, and return the seconds of computing that it took."""
    started = time.thread_time()
    with channel:
        channel.where = lambda: "start"
        dealer = Dealer(len(names), LiveSink(channel, names))
        channel.where = lambda: dealer.step_name
        program(dealer, None)
        dealer.close()
    return time.thread_time() - started
