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
from privet.federation.monitoring.events import Event, Tell
from privet.runtime.accounting import Figures, Ledger, Meter
from privet.runtime.party import Party
from privet.runtime.workers import Head
from privet.spec.sampling import best_of
from privet.transport.sockets import SocketChannel

_SECONDS = 0.5


@contextlib.contextmanager
def watched(
    runtime: Party, channel: SocketChannel, tell: Tell, workers: Sequence[Head] = ()
) -> Iterator[None]:
    """Tell how a program stands while it runs, and once more when it has ended or failed."""
    over = threading.Event()
    tally = _Tally(runtime.ledger)

    def look() -> None:
        standing = {**_standing(runtime, channel, tally), **groups(workers)}
        tell(Event("progress", "", standing, passing=True))

    def watch() -> None:
        while not over.wait(_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="watches the training", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()


class _Tally:
    """What a ledger comes to, whose entries become more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen = 0
        self._counts: dict[tuple[str, tuple[str, ...]], int] = {}

    def reveals(self) -> list[dict[str, Any]]:
        entries = self._ledger.entries[self._seen :]
        self._seen += len(entries)
        for entry in entries:
            key = entry.what, entry.to
            self._counts[key] = self._counts.get(key, 0) + entry.count
        return [{"what": what, "to": to, "count": n} for (what, to), n in self._counts.items()]


def groups(workers: Sequence[Head]) -> dict[str, Any]:
    """Return how many groups there are, which is the slowest, and which one is waited for now.

    The slowest is the one whose answers were the last for most of the time that we have waited.
    And what our workers have sent and received, as of their last answers.
    """
    if not workers:
        return {}
    now = time.monotonic()
    since = {each.number: each.waits_since for each in workers}
    waits = {number: now - start for number, start in since.items() if start is not None}
    slowest = max(workers, key=lambda each: each.waited)
    return {
        "groups": len(workers),
        "slowest_group": slowest.number,
        "seconds_waited": slowest.waited,
        "waits_for_group": next(iter(waits), None),
        "waits_seconds": next(iter(waits.values()), None),
        "by_workers": Figures().with_group([each.figures for each in workers])._asdict(),
    }


def _standing(runtime: Party, channel: SocketChannel, tally: _Tally) -> dict[str, Any]:
    path = [*runtime.path]  # the program goes on meanwhile: a copy does not change
    return {
        "step": runtime.step_name,
        "table": path[0] + 1 if path else None,
        "level": path[1] + 1 if len(path) > 1 else None,
        "peers": {peer: state._asdict() for peer, state in channel.states().items()},
        "reveals": tally.reveals(),
    }


def of_table(
    meter: Meter, state: TrainingState, tables: int, rate: float, workers: Sequence[Head]
) -> Event:
    """Return that a table is done, of so many, at a rate of so many a second.

    What it took so far is what we and all of our workers did: these have answered after it.
    """
    done = state.part.n_tables
    loss = "" if state.loss is None else f", loss before it {state.loss:.5f}"
    validated: dict[str, object] = {}
    if state.losses:
        best = best_of(state.losses)
        loss += f", validation loss {state.losses[-1]:.5f}, best at table {best}"
        validated = {"validation_loss": state.losses[-1], "best_table": best}
    if standing := groups(workers):
        loss += f", slowest is group {standing['slowest_group']} of {standing['groups']}"
    took = meter.figures().with_group([each.figures for each in workers])
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
