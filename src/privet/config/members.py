"""The members of a job: participants and dealers, their addresses and fingerprints.

    [dealer]                                  [[dealers]]
    address = "dealer.example:7400"           address = "notary.example:7400"
    fingerprint = "5f0c..."                   fingerprint = "5f0c..."
                                              (and two more)

Three participants can each run one of the three dealers, with a separate key and address: `by`
names the participant that runs a dealer. People compare a digest of the settings to check that all
participants have the same entries and the same job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from privet.boosting.training import PROTOCOL_TYPES
from privet.errors import ParameterError
from privet.runtime.run import make_dealer_names
from privet.schema import Config, check_name
from privet.spec.plan import NamedConstraints
from privet.transport.rendezvous import Member

_FINGERPRINT = r"^[0-9a-f]{64}$"


class MemberEntry(Config):
    """Where somebody is reached, and the certificate that it must prove to have."""

    address: str
    """HOST:PORT."""
    fingerprint: Annotated[str, Field(pattern=_FINGERPRINT)]
    """As `privet keys` printed it."""

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str) -> str:
        return validate_address(address)


class PartyEntry(MemberEntry):
    """Somebody who holds columns."""

    name: str
    """As its own party.toml has it."""
    role: Literal["active", "passive"] = "passive"
    """The active one also holds the label."""
    monotone: NamedConstraints = Field(default_factory=dict)
    """Its columns as which grow scores never fall (1) or never rise (-1): { income = 1 }."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        check_name(name)
        return name


def validate_address(address: str, lowest: int = 1) -> str:
    """Return an address; raise ValueError, without the key, unless it is HOST:PORT."""
    try:
        parse_address(address, lowest)
    except ParameterError as error:
        raise ValueError(str(error).removeprefix("address: ")) from None
    return address


def parse_address(address: str, lowest: int = 1) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; port 0 means any free port."""
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


class DealerEntry(MemberEntry):
    """One of the dealers."""

    name: str = ""
    """dealer, or of three dealer1, dealer2 and dealer3, if it is not said."""
    by: str = ""
    """The participant that plays this dealer, if one does."""


class DealerSettings(Config):
    """The dealers of a job."""

    dealer: MemberEntry | None = None
    """The only one."""
    dealers: list[DealerEntry] = Field(default_factory=list)
    """One or three; of three, any one may be corrupt."""

    def get_dealer_entries(self) -> dict[str, MemberEntry]:
        """Return the entries of the dealers by name, in the order of their roles."""
        if self.dealer is not None:
            return {make_dealer_names(1)[0]: self.dealer}
        default_names = make_dealer_names(len(self.dealers))
        return {d.name or name: d for d, name in zip(self.dealers, default_names, strict=True)}

    @property
    def dealer_names(self) -> tuple[str, ...]:
        """The names of the dealers, in the order of their roles."""
        return tuple(self.get_dealer_entries())

    @property
    def aligning_dealer(self) -> str:
        """The dealer that helps to align rows."""
        return self.dealer_names[0]

    @property
    def dealer_operators(self) -> dict[str, str]:
        """The participant that runs each dealer, for dealers that participants run."""
        named_entries = zip(self.dealer_names, self.dealers, strict=False)
        return {name: dealer.by for name, dealer in named_entries if dealer.by}

    def check_dealer_settings(
        self, party_names: Sequence[str], protocol: str, *, align: bool
    ) -> None:
        """Raise ValueError unless there are one or three dealers that can serve the job.

        `align` states whether the job aligns rows.
        """
        if (self.dealer is None) == (not self.dealers):
            raise ValueError(
                "dealers: there is one [dealer], or one or three [[dealers]], not both and not none"
            )
        if self.dealer is None and len(self.dealers) not in (1, 3):
            raise ValueError(f"dealers: there are one or three, and here are {len(self.dealers)}")
        default_names = make_dealer_names(len(self.dealers) or 1)
        names = [d.name or name for d, name in zip(self.dealers, default_names, strict=False)] or [
            *default_names
        ]
        for name in names:
            check_name(name)
            if name in party_names or names.count(name) > 1:
                raise ValueError(f"dealers: {name!r} is the name of somebody else, too")
        operators = list(self.dealer_operators.values())
        if len(names) == 1:
            if operators:
                raise ValueError(
                    f"dealers.by: {operators[0]} would be the only dealer, and know all masks: "
                    "three participants play dealers, or none does"
                )
            return
        if not PROTOCOL_TYPES[protocol].supports_replicated_dealers:
            raise ValueError(f"dealers: the protocol {protocol} takes one; use masked")
        unknown = [name for name in operators if name not in party_names]
        if unknown:
            raise ValueError(f"dealers.by: {unknown[0]!r} is none of {', '.join(party_names)}")
        if operators and len(set(operators)) < len(names):
            raise ValueError(
                "dealers.by: three participants play the three dealers, each of them one"
            )
        if operators and align:
            raise ValueError(
                "align: the dealer that aligns must collude with nobody, and here it is a "
                "participant's: have dealers from outside, or align the tables another way"
            )


_ENTRY_KEYS = ("address", "fingerprint")


def collect_entries(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all entries by name from unvalidated values; skip what is not an entry."""
    participants, dealer, dealers = (
        values.get(key) for key in ("participants", "dealer", "dealers")
    )
    party_entries = [each for each in _list(participants) if isinstance(each.get("name"), str)]
    entries = {str(each["name"]): each for each in party_entries}
    if isinstance(dealer, dict):
        entries[make_dealer_names(1)[0]] = dealer
    dealer_entries = _list(dealers)
    default_names = make_dealer_names(3 if len(dealer_entries) > 1 else 1)
    for number, each in enumerate(dealer_entries[: len(default_names)]):
        entries[str(each.get("name") or default_names[number])] = each
    return entries


