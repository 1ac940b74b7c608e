"""Where and how the recipient of predictions is asked: `[endpoint]` in its party.toml.

    [endpoint]
    address = "0.0.0.0:8443"
    token = "shop.token"
    certificate = "scores.shop.example.crt"
    key = "scores.shop.example.key"
    hosts = ["scores.shop.example"]

All of it has defaults, which are for programs on the same machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.config import Config
from privet.errors import ParameterError, UnavailableError
from privet.files.contacts import parse_address
from privet.transport.key_files import host_days_left

LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that no other machine can ask."""
_SHORTEST_TOKEN = 16
Positive = Annotated[int, Field(ge=1)]


class Door(Config):
    """Where something is asked over HTTP, and under which names."""

    address: str = "127.0.0.1:0"
    """HOST:PORT to be asked at; port 0 is any that is free."""
    certificate: str | None = None
    """For TLS: the certificate of the host, with those of its issuers, as PEM."""
    key: str | None = None
    """The private key of that certificate, as PEM."""
    hosts: list[str] = Field(default_factory=list)
    """Names under which the endpoint is asked, beside its address."""
    origins: list[str] = Field(default_factory=list)
    """Pages elsewhere that may ask, as `https://desk.shop.example`; none, by default."""
    most_connections: Positive = 1_000
    """So many clients are connected; whoever has been slow for longest makes room for another."""
    most_per_second: Positive = 5_000
    """So many requests a second are taken from the same address, on average."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        parse_address(self.address, lowest=0)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate, key: TLS takes both, or leave both out")
        return self

    @property
    def host(self) -> str:
        """The host of the address."""
        return parse_address(self.address, lowest=0)[0]

    @property
    def port(self) -> int:
        """The port of the address."""
        return parse_address(self.address, lowest=0)[1]

    def days_left(self) -> int | None:
        """Return for how many days the certificate is valid, if there is one that can be used."""
        if self.certificate is None or self.key is None:
            return None
        try:
            return host_days_left(self.key, self.certificate)
        except UnavailableError as error:
            raise ParameterError(
                f"endpoint.certificate, endpoint.key: cannot be used: {error}"
            ) from None

    @property
    def is_local(self) -> bool:
        """Whether no other machine can ask."""
        return self.host in LOCAL


class Endpoint(Door):
    """How the recipient is asked, by whom, and how much."""

    address: str = "127.0.0.1:8000"
    token: str | None = None
    """A file with the secret that whoever asks must show. Required if other machines can ask."""
    most_bytes: Annotated[int, Field(ge=1, le=1 << 28)] = 1 << 22
    """No request is longer."""
    most_rows: Annotated[int, Field(ge=1, le=5_000_000)] = 100_000
    """No request has more."""
    most_waiting: Positive = 1_000
    """So many requests wait at a time."""
    deadline: Annotated[float, Field(gt=0)] = 30.0
    """Seconds after which a request is given up that was not answered."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.is_local and self.token is None:
            raise ValueError(
                f"token: {self.address} can be asked from other machines: name a file with a "
                "secret that whoever asks must show"
            )
        return self

    def starting_from(self, folder: Path) -> Endpoint:
        """Return the same with paths that start from a folder."""
        paths = {"token": self.token, "certificate": self.certificate, "key": self.key}
        named = {key: str(folder / path) for key, path in paths.items() if path is not None}
        return self.model_copy(update=named)

    def at(self, address: str | None) -> Endpoint:
        """Return the same at another address, if there is one."""
        if address is None:
            return self
        return Endpoint(**{**self.model_dump(), "address": address})

    def read_token(self) -> bytes | None:
        """Return the secret that whoever asks must show, if any."""
        if self.token is None:
            return None
        try:
            token = Path(self.token).read_bytes().strip()
        except OSError as error:
            raise ParameterError(f"endpoint.token: {self.token}: {error.strerror}") from None
        if len(token) < _SHORTEST_TOKEN or not token.isascii() or b" " in token:
            raise ParameterError(
                f"endpoint.token: {self.token}: holds no secret of {_SHORTEST_TOKEN} characters or "
                "more, without spaces: make one, as by `openssl rand -hex 32`"
            )
        return token
