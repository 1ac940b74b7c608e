"""A session of a job: connecting to its members, and comparing what must be equal."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from privet.config.job import Job
from privet.config.members import parse_address
from privet.errors import (
    BusyError,
    DisagreementError,
    ParameterError,
    PeerError,
    PeerFailedError,
    PeerMisbehavedError,
    PrivetError,
    UnavailableError,
)
from privet.federation.monitoring.events import Event, EventHandler, WaitReporter, discard_event
from privet.runtime.run import make_worker_names
from privet.schema import StrictSchema, format_validation_error, quote_untrusted
from privet.transport.channel import Channel
from privet.transport.connection import CauseRank, map_relatives
from privet.transport.handshake import SESSION_ID_BYTES, FailureNotice
from privet.transport.rendezvous import (
    connect_members,
    is_member_running_at,
    listen,
    notify_failure,
)
from privet.transport.sockets import SocketChannel
from privet.transport.tls import Identity, load_identity

WAIT_SECONDS = 600.0
"""Seconds to wait for the other members to start."""
_CLOSE_TIMEOUT_SECONDS = 60.0
"""Seconds that another participant can need to finish after this one: both are in step."""
_NO_DEALER_SESSION_ID = b"correlations dealt ahead".ljust(SESSION_ID_BYTES)
"""Separates members that need the dealer from members that do not, before they wait for it."""


@dataclass
class LocalMember:
    """A member of a job in its own process: its identity and its listen address."""

    job: Job
    name: str
    identity: Identity
    host: str
    port: int
    timeout: float = WAIT_SECONDS
    emit: EventHandler = discard_event
    is_connected: bool = False
    """Whether this member has connected to all others, which then detect its failure themselves."""
    was_serving: bool = False
    """Whether the session was one of a running service, which spans several sessions."""

    @classmethod
    def from_keys(
        cls,
        job: Job,
        name: str,
        key: str,
        certificate: str,
        listen: str | None = None,
        *,
        timeout: float = WAIT_SECONDS,
        emit: EventHandler = discard_event,
    ) -> LocalMember:
        """Load the member's keys, and check that they are the ones that the job names."""
        entry = job.get_entry(name)
        identity = load_identity(key, certificate)
        if identity.fingerprint != entry.fingerprint:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{entry.fingerprint} of {name}: use those keys, or have all change the job"
            )
        host, port = parse_address(listen or entry.address)
        return cls(job, name, identity, host, port, timeout, emit)

    @contextlib.contextmanager
    def connect(self, *, same_role_only: bool = False) -> Iterator[SocketChannel]:
        """Yield a channel to all other members of the job, once all are connected.

        With `same_role_only`, participants connect only to participants, and dealers to dealers:
        for runs with preprocessing files, runs that need no correlated randomness, and
        preprocessing runs.
        """
        dealers = self.job.dealer_names
        members = [
            member
            for member in self.job.make_members()
            if not same_role_only or (member.name in dealers) == (self.name in dealers)
        ]
        with open_listener(self.host, self.port) as listener:
            self.emit(
                Event(
                    "listening",
                    f"{self.name} listens on {self.host}:{self.port}",
                    {"host": self.host, "port": self.port},
                )
            )
            links = connect_members(
                self.name,
                members,
                listener,
                session_id=_NO_DEALER_SESSION_ID if same_role_only else bytes(SESSION_ID_BYTES),
                identity=self.identity,
                timeout=self.timeout,
                on_wait=WaitReporter(self.emit),
                relatives=map_relatives(
                    make_worker_names(self.job.shards), CauseRank.SELF_REPORTED
                ),
            )
        self.is_connected = True
        # There is no timeout for a peer's message: heartbeats show that the peer is running.
        channel = SocketChannel(self.name, links)
        if self.name not in dealers:  # dealers finish long before the participants
            channel.goodbye_timeout = _CLOSE_TIMEOUT_SECONDS
        self.emit(Event("connected", f"connected to {', '.join(links)}", {"peers": list(links)}))
        try:
            yield channel
        except PrivetError as error:
            error.set_step_if_unknown(channel.current_step())
            raise
        finally:
            channel.abort()  # does nothing after a goodbye


def open_listener(host: str, port: int) -> socket.socket:
    """Listen on the local listen address; raise UnavailableError with advice if that fails."""
    try:
        return listen(host, port)
    except UnavailableError as error:
        advice = {
            errno.EADDRINUSE: "stop what listens there, or have all change the port in the job",
            errno.EADDRNOTAVAIL: "this machine has no such address: say at which one we listen "
            "(`listen` in party.toml, --listen of a dealer), or have all correct the job",
        }.get(getattr(error.__cause__, "errno", 0))
        raise UnavailableError(str(error) if advice is None else f"{error}: {advice}") from None


