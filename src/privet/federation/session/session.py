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
"""How long to wait for the others to start."""
_CLOSE_TIMEOUT_SECONDS = 60.0
"""How long after us another participant, which is in step with us, may take to its end."""
_WITHOUT_DEALER = b"correlations dealt ahead".ljust(SESSION_ID_BYTES)
"""Keeps those who need the dealer from those who do not, before they wait for it in vain."""


@dataclass
class LocalMember:
    """Who we are in a job, and how we are reached."""

    job: Job
    name: str
    identity: Identity
    host: str
    port: int
    timeout: float = WAIT_SECONDS
    emit: EventHandler = discard_event
    is_connected: bool = False
    """Whether we have met all others: from then on they find out by themselves how we end."""
    was_serving: bool = False
    """Whether it was for a service, which was up: it is more than one session."""

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
        """Check that our keys are the ones that the others expect."""
        agreed = job.get_entry(name)
        identity = load_identity(key, certificate)
        if identity.fingerprint != agreed.fingerprint:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{agreed.fingerprint} of {name}: use those keys, or have all change the job"
            )
        host, port = parse_address(listen or agreed.address)
        return cls(job, name, identity, host, port, timeout, emit)

    @contextlib.contextmanager
    def connect(self, *, same_role_only: bool = False) -> Iterator[SocketChannel]:
        """Yield a channel to all others of the job, once they are all there.

        Where correlations were dealt ahead, or none are needed, no dealer is among them; dealers
        that deal ahead are among themselves.
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
                session_id=_WITHOUT_DEALER if same_role_only else bytes(SESSION_ID_BYTES),
                identity=self.identity,
                timeout=self.timeout,
                on_wait=WaitReporter(self.emit),
                relatives=map_relatives(
                    make_worker_names(self.job.shards), CauseRank.SELF_REPORTED
                ),
            )
        self.is_connected = True
        # Others may wait for somebody for as long as they like, but they show that they live.
        channel = SocketChannel(self.name, links)
        if self.name not in dealers:  # who have long dealt everything when participants are done
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
    """Listen where the others call us, or say what can be done about it."""
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
    """Yield our seat in a job. What fails before we have met all others ends their waiting, too.

    They are told in which kind of way it failed, and no more. If we are told that of another one,
    we pass it on to those who may not have heard. Only patience is everybody's own: who has waited
    long enough does not end the waiting of others. Nor does one that is refused since another
    process of ours is at it: that one takes part.
    """
    agreed = job.get_entry(name)
    seat: LocalMember | None = None
    try:
        seat = LocalMember.from_keys(
            job, name, key, certificate, listen, timeout=timeout, emit=emit
        )
        yield seat
    except (Exception, KeyboardInterrupt) as error:
        out_of_patience = isinstance(error, PeerError) and not isinstance(error, PeerFailedError)
        quiet = out_of_patience or isinstance(error, BusyError)
        if (seat is None or not seat.is_connected) and not quiet:
            # Whoever does not want to wait for that either is shown what went wrong first.
            with contextlib.suppress(KeyboardInterrupt):
                failure, address = FailureNotice.from_error(error, name), listen or agreed.address
                told, refused = _notify_others(failure, job, name, key, certificate, address)
                if told:
                    whose = "we" if failure.member == name else failure.member
                    text = f"told {', '.join(told)} that {whose} cannot take part"
                    emit(Event("told", text, {"told": told, "who": failure.member}))
                if refused:
                    text = f"could not prove to {', '.join(refused)} who we are"
                    emit(Event("refused", text, {"by": refused}))
        raise


def _notify_others(
    failure: FailureNotice, job: Job, name: str, key: str, certificate: str, address: str
) -> tuple[list[str], list[str]]:
    """Tell those who are there of a failure; return who knows, and who did not believe us."""
    identity, door = None, None
    with contextlib.suppress(PrivetError):
        identity = load_identity(key, certificate)
    with contextlib.ExitStack() as stack:
        try:
            host, port = parse_address(address)
            door = stack.enter_context(listen(host, port))
        except ParameterError:
            pass
        except UnavailableError:
            if identity is not None and is_member_running_at(name, (host, port), identity):
                return [], []  # we were started twice, and the other one takes part
        return notify_failure(failure, name, job.make_members(), door, identity)


_Stated = TypeVar("_Stated", bound=StrictSchema)


def parse_message(message_type: type[_Stated], peer: str, content: bytes) -> _Stated:
    """Return what a peer stated; raise PeerMisbehavedError if it is nothing of that kind."""
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
    """Raise DisagreementError unless everything is the same at everybody who states it.

    It blames the one who differs from us, if that is one.
    """
    complaints = []
    unlike: set[str] = set()
    for key, values in values_by_key.items():
        if all(value == next(iter(values.values())) for value in values.values()):
            continue
        places: dict[str, list[str]] = {}
        for name in sorted(values, key=lambda name: name != channel.name):
            place = "here" if name == channel.name else f"at {name}"
            places.setdefault(quote_untrusted(values[name]), []).append(place)
        told = ", ".join(f"{value} {' and '.join(names)}" for value, names in places.items())
        complaints.append(f"{quote_untrusted(key)}: {told}")
        ours = values.get(channel.name)
        unlike.update(name for name in values if values[name] != ours and name != channel.name)
        advice = _ADVICE.get(key, advice)
    if complaints:
        # Everybody finds a difference now, and says goodbye: nobody just hangs up.
        channel.close_best_effort()
        peer = next(iter(unlike)) if len(unlike) == 1 else None
        raise DisagreementError(f"{'; '.join(complaints)}: {advice}", peer)


_ADVICE = {
    "version": "install the same version everywhere",
    "command": "start the same command everywhere",
    "samples": "all need the rows of the same samples",
    "model": "all need their parts of one training; run it again where one is missing",
    "numbers of cuts": "somebody has told one of us other numbers than the others; train again, "
    "and if it does it again, without it",
    "tables done": "put the missing checkpoints or parts back, or start again with --restart",
}
