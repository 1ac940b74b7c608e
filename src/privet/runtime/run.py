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

from privet.arithmetic.shares import HOLDERS
from privet.errors import ParameterError, ResultError
from privet.runtime.accounting import Ledger, Meter
from privet.runtime.correlations.dealer import Dealer, SoleDealer
from privet.runtime.correlations.files import DealtSource, FileSink, framing_bytes
from privet.runtime.correlations.replicated import Fellows, OneOfThree, SinkOfThree
from privet.runtime.correlations.source import LiveSink, LiveSource, Source, Undealt
from privet.runtime.cost import Counter
from privet.runtime.party import Party
from privet.transport.channel import Channel
from privet.transport.frames import HEADER_BYTES
from privet.transport.tls import Identity

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


@dataclass
class Dealt:
    """What dealing took."""

    seconds: float
    """Of computing."""
    meter: Meter
    """What was sent to other dealers, and received from them."""


def check_dealers(count: int) -> int:
    """Return how many dealers there are; raise ParameterError unless that is one or three."""
    if count not in (1, HOLDERS):
        raise ParameterError(f"dealers: there are one or three, not {count}")
    return count


def dealer_names(count: int) -> tuple[str, ...]:
    """Return what one dealer is called, or three."""
    return (DEALER,) if count == 1 else tuple(f"{DEALER}{k + 1}" for k in range(count))


HEAD = "head"
"""What a head is called by its workers."""


def worker_name(shard: int) -> str:
    """Return what a worker is called: by its shard, counted from 1."""
    return f"worker{shard + 1}"


def worker_names(shards: int) -> list[str]:
    """Return what workers are called; without shards there are none."""
    return [worker_name(shard) for shard in range(shards)] if shards > 1 else []


def bytes_ahead(
    program: Program,
    names: Sequence[str],
    identity: Identity,
    terms: Mapping[str, Any],
    fellows: Fellows | None = None,
) -> int:
    """Return how much room a dealer's files take, all together, by counting the program through.

    Of three dealers, each writes about a third of that.
    """
    counter = Counter(len(names))
    program(counter, None)
    corrections = counter.total.offline + HEADER_BYTES * counter.corrections
    return corrections + framing_bytes(names, identity, terms, fellows)


def deal_ahead(
    program: Program,
    names: Sequence[str],
    folder: str | Path,
    identity: Identity,
    terms: Mapping[str, Any],
    on_progress: OnProgress | None = None,
    fellows: Fellows | None = None,
) -> list[Path]:
    """Run a program as the dealer, before anybody is there; return each participant's file.

    One of three dealers does so with its fellows.
    """
    paths, _ = deal_ahead_metered(program, names, folder, identity, terms, on_progress, fellows)
    return paths


def deal_ahead_metered(
    program: Program,
    names: Sequence[str],
    folder: str | Path,
    identity: Identity,
    terms: Mapping[str, Any],
    on_progress: OnProgress | None = None,
    fellows: Fellows | None = None,
) -> tuple[list[Path], Dealt]:
    """Do what `deal_ahead` does; return also what it took."""
    started = time.thread_time()
    sink = FileSink(folder, names, identity, terms, fellows)
    try:
        dealer: Dealer
        if fellows is None:
            dealer = SoleDealer(len(names), sink)
        else:
            dealer = OneOfThree(len(names), sink, fellows)
        dealer.on_progress = on_progress
        program(dealer, None)
        dealer.close()
    except BaseException:
        sink.abandon()
        raise
    return sink.paths, _dealt(dealer, started)


def run_party(
    program: Program,
    index: int,
    names: Sequence[str],
    data: Any,
    channel: Channel,
    correlations: DealtSource | Undealt | None = None,
    on_progress: OnProgress | None = None,
    dealers: Sequence[str] = (DEALER,),
) -> Record:
    """Run a program as one participant, with live dealers, a file that was taken, or none."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(channel)
        source: Source = LiveSource(channel, dealers)
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


def run_dealer(
    program: Program,
    names: Sequence[str],
    channel: Channel,
    dealers: Sequence[str] = (DEALER,),
) -> Dealt:
    """Run a program as the dealer, or one of three, and return what that took."""
    started = time.thread_time()
    with channel:
        channel.where = lambda: "start"
        dealer = dealer_of(names, channel, dealers)
        channel.where = lambda: dealer.step_name
        program(dealer, None)
        dealer.close()
    return _dealt(dealer, started)


def _dealt(dealer: Dealer, started: float) -> Dealt:
    return Dealt(time.thread_time() - started + dealer.seconds_aside, dealer.meter)


def dealer_of(names: Sequence[str], channel: Channel, dealers: Sequence[str]) -> Dealer:
    """Return the dealer that a channel belongs to, once all have its part of their seeds."""
    if len(dealers) == 1:
        return SoleDealer(len(names), LiveSink(channel, names))
    fellows = Fellows(dealers.index(channel.name), dealers, channel)
    return OneOfThree(len(names), SinkOfThree(channel, names, fellows), fellows)
