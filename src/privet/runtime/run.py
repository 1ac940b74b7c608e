"""One role of a program: a complete run of a participant, or of the dealer."""

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
_ERROR_GRACE_SECONDS = 0.5  # for the other participants to find the same error


@dataclass
class PartyResult:
    """The result of a participant's run."""

    result: Any
    meter: Meter
    ledger: DisclosureLedger
    peak_rss_mb: float


@dataclass
class DealerResult:
    """The computing time and traffic of a dealer's run."""

    seconds: float
    """Computing time of all threads."""
    meter: Meter
    """Traffic with the other dealers."""


def check_dealer_count(count: int) -> int:
    """Return the dealer count; raise ParameterError unless it is one or three."""
    if count not in (1, N_HOLDERS):
        raise ParameterError(f"dealers: there are one or three, not {count}")
    return count


def make_dealer_names(count: int) -> tuple[str, ...]:
    """Return the names of one dealer, or of three."""
    return (DEALER_NAME,) if count == 1 else tuple(f"{DEALER_NAME}{k + 1}" for k in range(count))


COORDINATOR_NAME = "head"
"""The name of the coordinator on its channels to workers."""


def make_worker_name(shard: int) -> str:
    """Return the name of a worker: its shard number, from 1."""
    return f"worker{shard + 1}"


def make_worker_names(n_shards: int) -> list[str]:
    """Return the names of all workers; without shards there are no workers."""
    return [make_worker_name(shard) for shard in range(n_shards)] if n_shards > 1 else []


def count_preprocessing_bytes(
    program: Program,
    names: Sequence[str],
    identity: Identity,
    settings: Mapping[str, Any],
    dealer_peers: DealerPeers | None = None,
) -> int:
    """Return the bytes of a dealer's files together, by a run of the program with a counter.

    Each of three dealers writes about a third of them.
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
    """Run a program as the dealer, without participants; return each participant's file.

    One of three dealers runs it with its `dealer_peers`.
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
    """Run `preprocess`; return the files, and the dealer's time and traffic."""
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
    """Run a program as one participant: with online dealers, a consumed file, or no dealer."""
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
            # All participants find the same error in this round: an abort now would reach some of
            # them before they do.
            channel.flush()
            time.sleep(_ERROR_GRACE_SECONDS)
            raise
        party.finish()
        return PartyResult(result, party.meter, party.ledger, measure_peak_rss_mb())


def measure_peak_rss_mb() -> float:
    """Return the peak memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def run_dealer(
    program: Program,
    names: Sequence[str],
    channel: Channel,
    dealers: Sequence[str] = (DEALER_NAME,),
) -> DealerResult:
    """Run a program as the dealer, or as one of three; return its time and traffic."""
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
    """Create the dealer of a channel, and distribute its parts of the seeds."""
    if len(dealers) == 1:
        return SingleDealer(len(names), LiveSender(channel, names))
    dealer_peers = DealerPeers(dealers.index(channel.name), dealers, channel)
    return ReplicatedDealer(
        len(names), ReplicatedSender(channel, names, dealer_peers), dealer_peers
    )
