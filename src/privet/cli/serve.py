"""`privet serve`: predictions by ids, over HTTP at the recipient, for as long as it takes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from privet.cli.app import current_command
from privet.cli.console import LogFormat, open_event_bus
from privet.cli.federation import OtherJobOption, PartPathOption, QueryOption, emit_disclosures
from privet.cli.options import PartyOption, WaitOption
from privet.cli.own_dealer import own_dealer
from privet.config.job import Job
from privet.config.party import EndpointConfig, PartyConfig
from privet.config.table import TableSpec
from privet.errors import PeerError, UnavailableError
from privet.federation.commands import lock_job_or_warn
from privet.federation.monitoring.events import Event, EventHandler, audit_session, record_run
from privet.federation.prediction.prediction import load_local_part
from privet.federation.serving.model import GetModel, ReloadingModel, ServedModel
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.serving.server import ServiceRunner
from privet.federation.session.retry import run_with_retry
from privet.federation.session.session import WAIT_SECONDS, LocalMember, open_session


class _StoppedEarly(KeyboardInterrupt):
    """Somebody stops the service while the others are not there: nothing is left to be done."""


def serve(
    party: PartyOption,
    part: PartPathOption,
    data: Annotated[
        str | None,
        typer.Option(help="The rows to answer for.", show_default="those of party.toml"),
    ] = None,
    query: QueryOption = None,
    http: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT where the recipient is asked.",
            show_default="that of party.toml, or 127.0.0.1:8000",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay when the recipient ends the service.")
    ] = False,
    job: OtherJobOption = None,
    wait: WaitOption = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Stay connected and answer predictions by ids; the recipient is asked over HTTP.

    Whoever is lost is waited for, and a new model in place of the old one is taken up.
    """
    with open_event_bus(log_format) as tell, contextlib.ExitStack() as stack:
        own = PartyConfig.load(party)
        agreed = load_local_part(own, part, None).job if job is None else Job.read(job)
        stack.enter_context(lock_job_or_warn(own, agreed, "serve", tell))
        stack.enter_context(
            record_run(own.folder, agreed, own.name, current_command.get(), tell, job)
        )
        stack.enter_context(own_dealer(own, agreed, wait, tell, service=True, keep=keep))

        def load_model() -> ServedModel:
            file = load_local_part(own, part, agreed)
            if job is None:
                _warn_about_addresses(file.job, agreed, tell)
            return ServedModel(file, own.read_new_rows(agreed, file.encoders, data, query))

        @contextlib.contextmanager
        def open_service_session(seconds: float) -> Iterator[LocalMember]:
            keys = own.key, own.certificate, own.listen
            with (
                audit_session(own.audit, agreed, own.name, current_command.get(), tell),
                open_session(agreed, own.name, *keys, timeout=seconds, emit=tell) as seat,
            ):
                yield seat

        is_recipient = own.name == agreed.party_names[agreed.recipient_index]
        endpoint = own.endpoint.with_address(http) if is_recipient else own.endpoint
        queue = None
        if is_recipient:
            queue = RequestQueue(
                has_explanations=agreed.explain is not None,
                max_queued=endpoint.most_waiting,
                peers=[n for n in (*agreed.party_names, *agreed.dealer_names) if n != own.name],
            )
        server: ServiceRunner | None = None

        def emit_model_event(event: Event) -> None:
            if queue is not None:
                queue.stats.refused_models += event.fields.get("refused", False)
            tell(event)

        def run_session(seat: LocalMember) -> None:
            nonlocal server
            if queue is not None and queue.is_closed:
                return
            if server is None:
                # Whatever fails here, before all have met, is told to the others.
                watched = ReloadingModel(
                    part, load_model, emit_model_event, rows_are_aligned=agreed.align
                )
                newest = stack.enter_context(watched)
                if queue is not None:
                    stack.enter_context(
                        _run_endpoint(own.data, endpoint, queue, agreed, newest, tell)
                    )
                server = ServiceRunner(newest, own.folder, queue, own.cluster)
            try:
                server.run_session(seat)
            except PeerError:
                if queue is None or not queue.is_closed:
                    raise
                # Stopped while somebody was lost: what was asked is refused, and that is all.
            finally:
                emit_disclosures(server.disclosures, tell)

        with contextlib.suppress(_StoppedEarly):
            run_with_retry(
                open_service_session,
                run_session,
                wait,
                tell,
                is_service=True,
                keep_running=keep and not is_recipient,
            )
        if queue is None:
            tell(Event("done", "the recipient has ended the service"))
        else:
            text = f"served {queue.stats.requests:,} requests"
            tell(Event("done", text, vars(queue.stats)))


def _warn_about_addresses(new_job: Job, running_job: Job, emit: EventHandler) -> None:
    """Tell whoever gives no job that the next start would meet the others elsewhere than we do."""
    before = running_job.list_connection_settings()
    others = [
        f"{k}: {before.get(k)} here"
        for k, v in new_job.list_connection_settings().items()
        if before.get(k) != v
    ]
    if others:
        text = (
            "warning: the new model was trained at other addresses or with other keys than this "
            f"service has ({', '.join(others)}), and the next start would use those: from now on "
            "start it with --job, and the job that this one was started with"
        )
        emit(Event("warning", text))


@contextlib.contextmanager
def _run_endpoint(
    table_spec: TableSpec,
    endpoint: EndpointConfig,
    queue: RequestQueue,
    job: Job,
    get_model: GetModel,
    emit: EventHandler,
) -> Iterator[None]:
    """Have the endpoint there, until somebody stops the service."""
    try:
        from privet.web.schema import RequestParser
        from privet.web.server import run_endpoint
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name}, which the endpoint needs, is not installed: pip install 'privet[serve]'"
        ) from None
    reader = RequestParser(
        job.ids.parts,
        endpoint.most_rows,
        queue.has_explanations,
        table_spec=table_spec,
        get_encoders=lambda: get_model().part_file.encoders,
    )
    about = {"job": job.name}
    scheme = "https" if endpoint.certificate else "http"
    if endpoint.token and not endpoint.is_local and not endpoint.certificate:
        text = (
            "endpoint: the token travels in the clear: give a certificate, or have a proxy do TLS"
        )
        emit(Event("warning", text))
    with run_endpoint(endpoint, queue, reader, about, emit) as port, _stop_on_signal(queue):
        text = f"asking is on {scheme}://{endpoint.host}:{port}/predict"
        emit(Event("http", text, {"port": port, "scheme": scheme}))
        yield


@contextlib.contextmanager
def _stop_on_signal(queue: RequestQueue) -> Iterator[None]:
    """End the service, not the process, when somebody interrupts or terminates it."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def handle_signal(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)  # a second time ends the process
        waiting = queue.status == "waiting"
        # In a thread of its own: the main one may be in the middle of using the queue.
        threading.Thread(target=queue.close, args=("the service was stopped",)).start()
        if waiting:
            raise _StoppedEarly

    before = [signal.signal(number, handle_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
