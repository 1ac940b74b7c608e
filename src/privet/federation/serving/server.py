"""A participant in a prediction service: what it has from one session to the next.

A session lasts as long as all are there. What a participant serves outlives it: its rows, the model
that was loaded last, the requests of those who ask, and the alignment, which is used again in the
next session if all participants still have it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from privet.config.party import Cluster
from privet.errors import PeerError, PrivetError
from privet.federation.alignment.alignment import alignments_of, find_common
from privet.federation.cluster.pool import workers_on_call
from privet.federation.monitoring.events import Event, Tell
from privet.federation.monitoring.report import Reveal, reveals
from privet.federation.serving.model import Newest, ServedModel
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.serving.service import ServiceByIds, ServiceByPositions
from privet.federation.session.agreement import Holding, Statement, agree_on_purpose, agree_on_rows
from privet.federation.session.session import Seat
from privet.runtime.accounting import Ledger
from privet.runtime.party import Party
from privet.runtime.run import run_party
from privet.storage.alignment import Alignment


class Server:
    """One participant; the recipient alone has a queue of requests."""

    def __init__(
        self,
        newest: Newest,
        folder: str | Path,
        queue: RequestQueue | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """Serve what was loaded last; alignments are counted in a folder.

        Large batches go through workers, which are in a cluster, if the job has shards.
        """
        self._newest = newest
        self._folder = folder
        self._queue = queue
        self._cluster = cluster or Cluster()
        self._alignment: Alignment | None = None
        self._used = ""
        self.revealed: list[Reveal] = []
        """What the last session revealed, to whom, however it ended."""

    def serve(self, seat: Seat) -> None:
        """Answer predictions until the recipient closes its queue, or somebody is lost.

        Where the job aligns rows, those that all have can be asked for.
        """
        reason = "the service has ended"
        self.revealed = []
        if self._queue is not None:
            self._queue.served.meetings += 1
        try:
            self._session(seat)
        except PrivetError as error:
            reason = "not all participants are there, or agree: meeting them again"
            if isinstance(error, PeerError) and error.peer is not None:
                reason = f"{error.peer} was lost: meeting the others again"
            raise
        finally:
            if self._queue is not None:
                self._queue.suspend(reason)

    def _session(self, seat: Seat) -> None:
        job, model = seat.job, self._newest()
        alignments, kept = alignments_of(job, model.ids, self._folder), self._alignment
        with contextlib.ExitStack() as stack:
            channel = stack.enter_context(seat.meet())
            statement = Statement.of(
                job,
                command="serve",
                model=model.name,
                aligned=alignments.count,
                alignment=None if kept is None else kept.name,
            )
            purpose = agree_on_purpose(channel, job, statement)
            if job.align:
                common = find_common(channel, job, purpose, model.ids, alignments, seat.tell, kept)
                self._alignment = common.alignment
                self.revealed += common.report.reveals
            chosen = _Chosen(self._newest, self._alignment)
            # What explains takes as many numbers from the dealer as there are features.
            part = model.file.part
            n_features = 0 if job.explain is None else len(part.own_features)
            holding = Holding(samples=0, n_features=n_features, tables=part.n_tables)
            agreement = agree_on_rows(channel, job, purpose, holding)
            on_call = workers_on_call(stack, seat, channel, agreement, self._cluster)
            kind = ServiceByPositions if job.align else ServiceByIds

            def adopted(name: str) -> None:
                self._note_model(name, seat.tell)

            service = kind(chosen.of(model), job, channel, chosen, self._queue, on_call, adopted)
            ledger = Ledger()

            def program(runtime: Party, _: None) -> None:
                nonlocal ledger
                ledger = runtime.ledger
                service(runtime, None)

            rows = service.model.frame.n_samples
            seat.serving = True
            if self._queue is not None:
                self._queue.open(channel.peers)
            seat.tell(Event("serving", f"serving {rows:,} rows", {"samples": rows}))
            try:
                index = job.names.index(seat.name)
                run_party(program, index, job.names, None, channel, dealers=job.dealer_names)
            finally:
                self.revealed += reveals(ledger)

    def _note_model(self, name: str, tell: Tell) -> None:
        """Tell that all predict with another model than before, in this session or the last."""
        if self._used not in ("", name):
            if self._queue is not None:
                self._queue.served.models += 1
            text = f"the new model, {name[:16]}, is used from now on"
            tell(Event("model", text, {"used": True, "model": name}))
        self._used = name


class _Chosen:
    """The newest model, with the rows that all have."""

    def __init__(self, newest: Newest, alignment: Alignment | None) -> None:
        self._newest = newest
        self._alignment = alignment
        self._last: tuple[ServedModel, ServedModel] | None = None

    def __call__(self) -> ServedModel:
        return self.of(self._newest())

    def of(self, model: ServedModel) -> ServedModel:
        """Return a model with the rows that all have; the same one if asked again."""
        if self._alignment is None:
            return model
        if self._last is None or self._last[0] is not model:
            self._last = model, model.take(self._alignment.rows)
        return self._last[1]
