"""Events of a running member, and their subscribers: the audit log and the journal of the run."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet.config.job import Job
from privet.errors import EXIT_CODE_INTERRUPTED, PrivetError, UnavailableError
from privet.storage.journal import AuditLog, JournalWriter
from privet.version import __version__

_FIRST_WAIT_SECONDS, _LATER_WAIT_SECONDS = 5.0, 60.0
"""Seconds until a log repeats that this member still waits: the first time, and later times."""
_MAX_WAIT_REASONS = 100
"""A limit, because peers influence the reasons and must not fill the local log."""


@dataclass(frozen=True)
class Event:
    """An event of a run, for its display, logs and records."""

    kind: str
    """waiting, connected, started, resumed, table, done, ..."""
    text: str
    """The event as a sentence."""
    fields: dict[str, Any] = field(default_factory=dict)
    is_transient: bool = False
    """Whether a later event soon replaces it: for a live display, not for logs."""

    def to_record(self) -> dict[str, Any]:
        """Return the event as a JSON object for machine-readable logs."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        return {"time": now, "event": self.kind, "text": self.text, **self.fields}


EventHandler = Callable[[Event], None]


class EventBus:
    """Passes events to the display and to temporary subscribers."""

    def __init__(self, display: EventHandler) -> None:
        self._display = display
        self._subscribers: list[EventHandler] = []

    def __call__(self, event: Event) -> None:
        """Pass an event to all subscribers, then to the display: a displayed event is recorded."""
        for handler in self._subscribers:
            handler(event)
        self._display(event)

    @contextlib.contextmanager
    def subscribe(self, handler: EventHandler) -> Iterator[None]:
        """Subscribe a handler for the duration of the context."""
        self._subscribers.append(handler)
        try:
            yield
        finally:
            self._subscribers.remove(handler)


class WaitReporter:
    """Emits waiting events: right away for a new reason, and then at growing intervals.

    The transport calls it every second, and a wait can last for days. Repetitions are transient
    events.
    """

    def __init__(self, emit: EventHandler) -> None:
        self._emit = emit
        self._reasons: set[tuple[str, ...]] = set()
        self._due = 0.0

    def __call__(self, text: str, missing: Sequence[str]) -> None:
        """Emit an event with the missing peers; the text ends with the waiting time in brackets."""
        reason, now = (*missing, text.rpartition(" (")[0]), time.monotonic()
        is_new = reason not in self._reasons and len(self._reasons) < _MAX_WAIT_REASONS
        is_transient = not is_new and now < self._due
        if not is_transient:
            self._reasons.add(reason)
            self._due = now + (_FIRST_WAIT_SECONDS if is_new else _LATER_WAIT_SECONDS)
        self._emit(Event("waiting", text, {"missing": list(missing)}, is_transient))


def make_failure_event(error: BaseException) -> Event:
    """Return the event of an interruption or an error."""
    if isinstance(error, KeyboardInterrupt):
        return Event("interrupted", "interrupted", {"code": EXIT_CODE_INTERRUPTED})
    if not isinstance(error, PrivetError):
        trace = "".join(traceback.format_exception(error))
        text = f"a bug of ours, please report it: {error!r}"
        fields = {"code": PrivetError.exit_code, "error": type(error).__name__, "traceback": trace}
        return Event("error", text, fields)
    fields = {
        "code": error.exit_code,
        "error": error.kind,
        "peer": error.peer,
        "step": error.step,
    }
    return Event("error", str(error), fields)


def discard_event(event: Event) -> None:
    """Ignore an event."""


@contextlib.contextmanager
def audit_session(
    path: str | None, job: Job, name: str, command: str, event_bus: EventBus
) -> Iterator[None]:
    """Record a session in the audit log at `path`, if it is set, from the events of the session.

    The log has one record at the start of a session, one when all members are connected, with the
    certificate that each peer has proven to own, and one at the end. All records of a session have
    the same session id. The first one is written before anything else happens: without a writable
    log, no session takes place.

    After a failure, the last record contains the disclosures so far only if the session reported
    them, as a service does. Otherwise they are not known here, and `ledger` is null: they are at
    most the disclosures that the job allows.
    """
    if path is None:
        yield
        return
    log, session = AuditLog(path), secrets.token_hex(8)
    ledger: list[dict[str, Any]] = []

    def record_event(event: Event) -> None:
        if event.kind == "connected":
            peers = {peer: job.get_entry(peer).fingerprint for peer in event.fields["peers"]}
            log.append("met", session=session, peers=peers)
        elif event.kind == "revealed":
            ledger.append(event.fields)

    log.append(
        "began",
        session=session,
        name=name,
        command=command,
        job=job.name,
        digest=job.digest,
        version=__version__,
    )
    try:
        with event_bus.subscribe(record_event):
            yield
    except BaseException as error:
        log.append(
            "ended", session=session, outcome=_describe_outcome(error), ledger=ledger or None
        )
        raise
    log.append("ended", session=session, outcome={"code": 0}, ledger=ledger)


def _describe_outcome(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PrivetError):
        cause = {"error": error.kind, "peer": error.peer, "step": error.step}
        return {"code": error.exit_code, **cause, "text": str(error)}
    interrupted = isinstance(error, KeyboardInterrupt)
    code = EXIT_CODE_INTERRUPTED if interrupted else PrivetError.exit_code
    return {"code": code, "error": type(error).__name__}


@contextlib.contextmanager
def record_run(
    folder: str | Path,
    job: Job,
    name: str,
    command: str,
    event_bus: EventBus,
    job_file: Path | None = None,
) -> Iterator[None]:
    """Record the events of a run in a participant's folder; `job_file` is the path of the job.

    The journal is for the dashboard, not for auditors: a run continues without one if it cannot be
    written.
    """
    with contextlib.ExitStack() as stack:
        try:
            journal = JournalWriter(folder, command)
            stack.callback(journal.close)
            journal.append(_make_start_event(job, name, command, job_file).to_record())
        except UnavailableError as error:
            event_bus(Event("warning", f"warning: no record is kept of this run: {error}"))
            yield
            return
        subscriber = _JournalSubscriber(journal)
        try:
            with event_bus.subscribe(subscriber):
                yield
        except BaseException as error:
            subscriber(make_failure_event(error))
            raise


def _make_start_event(job: Job, name: str, command: str, job_file: Path | None) -> Event:
    fields = {
        "command": command,
        "job": job.name,
        "digest": job.digest,
        "job_file": None if job_file is None else str(job_file.resolve()),
        "name": name,
        "participants": job.party_names,
        "dealers": list(job.dealer_names),
        "pid": os.getpid(),
        "version": __version__,
    }
    return Event("began", f"{command} as {name}, job {job.name}", fields)


class _JournalSubscriber:
    """Writes events to a journal until a write fails."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._missing: Any = None
        self._failed = False

    def __call__(self, event: Event) -> None:
        if self._failed or self._is_repeated(event):
            return
        record = event.to_record()
        record.pop("traceback", None)  # it can contain values of the data, unlike the error text
        try:
            if event.is_transient:
                self._journal.write_progress(record)
            else:
                self._journal.append(record)
        except UnavailableError:
            self._failed = True

    def _is_repeated(self, event: Event) -> bool:
        """Return whether an event repeats the last one: waiting events repeat all the time."""
        missing = event.fields.get("missing") if event.kind == "waiting" else None
        is_repeated = missing is not None and missing == self._missing
        self._missing = missing if event.kind == "waiting" else self._missing
        if event.kind == "connected":
            self._missing = None
        return is_repeated
