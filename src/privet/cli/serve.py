"""`privet serve`: predictions by ids, which the recipient answers over HTTP."""

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
    """A signal stops the service while peers are disconnected: there is nothing to finish."""


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
    with open_event_bus(log_format) as emit, contextlib.ExitStack() as stack:
        party_config = PartyConfig.load(party)
        agreed = load_local_part(party_config, part, None).job if job is None else Job.read(job)
        stack.enter_context(lock_job_or_warn(party_config, agreed, "serve", emit))
        stack.enter_context(
            record_run(
                party_config.folder, agreed, party_config.name, current_command.get(), emit, job
            )
        )
        stack.enter_context(own_dealer(party_config, agreed, wait, emit, service=True, keep=keep))

        def load_model() -> ServedModel:
            file = load_local_part(party_config, part, agreed)
            if job is None:
                _warn_about_addresses(file.job, agreed, emit)
            return ServedModel(file, party_config.read_new_rows(agreed, file.encoders, data, query))

        @contextlib.contextmanager
        def open_service_session(seconds: float) -> Iterator[LocalMember]:
            keys = party_config.key, party_config.certificate, party_config.listen
            with (
                audit_session(
                    party_config.audit, agreed, party_config.name, current_command.get(), emit
                ),
                open_session(
                    agreed, party_config.name, *keys, timeout=seconds, emit=emit
                ) as member,
            ):
                yield member

        is_recipient = party_config.name == agreed.party_names[agreed.recipient_index]
        endpoint = (
            party_config.endpoint.with_address(http) if is_recipient else party_config.endpoint
        )
        queue = None
        if is_recipient:
            queue = RequestQueue(
                has_explanations=agreed.explain is not None,
                max_queued=endpoint.most_waiting,
                peers=[
                    n for n in (*agreed.party_names, *agreed.dealer_names) if n != party_config.name
                ],
            )
        server: ServiceRunner | None = None

        def emit_model_event(event: Event) -> None:
            if queue is not None:
                queue.stats.refused_models += event.fields.get("refused", False)
            emit(event)

        def run_session(member: LocalMember) -> None:
            nonlocal server
            if queue is not None and queue.is_closed:
                return
            if server is None:
                # A failure here, before the peers are connected, is still reported to them.
                model = ReloadingModel(
                    part, load_model, emit_model_event, rows_are_aligned=agreed.align
                )
                get_model = stack.enter_context(model)
                if queue is not None:
                    stack.enter_context(
                        _run_endpoint(party_config.data, endpoint, queue, agreed, get_model, emit)
                    )
                server = ServiceRunner(get_model, party_config.folder, queue, party_config.cluster)
            try:
                server.run_session(member)
            except PeerError:
                if queue is None or not queue.is_closed:
                    raise
                # Stopped while a peer was disconnected: pending requests are rejected.
            finally:
                emit_disclosures(server.disclosures, emit)

        with contextlib.suppress(_StoppedEarly):
            run_with_retry(
                open_service_session,
                run_session,
                wait,
                emit,
                is_service=True,
                keep_running=keep and not is_recipient,
            )
        if queue is None:
            emit(Event("done", "the recipient has ended the service"))
        else:
            text = f"served {queue.stats.requests:,} requests"
            emit(Event("done", text, vars(queue.stats)))


def _warn_about_addresses(new_job: Job, running_job: Job, emit: EventHandler) -> None:
    """Warn that the next start without --job would use other addresses or keys than this one."""
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
    """Run the endpoint until the service stops."""
    try:
        from privet.web.schema import RequestParser
        from privet.web.server import run_endpoint
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name}, which the endpoint needs, is not installed: pip install 'privet[serve]'"
        ) from None
    parser = RequestParser(
        job.ids.parts,
        endpoint.most_rows,
        queue.has_explanations,
        table_spec=table_spec,
        get_encoders=lambda: get_model().part_file.encoders,
    )
    job_info = {"job": job.name}
    scheme = "https" if endpoint.certificate else "http"
    if endpoint.token and not endpoint.is_local and not endpoint.certificate:
        text = (
            "endpoint: the token travels in the clear: give a certificate, or have a proxy do TLS"
        )
        emit(Event("warning", text))
    with run_endpoint(endpoint, queue, parser, job_info, emit) as port, _stop_on_signal(queue):
        text = f"asking is on {scheme}://{endpoint.host}:{port}/predict"
        emit(Event("http", text, {"port": port, "scheme": scheme}))
        yield


@contextlib.contextmanager
def _stop_on_signal(queue: RequestQueue) -> Iterator[None]:
    """Close the queue on SIGINT or SIGTERM, which ends the service and not the process."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def handle_signal(*_: object) -> None:
        for signum in signals:
            signal.signal(signum, signal.SIG_DFL)  # a second signal ends the process
        is_waiting = queue.status == "waiting"
        # In another thread: the main thread may hold the lock of the queue.
        threading.Thread(target=queue.close, args=("the service was stopped",)).start()
        if is_waiting:
            raise _StoppedEarly

    previous = [signal.signal(signum, handle_signal) for signum in signals]
    try:
        yield
    finally:
        for signum, handler in zip(signals, previous, strict=True):
            signal.signal(signum, handler)
