"""Meeting the others of a job, as whoever we have the keys of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from privet.errors import ParameterError, PrivetError
from privet.federation.events import Event, Tell, silent
from privet.files.job import Job, parse_address
from privet.runtime.roles import DEALER
from privet.transport.greeting import SESSION_BYTES
from privet.transport.identity import Identity, load_identity
from privet.transport.mesh import connect, listen
from privet.transport.sockets import SocketChannel

WAIT_SECONDS = 600.0
"""How long to wait for the others to start."""
_AHEAD = b"correlations dealt ahead".ljust(SESSION_BYTES)
"""Keeps those who need the dealer from those who do not, before they wait for it in vain."""


@dataclass(frozen=True)
class Seat:
    """Who we are in a job, and how we are reached."""

    job: Job
    name: str
    identity: Identity
    host: str
    port: int
    wait: float = WAIT_SECONDS
    tell: Tell = silent

    @classmethod
    def take(
        cls,
        job: Job,
        name: str,
        key: str,
        certificate: str,
        listen: str | None = None,
        *,
        wait: float = WAIT_SECONDS,
        tell: Tell = silent,
    ) -> Seat:
        """Check that our keys are the ones that the others expect."""
        agreed = job.contact(name)
        identity = load_identity(key, certificate)
        if identity.fingerprint != agreed.fingerprint:
            raise ParameterError(
                f"{certificate} has the fingerprint {identity.fingerprint}, and the job expects "
                f"{agreed.fingerprint} of {name}: use those keys, or have all change the job"
            )
        host, port = parse_address(listen or agreed.address)
        return cls(job, name, identity, host, port, wait, tell)

    @contextlib.contextmanager
    def meet(self, *, ahead: bool = False) -> Iterator[SocketChannel]:
        """Yield a channel to all others of the job, once they are all there.

        Where correlations were dealt ahead, the dealer is none of them.
        """
        members = [m for m in self.job.members() if not (ahead and m.name == DEALER)]
        with listen(self.host, self.port) as listener:
            self.tell(
                Event(
                    "listening",
                    f"{self.name} listens on {self.host}:{self.port}",
                    {"host": self.host, "port": self.port},
                )
            )
            sockets = connect(
                self.name,
                members,
                listener,
                session=_AHEAD if ahead else bytes(SESSION_BYTES),
                identity=self.identity,
                timeout=self.wait,
                on_wait=lambda text: self.tell(Event("waiting", text)),
            )
        # Others may still be waiting for somebody: they are given up when we would be.
        channel = SocketChannel(self.name, sockets, deadline=self.wait)
        self.tell(
            Event("connected", f"connected to {', '.join(sockets)}", {"peers": list(sockets)})
        )
        try:
            yield channel
        except PrivetError as error:
            error.note_step(channel.where())
            raise
        finally:
            channel.abort()  # does nothing after a goodbye
