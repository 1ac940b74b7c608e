"""How a training stands: after a table, and between two of them, twice a second.

The step and the level, what passed between us and each peer, what was revealed so far, for which
shard's worker we wait and what all of ours have sent. Nothing of it is data: it is what meters, the
ledger and the connections know.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from privet.boosting.training import TrainingState
from privet.federation.monitoring.events import Event, EventHandler
from privet.runtime.accounting import DisclosureLedger, Meter, MeterTotals
from privet.runtime.party import Party
from privet.runtime.workers import WorkerHandle
from privet.spec.sampling import find_best_table_count
from privet.transport.sockets import SocketChannel

_SECONDS = 0.5


@contextlib.contextmanager
def report_progress(
    runtime: Party,
    channel: SocketChannel,
    emit: EventHandler,
    worker_handles: Sequence[WorkerHandle] = (),
) -> Iterator[None]:
    """Tell how a program stands while it runs, and once more when it has ended or failed."""
    over = threading.Event()
    tally = _DisclosureTally(runtime.ledger)

    def emit_progress() -> None:
        standing = {
            **_describe_progress(runtime, channel, tally),
            **describe_shard_groups(worker_handles),
        }
        emit(Event("progress", "", standing, is_transient=True))

    def poll() -> None:
        while not over.wait(_SECONDS):
            emit_progress()

    thread = threading.Thread(target=poll, name="watches the training", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        emit_progress()


class _DisclosureTally:
    """What a ledger comes to, whose entries become more."""

    def __init__(self, ledger: DisclosureLedger) -> None:
        self._ledger = ledger
        self._seen = 0
        self._counts: dict[tuple[str, tuple[str, ...]], int] = {}

    def update(self) -> list[dict[str, Any]]:
        entries = self._ledger.entries[self._seen :]
        self._seen += len(entries)
        for entry in entries:
            key = entry.disclosure, entry.recipients
            self._counts[key] = self._counts.get(key, 0) + entry.n_elements
        return [{"what": what, "to": to, "count": n} for (what, to), n in self._counts.items()]


def describe_shard_groups(worker_handles: Sequence[WorkerHandle]) -> dict[str, Any]:
    """Return how many groups there are, which is the slowest, and which one is waited for now.

    The slowest is the one whose answers were the last for most of the time that we have waited.
    And what our workers have sent and received, as of their last answers.
    """
    if not worker_handles:
        return {}
    now = time.monotonic()
    since = {each.shard_number: each.waiting_since for each in worker_handles}
    waits = {number: now - start for number, start in since.items() if start is not None}
    slowest = max(worker_handles, key=lambda each: each.wait_seconds)
    return {
        "groups": len(worker_handles),
        "slowest_group": slowest.shard_number,
        "seconds_waited": slowest.wait_seconds,
        "waits_for_group": next(iter(waits), None),
        "waits_seconds": next(iter(waits.values()), None),
        "by_workers": MeterTotals()
        .add_parallel([each.meter_totals for each in worker_handles])
        ._asdict(),
    }


def _describe_progress(
    runtime: Party, channel: SocketChannel, tally: _DisclosureTally
) -> dict[str, Any]:
    path = [*runtime.path]  # the program goes on meanwhile: a copy does not change
    return {
        "step": runtime.step_name,
        "table": path[0] + 1 if path else None,
        "level": path[1] + 1 if len(path) > 1 else None,
        "peers": {peer: state._asdict() for peer, state in channel.connection_states().items()},
        "reveals": tally.update(),
    }


def make_table_event(
    meter: Meter,
    state: TrainingState,
    tables: int,
    rate: float,
    worker_handles: Sequence[WorkerHandle],
) -> Event:
    """Return that a table is done, of so many, at a rate of so many a second.

    What it took so far is what we and all of our workers did: these have answered after it.
    """
    done = state.part.n_tables
    loss = "" if state.loss is None else f", loss before it {state.loss:.5f}"
    validated: dict[str, object] = {}
    if state.losses:
        best = find_best_table_count(state.losses)
        loss += f", validation loss {state.losses[-1]:.5f}, best at table {best}"
        validated = {"validation_loss": state.losses[-1], "best_table": best}
    if standing := describe_shard_groups(worker_handles):
        loss += f", slowest is group {standing['slowest_group']} of {standing['groups']}"
    took = meter.summarise().add_parallel([each.meter_totals for each in worker_handles])
    return Event(
        "table",
        f"table {done} of {tables}, {60 * rate:.1f} a minute, "
        f"{(tables - done) / rate:.0f} s left, {took.sent / 1e6:,.1f} MB sent{loss}",
        {
            "table": done,
            "tables": tables,
            "tables_per_second": rate,
            "seconds_left": (tables - done) / rate,
            "rounds": took.rounds,
            "bytes_sent": took.sent,
            "bytes_from_dealer": took.dealt,
            **({} if state.loss is None else {"loss_before": state.loss}),
            **validated,
            **standing,
        },
    )
