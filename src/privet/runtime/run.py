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

from privet.arithmetic.shares import N_HOLDERS
from privet.errors import ParameterError, ResultError
from privet.runtime.accounting import DisclosureLedger, Meter
from privet.runtime.correlations.dealer import Dealer, SingleDealer
from privet.runtime.correlations.files import (
    PreprocessingFileWriter,
    PreprocessingReceiver,
    count_framing_bytes,
)
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer, ReplicatedSender
from privet.runtime.correlations.source import (
    CorrelationReceiver,
    LiveReceiver,
    LiveSender,
    NoCorrelations,
)
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.transport.channel import Channel
from privet.transport.frames import HEADER_BYTES
from privet.transport.tls import Identity

Program = Callable[..., Any]
ProgressCallback = Callable[[int], None]
DEALER_NAME = "dealer"
_ERROR_GRACE_SECONDS = 0.5  # seconds for the others to find what we have found


@dataclass
class PartyResult:
    """What comes out of one participant."""

    result: Any
    meter: Meter
    ledger: DisclosureLedger
    peak_rss_mb: float


@dataclass
class DealerResult:
    """What dealing took."""

    seconds: float
    """Of computing."""
    meter: Meter
    """What was sent to other dealers, and received from them."""


def check_dealer_count(count: int) -> int:
    """Return how many dealers there are; raise ParameterError unless that is one or three."""
    if count not in (1, N_HOLDERS):
        raise ParameterError(f"dealers: there are one or three, not {count}")
    return count


def make_dealer_names(count: int) -> tuple[str, ...]:
    """Return what one dealer is called, or three."""
    return (DEALER_NAME,) if count == 1 else tuple(f"{DEALER_NAME}{k + 1}" for k in range(count))


COORDINATOR_NAME = "head"
"""What a head is called by its workers."""


def make_worker_name(shard: int) -> str:
    """Return what a worker is called: by its shard, counted from 1."""
    return f"worker{shard + 1}"


def make_worker_names(n_shards: int) -> list[str]:
    """Return what workers are called; without shards there are none."""
    return [make_worker_name(shard) for shard in range(n_shards)] if n_shards > 1 else []


def count_preprocessing_bytes(
    program: Program,
    names: Sequence[str],
    identity: Identity,
    settings: Mapping[str, Any],
    dealer_peers: DealerPeers | None = None,
) -> int:
    """Return how much room a dealer's files take, all together, by counting the program through.

    Of three dealers, each writes about a third of that.
    """
    counter = CostCounter(len(names))
    program(counter, None)
    corrections = counter.total.offline_bytes + HEADER_BYTES * counter.n_corrections
    return corrections + count_framing_bytes(names, identity, settings, dealer_peers)


def preprocess(
    program: Program,
    names: Sequence[str],
    folder: str | Path,
    identity: Identity,
    settings: Mapping[str, Any],
    on_progress: ProgressCallback | None = None,
    dealer_peers: DealerPeers | None = None,
) -> list[Path]:
    """Run a program as the dealer, before anybody is there; return each participant's file.

    One of three dealers does so with its fellows.
    """
    paths, _ = preprocess_metered(
        program, names, folder, identity, settings, on_progress, dealer_peers
    )
    return paths


def preprocess_metered(
    program: Program,
    names: Sequence[str],
    folder: str | Path,
    identity: Identity,
    settings: Mapping[str, Any],
    on_progress: ProgressCallback | None = None,
    dealer_peers: DealerPeers | None = None,
) -> tuple[list[Path], DealerResult]:
    """Do what `preprocess` does; return also what it took."""
    started = time.thread_time()
    sink = PreprocessingFileWriter(folder, names, identity, settings, dealer_peers)
    try:
        dealer: Dealer
        if dealer_peers is None:
            dealer = SingleDealer(len(names), sink)
        else:
            dealer = ReplicatedDealer(len(names), sink, dealer_peers)
        dealer.on_progress = on_progress
        program(dealer, None)
        dealer.close()
    except BaseException:
        sink.discard()
        raise
    return sink.paths, _make_dealer_result(dealer, started)


def run_party(
    program: Program,
    index: int,
    names: Sequence[str],
    data: Any,
    channel: Channel,
    preprocessing: PreprocessingReceiver | NoCorrelations | None = None,
    on_progress: ProgressCallback | None = None,
    dealers: Sequence[str] = (DEALER_NAME,),
) -> PartyResult:
    """Run a program as one participant, with live dealers, a file that was taken, or none."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(channel)
        source: CorrelationReceiver = LiveReceiver(channel, dealers)
        if preprocessing is not None:
            source = stack.enter_context(contextlib.closing(preprocessing))
        party = Party(index, names, channel, source)
        stack.callback(party.shut_down)
        party.on_progress = on_progress
        try:
            result = program(party, data)
        except ResultError:
            # All find the same in this round, if we do not hang up on those who wait for others.
            channel.flush()
            time.sleep(_ERROR_GRACE_SECONDS)
            raise
        party.finish()
        return PartyResult(result, party.meter, party.ledger, measure_peak_rss_mb())


def measure_peak_rss_mb() -> float:
    """Return the most memory that this process has taken."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def run_dealer(
    program: Program,
    names: Sequence[str],
    channel: Channel,
    dealers: Sequence[str] = (DEALER_NAME,),
) -> DealerResult:
    """Run a program as the dealer, or one of three, and return what that took."""
    started = time.thread_time()
    with channel:
        channel.current_step = lambda: "start"
        dealer = create_dealer(names, channel, dealers)
        channel.current_step = lambda: dealer.step_name
        program(dealer, None)
        dealer.close()
    return _make_dealer_result(dealer, started)


def _make_dealer_result(dealer: Dealer, started: float) -> DealerResult:
    return DealerResult(time.thread_time() - started + dealer.background_seconds, dealer.meter)


def create_dealer(names: Sequence[str], channel: Channel, dealers: Sequence[str]) -> Dealer:
    """Return the dealer that a channel belongs to, once all have its part of their seeds."""
    if len(dealers) == 1:
        return SingleDealer(len(names), LiveSender(channel, names))
    fellows = DealerPeers(dealers.index(channel.name), dealers, channel)
    return ReplicatedDealer(len(names), ReplicatedSender(channel, names, fellows), fellows)
