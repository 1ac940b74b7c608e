"""Events of a running member, and their subscribers: the audit log and the run's journal.

A record when a session begins, one when all have met, with the certificate that each has proven to
have, and one when it has ended. Records of a session have its name in common. What a session that
failed had revealed by then a service tells; of others it is not known here, and the record says so:
at most what the job reveals.

It is for people who look at a page, not for auditors: a run whose record cannot be written goes on.
"""

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
"""Seconds after which a log is told that we still wait: the first time, and from then on."""
_MAX_WAIT_REASONS = 100
"""A peer has a say in why we wait, and shall not fill our log."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: str
    """waiting, connected, started, resumed, table, done, ..."""
    text: str
    """The same in words."""
    fields: dict[str, Any] = field(default_factory=dict)
    is_transient: bool = False
    """Whether it is soon said anew: of use to who watches, and no line of a log."""

    def to_record(self) -> dict[str, Any]:
        """Return it as a log for machines has it."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        return {"time": now, "event": self.kind, "text": self.text, **self.fields}


EventHandler = Callable[[Event], None]


class EventBus:
    """Where events go: to somebody who shows them, and to whoever else listens for a while."""

    def __init__(self, display: EventHandler) -> None:
        self._show = display
        self._listeners: list[EventHandler] = []

    def __call__(self, event: Event) -> None:
        """Tell everybody, and show it last: what was shown has been heard."""
        for listen in self._listeners:
            listen(event)
        self._show(event)

    @contextlib.contextmanager
    def subscribe(self, handler: EventHandler) -> Iterator[None]:
        """Let somebody listen."""
        self._listeners.append(handler)
        try:
            yield
        finally:
            self._listeners.remove(handler)


class WaitReporter:
    """Tells of waiting, which goes on for days: at once for whom and why, and then seldom.

    It is called every second. What is known already is passing.
    """

    def __init__(self, emit: EventHandler) -> None:
        self._emit = emit
        self._reasons: set[tuple[str, ...]] = set()
        self._due = 0.0

    def __call__(self, text: str, missing: Sequence[str]) -> None:
        """Tell of those who are missing; the text ends with for how long."""
        reason, now = (*missing, text.rpartition(" (")[0]), time.monotonic()
        is_new = reason not in self._reasons and len(self._reasons) < _MAX_WAIT_REASONS
        passing = not is_new and now < self._due
        if not passing:
            self._reasons.add(reason)
            self._due = now + (_FIRST_WAIT_SECONDS if is_new else _LATER_WAIT_SECONDS)
        self._emit(Event("waiting", text, {"missing": list(missing)}, passing))


def make_failure_event(error: BaseException) -> Event:
    """Return how something ended that did not end well."""
    if isinstance(error, KeyboardInterrupt):
        return Event("interrupted", "interrupted", {"code": EXIT_CODE_INTERRUPTED})
    if not isinstance(error, PrivetError):
        found = "".join(traceback.format_exception(error))
        text = f"a bug of ours, please report it: {error!r}"
        fields = {"code": PrivetError.exit_code, "error": type(error).__name__, "traceback": found}
        return Event("error", text, fields)
    fields = {
        "code": error.exit_code,
        "error": error.kind,
        "peer": error.peer,
        "step": error.step,
    }
    return Event("error", str(error), fields)


def discard_event(event: Event) -> None:
    """Tell nobody."""


@contextlib.contextmanager
def audit_session(
    path: str | None, job: Job, name: str, command: str, event_bus: EventBus
) -> Iterator[None]:
    """Record a session in an audit log, if there is one, by what is told of it.

    It is written before anything else happens: without a log that can be written, nothing does.
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
        told = {"error": error.kind, "peer": error.peer, "step": error.step}
        return {"code": error.exit_code, **told, "text": str(error)}
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
    """Record the events of a run in a participant's folder; `job_file` is the path of the job."""
    with contextlib.ExitStack() as stack:
        try:
            record = JournalWriter(folder, command)
            stack.callback(record.close)
            record.append(_make_start_event(job, name, command, job_file).to_record())
        except UnavailableError as error:
            event_bus(Event("warning", f"warning: no record is kept of this run: {error}"))
            yield
            return
        note = _JournalSubscriber(record)
        try:
            with event_bus.subscribe(note):
                yield
        except BaseException as error:
            note(make_failure_event(error))
            raise


def _make_start_event(job: Job, name: str, command: str, job_file: Path | None) -> Event:
    about = {
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
    return Event("began", f"{command} as {name}, job {job.name}", about)


class _JournalSubscriber:
    """Writes events down, as far as the disk lets it."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._missing: Any = None
        self._failed = False

    def __call__(self, event: Event) -> None:
        if self._failed or self._is_repeated(event):
            return
        line = event.to_record()
        line.pop("traceback", None)  # it shows values that errors need not
        try:
            if event.is_transient:
                self._journal.write_progress(line)
            else:
                self._journal.append(line)
        except UnavailableError:
            self._failed = True

    def _is_repeated(self, event: Event) -> bool:
        """Tell whether it was said before: waiting is told of again and again."""
        missing = event.fields.get("missing") if event.kind == "waiting" else None
        known = missing is not None and missing == self._missing
        self._missing = missing if event.kind == "waiting" else self._missing
        if event.kind == "connected":
            self._missing = None
        return known