def is_open_entry(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry is not filled in."""
    return not any(entry.get(key) for key in _ENTRY_KEYS)


def check_no_open_entries(values: Any) -> None:
    """Raise ValueError if a job has open entries."""
    if not isinstance(values, dict):
        return
    open_names = [name for name, entry in collect_entries(values).items() if is_open_entry(entry)]
    if open_names:
        is_plural = len(open_names) > 1
        raise ValueError(
            f"the seat{'s' * is_plural} of {join_names(open_names)} {'are' if is_plural else 'is'} "
            "not filled in yet: they run `privet join` with this file and send it back, and you "
            "run it with what they send"
        )


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence: bank, telecom and dealer."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def format_settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of a job's settings, for people to read to each other.

    An attacker who forwards the job could insert keys into both copies, but would have to find two
    copies with the same digest: with 128 bits, this takes 2^64 attempts.
    """
    digits = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _list(values: object) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


class Roster(DealerSettings):
    """The participants and dealers of a job."""

    name: str
    """Of the job, and of the files of its model."""
    participants: Annotated[list[PartyEntry], Field(min_length=2)]
    """Who takes part, in the order in which all count them: two or more."""

    @property
    def party_names(self) -> list[str]:
        """The names of the participants, in the order of their indices."""
        return [participant.name for participant in self.participants]

    @property
    def label_holder_index(self) -> int:
        """The index of the label holder."""
        return [participant.role for participant in self.participants].index("active")

    def get_entries(self) -> dict[str, MemberEntry]:
        """Return the entries of all participants and dealers, by name."""
        participants: dict[str, MemberEntry] = {
            participant.name: participant for participant in self.participants
        }
        return {**participants, **self.get_dealer_entries()}

    def get_role(self, name: str) -> str:
        """Return the role of a participant: "active" or "passive"."""
        if name not in self.party_names:
            raise ParameterError(
                f"{name!r} is no participant of the job {self.name!r}; there are "
                f"{', '.join(self.party_names)}"
            )
        return self.participants[self.party_names.index(name)].role

    def get_entry(self, name: str) -> MemberEntry:
        """Return the entry of a participant or dealer; raise ParameterError if there is none."""
        try:
            return self.get_entries()[name]
        except KeyError:
            raise ParameterError(
                f"{name!r} takes no part in the job {self.name!r}; there are "
                f"{', '.join(self.get_entries())}"
            ) from None

    def make_members(self) -> list[Member]:
        """Return all participants and dealers, for connecting."""
        return [
            Member(name, *parse_address(entry.address), entry.fingerprint)
            for name, entry in self.get_entries().items()
        ]

    def list_connection_settings(self) -> dict[str, str]:
        """Return the addresses and fingerprints of all participants and dealers."""
        return {
            f"{name}'s {key}": value
            for name, entry in self.get_entries().items()
            for key, value in entry.model_dump(include={"address", "fingerprint"}).items()
        }
