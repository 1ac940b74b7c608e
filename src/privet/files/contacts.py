"""Who takes part in a job, where each is reached, and by which certificate it is known."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from privet.config import Config, check_name
from privet.errors import ParameterError
from privet.terms.monotone import Constraints

_FINGERPRINT = r"^[0-9a-f]{64}$"


class Contact(Config):
    """Where somebody is reached, and the certificate that it must prove to have."""

    address: str
    """HOST:PORT."""
    fingerprint: Annotated[str, Field(pattern=_FINGERPRINT)]
    """As `privet keys` printed it."""

    @field_validator("address")
    @classmethod
    def _has_a_port(cls, address: str) -> str:
        return check_address(address)


class Participant(Contact):
    """Somebody who holds columns."""

    name: str
    """As its own party.toml has it."""
    role: Literal["active", "passive"] = "passive"
    """The active one also holds the label."""
    monotone: Constraints = Field(default_factory=dict)
    """Its columns as which grow scores never fall (1) or never rise (-1): { income = 1 }."""

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        check_name(name)
        return name


def check_address(address: str, lowest: int = 1) -> str:
    """Return an address; raise ValueError unless it is HOST:PORT, for whoever names its key."""
    try:
        parse_address(address, lowest)
    except ParameterError as error:
        raise ValueError(str(error).removeprefix("address: ")) from None
    return address


def parse_address(address: str, lowest: int = 1) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; port 0 is any that is free."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        host.encode("idna")
        number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1
    except UnicodeError:
        number = -1
    if not host or not lowest <= number < 1 << 16:
        raise ParameterError(f"address: {address!r} is not HOST:PORT")
    return host, number
