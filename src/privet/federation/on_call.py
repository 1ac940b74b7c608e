"""Workers of a service: called when a large batch comes, and kept until its session ends.

Nobody is called for small batches, which are most of them: so these are as fast as without workers,
and a service is up without waiting for a cluster. What workers of a service need to know comes from
their head, batch by batch: they have no rows, and no model.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from privet.boosting.sharded_inference import Crowd, in_shards
from privet.errors import PrivetError
from privet.federation.agreement import Agreement
from privet.federation.crew import Crew
from privet.federation.engines import Engine, engine_of
from privet.federation.session import Seat
from privet.federation.shard_rows import crew_without_rows, no_rows
from privet.files.cluster import Cluster
from privet.runtime.meter import Meter
from privet.runtime.orders import METER, PULSE, Head, Order
from privet.transport.sockets import SocketChannel

_PULSE_SECONDS = 1.0


class OnCall:
    """The workers of one role in one session."""

    def __init__(self, shards: int, gather: Callable[[], Crew]) -> None:
        """Have as many as there are shards; all roles gather theirs at the same time."""
        self._shards = shards
        self._gather = gather
        self._crew: Crew | None = None
        self._next_pulse = 0.0

    def crowd(self, rows: int) -> Crowd | None:
        """Return who predicts a batch of so many rows; None, if the heads do."""
        return Crowd(self._shards, self.called()) if in_shards(self._shards, rows) else None

    def called(self) -> Sequence[Head]:
        """Return all workers, once they are there."""
        if self._crew is None:
            self._crew = self._gather()
        return self._crew.workers

    def look(self) -> None:
        """Raise PeerLostError if one of our workers is gone, as far as that shows by now."""
        if self._crew is None or time.monotonic() < self._next_pulse:
            return
        self._next_pulse = time.monotonic() + _PULSE_SECONDS
        for worker in self._crew.workers:
            worker.give(Order(PULSE))

    def metered(self) -> list[Meter]:
        """Return what each of them, if they were called, has metered since then."""
        workers = [] if self._crew is None else self._crew.workers
        for worker in workers:
            worker.give(Order(METER))
        return [worker.metered() for worker in workers]


def workers_on_call(
    stack: contextlib.ExitStack,
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    cluster: Cluster,
    engine: Engine | None = None,
) -> OnCall:
    """Return workers in a cluster, who stay until the stack is left.

    Without an engine that is there already, one is started for them when they are called.
    """

    def gather() -> Crew:
        placed_by = engine or stack.enter_context(engine_of(cluster, no_rows))
        crew = crew_without_rows(seat, channel, agreement, cluster, placed_by)
        return stack.enter_context(_forgiven(crew) if agreement.command == "serve" else crew)

    return OnCall(seat.job.shards, gather)


@contextlib.contextmanager
def _forgiven(gathered: contextlib.AbstractContextManager[Crew]) -> Iterator[Crew]:
    """Let a worker be lost that nobody needs any more.

    A service that has ended well has ended for all, and would be waited for in vain.
    """
    ended_well = False
    try:
        with gathered as crew:
            yield crew
            ended_well = True
    except PrivetError:
        if not ended_well:
            raise


def _nobody() -> Crew:
    raise AssertionError("there are no shards")


NOBODY = OnCall(1, _nobody)
"""For whoever has no workers."""
