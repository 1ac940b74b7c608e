"""Sessions as the audit log has them: who began what with whom, how it ended, what was revealed.

A record when a session begins, one when all have met, with the certificate that each has proven to
have, and one when it has ended. Records of a session have its name in common. What a session that
failed had revealed by then a service tells; of others it is not known here, and the record says so:
at most what the job reveals.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

from privet.errors import INTERRUPTED, PrivetError
from privet.federation.events import Event, Teller
from privet.files.audit import AuditLog
from privet.files.job import Job
from privet.version import __version__


@contextlib.contextmanager
def audited(path: str | None, job: Job, name: str, command: str, tell: Teller) -> Iterator[None]:
    """Record a session in an audit log, if there is one, by what is told of it.

    It is written before anything else happens: without a log that can be written, nothing does.
    """
    if path is None:
        yield
        return
    log, session = AuditLog(path), secrets.token_hex(8)
    ledger: list[dict[str, Any]] = []

    def note(event: Event) -> None:
        if event.kind == "connected":
            peers = {peer: job.contact(peer).fingerprint for peer in event.fields["peers"]}
            log.add("met", session=session, peers=peers)
        elif event.kind == "revealed":
            ledger.append(event.fields)

    log.add(
        "began",
        session=session,
        name=name,
        command=command,
        job=job.name,
        digest=job.digest,
        version=__version__,
    )
    try:
        with tell.overheard(note):
            yield
    except BaseException as error:
        log.add("ended", session=session, outcome=_outcome(error), ledger=ledger or None)
        raise
    log.add("ended", session=session, outcome={"code": 0}, ledger=ledger)


def _outcome(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PrivetError):
        told = {"error": error.kind, "peer": error.peer, "step": error.step}
        return {"code": error.exit_code, **told, "text": str(error)}
    interrupted = isinstance(error, KeyboardInterrupt)
    code = INTERRUPTED if interrupted else PrivetError.exit_code
    return {"code": code, "error": type(error).__name__}
