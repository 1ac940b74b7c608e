"""A participant in a prediction service, and its state from one session to the next.

A session ends when a peer is lost. The rows, the newest model, the request queue and the alignment
outlive it. The next session reuses the alignment if all participants still have it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from privet.config.party import ClusterConfig
from privet.errors import PeerError, PrivetError
from privet.federation.alignment.alignment import align_rows, open_alignment_store
from privet.federation.cluster.pool import make_lazy_pool
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.monitoring.report import Reveal, summarise_disclosures
from privet.federation.serving.model import GetModel, ServedModel
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.serving.service import AlignedService, UnalignedService
from privet.federation.session.agreement import (
    DataSummary,
    Proposal,
    exchange_proposals,
    exchange_summaries,
)
from privet.federation.session.session import LocalMember
from privet.runtime.accounting import DisclosureLedger
from privet.runtime.party import Party
from privet.runtime.run import run_party
from privet.storage.alignment import Alignment


class ServiceRunner:
    """One participant of a service; only the recipient has a request queue."""

    def __init__(
        self,
        get_model: GetModel,
        alignment_folder: str | Path,
        queue: RequestQueue | None = None,
        cluster: ClusterConfig | None = None,
    ) -> None:
        """Serve the model that `get_model` returns; `alignment_folder` counts the alignments.

        If the job has shards, workers in `cluster` predict large batches.
        """
        self._get_model = get_model
        self._folder = alignment_folder
        self._queue = queue
        self._cluster = cluster or ClusterConfig()
        self._alignment: Alignment | None = None
        self._model_id = ""
        self.disclosures: list[Reveal] = []
        """Disclosures of the last session, even if it failed."""

    def run_session(self, member: LocalMember) -> None:
        """Answer requests until the recipient closes its queue, or a peer is lost.

        If `align = true`, only the common rows can be requested.
        """
        reason = "the service has ended"
        self.disclosures = []
        if self._queue is not None:
            self._queue.stats.meetings += 1
        try:
            self._serve_session(member)
        except PrivetError as error:
            reason = "not all participants are there, or agree: meeting them again"
            if isinstance(error, PeerError) and error.peer is not None:
                reason = f"{error.peer} was lost: meeting the others again"
            raise
        finally:
            if self._queue is not None:
                self._queue.set_unavailable(reason)

    def _serve_session(self, member: LocalMember) -> None:
        job, model = member.job, self._get_model()
        alignments, saved_alignment = (
            open_alignment_store(job, model.ids, self._folder),
            self._alignment,
        )
        with contextlib.ExitStack() as stack:
            channel = stack.enter_context(member.connect())
            proposal = Proposal.for_job(
                job,
                command="serve",
                model=model.model_id,
                aligned=alignments.read_count,
                alignment=None if saved_alignment is None else saved_alignment.alignment_id,
            )
            plan = exchange_proposals(channel, job, proposal)
            if job.align:
                common = align_rows(
                    channel, job, plan, model.ids, alignments, member.emit, saved_alignment
                )
                self._alignment = common.alignment
                self.disclosures += common.report.reveals
            get_common_model = _CommonRowsModel(self._get_model, self._alignment)
            # The correlated randomness for explanations depends on the number of features.
            part = model.part_file.part
            n_features = 0 if job.explain is None else len(part.local_features)
            summary = DataSummary(samples=0, n_features=n_features, tables=part.n_tables)
            agreement = exchange_summaries(channel, job, plan, summary)
            lazy_pool = make_lazy_pool(stack, member, channel, agreement, self._cluster)
            service_type = AlignedService if job.align else UnalignedService

            def on_model_switched(name: str) -> None:
                self._report_model_switch(name, member.emit)

            service = service_type(
                get_common_model.restrict(model),
                job,
                channel,
                get_common_model,
                self._queue,
                lazy_pool,
                on_model_switched,
            )
            ledger = DisclosureLedger()

            def program(runtime: Party, _: None) -> None:
                nonlocal ledger
                ledger = runtime.ledger
                service(runtime, None)

            rows = service.model.frame.n_samples
            member.was_serving = True
            if self._queue is not None:
                self._queue.set_available(channel.peers)
            member.emit(Event("serving", f"serving {rows:,} rows", {"samples": rows}))
            try:
                index = job.party_names.index(member.name)
                run_party(program, index, job.party_names, None, channel, dealers=job.dealer_names)
            finally:
                self.disclosures += summarise_disclosures(ledger)

    def _report_model_switch(self, name: str, emit: EventHandler) -> None:
        """Emit an event if the model differs from the previous one, in this or the last session."""
        if self._model_id not in ("", name):
            if self._queue is not None:
                self._queue.stats.models += 1
            text = f"the new model, {name[:16]}, is used from now on"
            emit(Event("model", text, {"used": True, "model": name}))
        self._model_id = name


class _CommonRowsModel:
    """The newest model, restricted to the common rows."""

    def __init__(self, get_model: GetModel, alignment: Alignment | None) -> None:
        self._get_model = get_model
        self._alignment = alignment
        self._cached: tuple[ServedModel, ServedModel] | None = None

    def __call__(self) -> ServedModel:
        return self.restrict(self._get_model())

    def restrict(self, model: ServedModel) -> ServedModel:
        """Return a model with the common rows; the result for the last model is cached."""
        if self._alignment is None:
            return model
        if self._cached is None or self._cached[0] is not model:
            self._cached = model, model.select_rows(self._alignment.rows)
        return self._cached[1]
