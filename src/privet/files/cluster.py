"""Where the workers of a participant or a dealer are, for jobs that have rows in shards.

    [cluster]
    local = 4                          # processes on this machine

or, on machines that Dask looks after:

    [cluster]
    scheduler = "tls://scheduler.bank.example:8786"
    ca = "ca.pem"
    certificate = "client.pem"
    key = "client.key"

Without this, they are threads of one process. It is nobody else's business. A dealer has a file of
its own for it, which says the same without the line `[cluster]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from privet.config import Config
from privet.files.contacts import check_address

PROOFS = ("ca", "certificate", "key")
"""What is needed to trust a scheduler, and for it to trust us."""


class Cluster(Config):
    """Where workers are, and how they are reached."""

    local: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many processes on this machine they are spread over: at most one a worker."""
    scheduler: str | None = None
    """The address of a Dask scheduler, tls://HOST:PORT, on whose workers they are placed."""
    ca: str | None = None
    """Who has signed the scheduler's certificate: a PEM file."""
    certificate: str | None = None
    """Our certificate, for the scheduler: a PEM file."""
    key: str | None = None
    """Its key."""
    door: str | None = None
    """HOST:PORT where workers reach us; port 0 is any that is free. The address that we listen on,
    and any port, if nothing is said."""
    advertise: str | None = None
    """The host under which the workers of the others reach ours. That of our address in the job, if
    nothing is said, or, with a scheduler, the name of the machine that a worker is on."""
    ports: list[Annotated[int, Field(ge=1, lt=1 << 16)]] | None = None
    """The first and the last port that workers may listen on; any, if nothing is said."""

    @field_validator("door")
    @classmethod
    def _is_an_address(cls, door: str | None) -> str | None:
        return None if door is None else check_address(door, lowest=0)

    @field_validator("ports")
    @classmethod
    def _is_a_range(cls, ports: list[int] | None) -> list[int] | None:
        if ports is not None and (len(ports) != 2 or ports[0] > ports[1]):
            raise ValueError("give the first and the last port, such as [7500, 7531]")
        return ports

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.scheduler is None:
            given = [key for key in PROOFS if getattr(self, key) is not None]
            if given:
                raise ValueError(f"{given[0]}: is for a scheduler, and none is named")
            return self
        if self.local is not None:
            raise ValueError(
                "local: workers are on this machine, or a scheduler places them: remove one of both"
            )
        if not self.scheduler.startswith(("tls://", "inproc://")):
            raise ValueError(
                f"scheduler: {self.scheduler!r} is no tls:// address: keys of workers travel to "
                "it, so it must be reached over TLS"
            )
        missing = [key for key in PROOFS if getattr(self, key) is None]
        if missing and self.scheduler.startswith("tls://"):
            raise ValueError(
                f"{missing[0]}: is required with a scheduler: its operators gave you a PEM file"
            )
        return self

    @classmethod
    def load(cls, path: str | Path) -> Cluster:
        """Read a file of its own, which a dealer may have; paths start from where it is."""
        return cls.read(path).starting_from(Path(path).resolve().parent)

    def starting_from(self, home: Path) -> Cluster:
        """Return the same with paths that start from a folder."""
        paths = {
            key: str(home / value) for key in PROOFS if (value := getattr(self, key)) is not None
        }
        return self.model_copy(update=paths)