@contextlib.contextmanager
def open_session(
    job: Job,
    name: str,
    key: str,
    certificate: str,
    listen: str | None = None,
    *,
    timeout: float = WAIT_SECONDS,
    emit: EventHandler = discard_event,
) -> Iterator[LocalMember]:
    """Yield the local member of a job; a failure before all are connected ends the peers' wait too.

    The peers are sent a failure notice: the kind of the failure, and no more. A failure notice
    about another member is passed on to the peers that may not have received it. Any other peer
    error is not sent: it is a timeout, for instance, and each member sets its own. A BusyError is
    not sent either: the local process that holds the lock takes part in the job.
    """
    entry = job.get_entry(name)
    member: LocalMember | None = None
    try:
        member = LocalMember.from_keys(
            job, name, key, certificate, listen, timeout=timeout, emit=emit
        )
        yield member
    except (Exception, KeyboardInterrupt) as error:
        is_peer_error = isinstance(error, PeerError) and not isinstance(error, PeerFailedError)
        is_silent = is_peer_error or isinstance(error, BusyError)
        if (member is None or not member.is_connected) and not is_silent:
            # A user who interrupts this, too, still sees the first error.
            with contextlib.suppress(KeyboardInterrupt):
                notice, address = FailureNotice.from_error(error, name), listen or entry.address
                notified, refused = _notify_others(notice, job, name, key, certificate, address)
                if notified:
                    subject = "we" if notice.member == name else notice.member
                    text = f"told {', '.join(notified)} that {subject} cannot take part"
                    emit(Event("told", text, {"told": notified, "who": notice.member}))
                if refused:
                    text = f"could not prove to {', '.join(refused)} who we are"
                    emit(Event("refused", text, {"by": refused}))
        raise


def _notify_others(
    failure: FailureNotice, job: Job, name: str, key: str, certificate: str, address: str
) -> tuple[list[str], list[str]]:
    """Send a failure notice to the peers; return the notified peers, and those that refused it."""
    identity, listener = None, None
    with contextlib.suppress(PrivetError):
        identity = load_identity(key, certificate)
    with contextlib.ExitStack() as stack:
        try:
            host, port = parse_address(address)
            listener = stack.enter_context(listen(host, port))
        except ParameterError:
            pass
        except UnavailableError:
            if identity is not None and is_member_running_at(name, (host, port), identity):
                return [], []  # started twice: the other process takes part
        return notify_failure(failure, name, job.make_members(), listener, identity)


_Message = TypeVar("_Message", bound=StrictSchema)


def parse_message(message_type: type[_Message], peer: str, content: bytes) -> _Message:
    """Parse a peer's message; raise PeerMisbehavedError if it is not valid."""
    try:
        return message_type.model_validate_json(content)
    except ValidationError as error:
        raise PeerMisbehavedError(
            peer, f"stated nonsense: {quote_untrusted(format_validation_error(error), 300)}"
        ) from None


def require_equal(
    channel: Channel,
    values_by_key: Mapping[str, Mapping[str, Any]],
    advice: str = "use the same job file everywhere",
) -> None:
    """Raise DisagreementError unless each key has the same value at all members that state it.

    The error names a peer if exactly one peer differs from this member.
    """
    differences = []
    differing: set[str] = set()
    for key, values in values_by_key.items():
        if all(value == next(iter(values.values())) for value in values.values()):
            continue
        holders: dict[str, list[str]] = {}
        for name in sorted(values, key=lambda name: name != channel.name):
            holder = "here" if name == channel.name else f"at {name}"
            holders.setdefault(quote_untrusted(values[name]), []).append(holder)
        stated = ", ".join(f"{value} {' and '.join(names)}" for value, names in holders.items())
        differences.append(f"{quote_untrusted(key)}: {stated}")
        local_value = values.get(channel.name)
        differing.update(
            name for name in values if values[name] != local_value and name != channel.name
        )
        advice = _ADVICE.get(key, advice)
    if differences:
        # All members find the difference now, so each closes with a goodbye.
        channel.close_best_effort()
        peer = next(iter(differing)) if len(differing) == 1 else None
        raise DisagreementError(f"{'; '.join(differences)}: {advice}", peer)


_ADVICE = {
    "version": "install the same version everywhere",
    "command": "start the same command everywhere",
    "samples": "all need the rows of the same samples",
    "model": "all need their parts of one training; run it again where one is missing",
    "numbers of cuts": "somebody has told one of us other numbers than the others; train again, "
    "and if it does it again, without it",
    "tables done": "put the missing checkpoints or parts back, or start again with --restart",
}
