"""`privet serve`: predictions by ids, over HTTP at the recipient, for as long as it takes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from privet.cli.app import COMMAND
from privet.cli.console import LogFormat, telling
from privet.cli.federation import ModelOption, NewRows, OtherJob, tell_reveals
from privet.cli.options import PartyOption, Wait
from privet.cli.own_dealer import own_dealer
from privet.config.job import Job
from privet.config.party import Endpoint, PartyFile
from privet.config.table import DataDescription
from privet.errors import PeerError, UnavailableError
from privet.federation.commands import alone
from privet.federation.monitoring.events import Event, Tell, audited, recorded
from privet.federation.prediction.prediction import load_own_part
from privet.federation.serving.model import Newest, ServedModel, WatchedModel
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.serving.server import Server
from privet.federation.session.retry import persist
from privet.federation.session.session import WAIT_SECONDS, Seat, seated


class _Stopped(KeyboardInterrupt):
    """Somebody stops the service while the others are not there: nothing is left to be done."""


def serve(
    party: PartyOption,
    model: ModelOption,
    data: Annotated[
        str | None,
        typer.Option(help="The rows to answer for.", show_default="those of party.toml"),
    ] = None,
    query: NewRows = None,
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
    job: OtherJob = None,
    wait: Wait = WAIT_SECONDS,
    log_format: LogFormat = "text",
) -> None:
    """Stay connected and answer predictions by ids; the recipient is asked over HTTP.

    Whoever is lost is waited for, and a new model in place of the old one is taken up.
    """
    with telling(log_format) as tell, contextlib.ExitStack() as stack:
        own = PartyFile.load(party)
        agreed = load_own_part(own, model, None).job if job is None else Job.read(job)
        stack.enter_context(alone(own, agreed, "serve", tell))
        stack.enter_context(recorded(own.folder, agreed, own.name, COMMAND.get(), tell, job))
        stack.enter_context(own_dealer(own, agreed, wait, tell, service=True, keep=keep))

        def load() -> ServedModel:
            file = load_own_part(own, model, agreed)
            if job is None:
                _warn_of_seats(file.job, agreed, tell)
            return ServedModel(file, own.read_new_rows(agreed, file.encoders, data, query))

        @contextlib.contextmanager
        def sit(seconds: float) -> Iterator[Seat]:
            keys = own.key, own.certificate, own.listen
            with (
                audited(own.audit, agreed, own.name, COMMAND.get(), tell),
                seated(agreed, own.name, *keys, wait=seconds, tell=tell) as seat,
            ):
                yield seat

        is_recipient = own.name == agreed.names[agreed.recipient_index]
        endpoint = own.endpoint.at(http) if is_recipient else own.endpoint
        queue = None
        if is_recipient:
            queue = RequestQueue(
                explains=agreed.explain is not None,
                most_waiting=endpoint.most_waiting,
                peers=[n for n in (*agreed.names, *agreed.dealer_names) if n != own.name],
            )
        server: Server | None = None

        def tell_of_model(event: Event) -> None:
            if queue is not None:
                queue.served.refused_models += event.fields.get("refused", False)
            tell(event)

        def session(seat: Seat) -> None:
            nonlocal server
            if queue is not None and queue.closed:
                return
            if server is None:
                # Whatever fails here, before all have met, is told to the others.
                watched = WatchedModel(model, load, tell_of_model, aligned=agreed.align)
                newest = stack.enter_context(watched)
                if queue is not None:
                    stack.enter_context(_asked(own.data, endpoint, queue, agreed, newest, tell))
                server = Server(newest, own.folder, queue, own.cluster)
            try:
                server.serve(seat)
            except PeerError:
                if queue is None or not queue.closed:
                    raise
                # Stopped while somebody was lost: what was asked is refused, and that is all.
            finally:
                tell_reveals(server.revealed, tell)

        with contextlib.suppress(_Stopped):
            persist(sit, session, wait, tell, service=True, keep=keep and not is_recipient)
        if queue is None:
            tell(Event("done", "the recipient has ended the service"))
        else:
            text = f"served {queue.served.requests:,} requests"
            tell(Event("done", text, vars(queue.served)))


def _warn_of_seats(new: Job, agreed: Job, tell: Tell) -> None:
    """Tell whoever gives no job that the next start would meet the others elsewhere than we do."""
    before = agreed.seats()
    others = [f"{k}: {before.get(k)} here" for k, v in new.seats().items() if before.get(k) != v]
    if others:
        text = (
            "warning: the new model was trained at other addresses or with other keys than this "
            f"service has ({', '.join(others)}), and the next start would use those: from now on "
            "start it with --job, and the job that this one was started with"
        )
        tell(Event("warning", text))


@contextlib.contextmanager
def _asked(
    data: DataDescription,
    endpoint: Endpoint,
    queue: RequestQueue,
    job: Job,
    newest: Newest,
    tell: Tell,
) -> Iterator[None]:
    """Have the endpoint there, until somebody stops the service."""
    try:
        from privet.web.schema import Reader
        from privet.web.server import serving_http
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name}, which the endpoint needs, is not installed: pip install 'privet[serve]'"
        ) from None
    reader = Reader(
        job.ids.parts,
        endpoint.most_rows,
        queue.explains,
        described=data,
        encoders=lambda: newest().file.encoders,
    )
    about = {"job": job.name}
    scheme = "https" if endpoint.certificate else "http"
    if endpoint.token and not endpoint.is_local and not endpoint.certificate:
        text = (
            "endpoint: the token travels in the clear: give a certificate, or have a proxy do TLS"
        )
        tell(Event("warning", text))
    with serving_http(endpoint, queue, reader, about, tell) as port, _drained(queue):
        text = f"asking is on {scheme}://{endpoint.host}:{port}/predict"
        tell(Event("http", text, {"port": port, "scheme": scheme}))
        yield


@contextlib.contextmanager
def _drained(queue: RequestQueue) -> Iterator[None]:
    """End the service, not the process, when somebody interrupts or terminates it."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def close(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)  # a second time ends the process
        waiting = queue.status == "waiting"
        # In a thread of its own: the main one may be in the middle of using the queue.
        threading.Thread(target=queue.close, args=("the service was stopped",)).start()
        if waiting:
            raise _Stopped

    before = [signal.signal(number, close) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
