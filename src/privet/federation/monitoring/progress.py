"""The progress of a training run: an event after each table, and one twice a second.

An event contains the step and the level, the traffic with each peer, the disclosures so far, and
the state of the worker groups. None of it is data: it comes from the meters, the disclosure ledger
and the connections.
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
    """Emit progress events while a program runs, and one more when it has ended or failed."""
    ended = threading.Event()
    tally = _DisclosureTally(runtime.ledger)

    def emit_progress() -> None:
        fields = {
            **_describe_progress(runtime, channel, tally),
            **describe_shard_groups(worker_handles),
        }
        emit(Event("progress", "", fields, is_transient=True))

    def poll() -> None:
        while not ended.wait(_SECONDS):
            emit_progress()

    thread = threading.Thread(target=poll, name="watches the training", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        emit_progress()


class _DisclosureTally:
    """The totals of a growing disclosure ledger."""

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
        return [
            {"what": disclosure, "to": recipients, "count": n}
            for (disclosure, recipients), n in self._counts.items()
        ]


def describe_shard_groups(worker_handles: Sequence[WorkerHandle]) -> dict[str, Any]:
    """Return the state of the worker groups and the traffic of the local workers, as event fields.

    The slowest group is the last to respond for the largest share of the waiting time.
    The traffic is as of the last result of each worker.
    """
    if not worker_handles:
        return {}
    now = time.monotonic()
    waiting_since = {handle.shard_number: handle.waiting_since for handle in worker_handles}
    current_waits = {
        number: now - start for number, start in waiting_since.items() if start is not None
    }
    slowest = max(worker_handles, key=lambda handle: handle.wait_seconds)
    return {
        "groups": len(worker_handles),
        "slowest_group": slowest.shard_number,
        "seconds_waited": slowest.wait_seconds,
        "waits_for_group": next(iter(current_waits), None),
        "waits_seconds": next(iter(current_waits.values()), None),
        "by_workers": MeterTotals()
        .add_parallel([handle.meter_totals for handle in worker_handles])
        ._asdict(),
    }


def _describe_progress(
    runtime: Party, channel: SocketChannel, tally: _DisclosureTally
) -> dict[str, Any]:
    path = [*runtime.path]  # a copy, because the program continues in another thread
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
    """Return the event of a trained table; `rate` is in tables per second.

    The traffic includes that of all local workers, which have sent their results for the table.
    """
    n_tables = state.part.n_tables
    loss = "" if state.loss is None else f", loss before it {state.loss:.5f}"
    validation: dict[str, object] = {}
    if state.losses:
        best = find_best_table_count(state.losses)
        loss += f", validation loss {state.losses[-1]:.5f}, best at table {best}"
        validation = {"validation_loss": state.losses[-1], "best_table": best}
    if groups := describe_shard_groups(worker_handles):
        loss += f", slowest is group {groups['slowest_group']} of {groups['groups']}"
    totals = meter.summarise().add_parallel([each.meter_totals for each in worker_handles])
    return Event(
        "table",
        f"table {n_tables} of {tables}, {60 * rate:.1f} a minute, "
        f"{(tables - n_tables) / rate:.0f} s left, {totals.sent / 1e6:,.1f} MB sent{loss}",
        {
            "table": n_tables,
            "tables": tables,
            "tables_per_second": rate,
            "seconds_left": (tables - n_tables) / rate,
            "rounds": totals.rounds,
            "bytes_sent": totals.sent,
            "bytes_from_dealer": totals.dealt,
            **({} if state.loss is None else {"loss_before": state.loss}),
            **validation,
            **groups,
        },
    )
