"""The members of a job: participants and dealers, their addresses and fingerprints.

    [dealer]                                  [[dealers]]
    address = "dealer.example:7400"           address = "notary.example:7400"
    fingerprint = "5f0c..."                   fingerprint = "5f0c..."
                                              (and two more)

Three of the participants may play the three: each says which one is its own, with a key of its own
and at an address of its own.

And how people see that all of them have the same seats, and the same job.
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


class DealerEntry(MemberEntry):
    """One of the dealers."""

    name: str = ""
    """dealer, or of three dealer1, dealer2 and dealer3, if it is not said."""
    by: str = ""
    """The participant that plays this dealer, if one does."""


class DealerSettings(Config):
    """The terms of a job that say who deals."""

    dealer: MemberEntry | None = None
    """The only one."""
    dealers: list[DealerEntry] = Field(default_factory=list)
    """One or three; of three, any one may be corrupt."""

    def get_dealer_entries(self) -> dict[str, MemberEntry]:
        """Return how each dealer is reached, by name, in the order of their roles."""
        if self.dealer is not None:
            return {make_dealer_names(1)[0]: self.dealer}
        usual = make_dealer_names(len(self.dealers))
        return {d.name or name: d for d, name in zip(self.dealers, usual, strict=True)}

    @property
    def dealer_names(self) -> tuple[str, ...]:
        """The dealers, in the order of their roles."""
        return tuple(self.get_dealer_entries())

    @property
    def aligning_dealer(self) -> str:
        """Which dealer helps to align rows."""
        return self.dealer_names[0]

    @property
    def dealer_operators(self) -> dict[str, str]:
        """Which participant plays each dealer, of those that participants play."""
        contacts = zip(self.dealer_names, self.dealers, strict=False)
        return {name: dealer.by for name, dealer in contacts if dealer.by}

    def check_dealer_settings(
        self, party_names: Sequence[str], protocol: str, *, align: bool
    ) -> None:
        """Raise ValueError unless there are one or three, and what the job asks for can be dealt.

        `align` tells whether rows are aligned.
        """
        if (self.dealer is None) == (not self.dealers):
            raise ValueError(
                "dealers: there is one [dealer], or one or three [[dealers]], not both and not none"
            )
        if self.dealer is None and len(self.dealers) not in (1, 3):
            raise ValueError(f"dealers: there are one or three, and here are {len(self.dealers)}")
        usual = make_dealer_names(len(self.dealers) or 1)
        names = [d.name or name for d, name in zip(self.dealers, usual, strict=False)] or [*usual]
        for name in names:
            check_name(name)
            if name in party_names or names.count(name) > 1:
                raise ValueError(f"dealers: {name!r} is the name of somebody else, too")
        players = list(self.dealer_operators.values())
        if len(names) == 1:
            if players:
                raise ValueError(
                    f"dealers.by: {players[0]} would be the only dealer, and know all masks: three "
                    "participants play dealers, or none does"
                )
            return
        if not PROTOCOL_TYPES[protocol].supports_replicated_dealers:
            raise ValueError(f"dealers: the protocol {protocol} takes one; use masked")
        strangers = [name for name in players if name not in party_names]
        if strangers:
            raise ValueError(f"dealers.by: {strangers[0]!r} is none of {', '.join(party_names)}")
        if players and len(set(players)) < len(names):
            raise ValueError(
                "dealers.by: three participants play the three dealers, each of them one"
            )
        if players and align:
            raise ValueError(
                "align: the dealer that aligns must collude with nobody, and here it is a "
                "participant's: have dealers from outside, or align the tables another way"
            )


_ENTRY_KEYS = ("address", "fingerprint")


def collect_entries(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return everybody's seat by name, as far as values that nobody has checked have any."""
    participants, dealer, dealers = (
        values.get(key) for key in ("participants", "dealer", "dealers")
    )
    listed = [each for each in _list(participants) if isinstance(each.get("name"), str)]
    found = {str(each["name"]): each for each in listed}
    if isinstance(dealer, dict):
        found[make_dealer_names(1)[0]] = dealer
    dealing = _list(dealers)
    usual = make_dealer_names(3 if len(dealing) > 1 else 1)
    for number, each in enumerate(dealing[: len(usual)]):
        found[str(each.get("name") or usual[number])] = each
    return found


def is_open_entry(entry: Mapping[str, Any]) -> bool:
    """Tell whether nobody has filled a seat in."""
    return not any(entry.get(key) for key in _ENTRY_KEYS)


def check_no_open_entries(values: Any) -> None:
    """Raise ValueError if a job has seats that nobody has filled in yet."""
    if not isinstance(values, dict):
        return
    waited_for = [name for name, seat in collect_entries(values).items() if is_open_entry(seat)]
    if waited_for:
        several = len(waited_for) > 1
        raise ValueError(
            f"the seat{'s' * several} of {join_names(waited_for)} {'are' if several else 'is'} "
            "not filled in yet: they run `privet join` with this file and send it back, and you "
            "run it with what they send"
        )


def join_names(names: Sequence[str]) -> str:
    """Return names as a sentence has them: bank, telecom and dealer."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def format_settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of a job's terms, for people to read out to each other.

    Whoever carries a job from one to another, and could put keys of its own into both copies, has
    to find two with the same digest: 128 bits make that 2^64 attempts.
    """
    digits = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _list(values: object) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


class Roster(DealerSettings):
    """The terms of a job that say who takes part."""

    name: str
    """Of the job, and of the files of its model."""
    participants: Annotated[list[PartyEntry], Field(min_length=2)]
    """Who takes part, in the order in which all count them: two or more."""

    @property
    def party_names(self) -> list[str]:
        """The participants, in the order in which all count them."""
        return [participant.name for participant in self.participants]

    @property
    def label_holder_index(self) -> int:
        """Which participant holds the label."""
        return [participant.role for participant in self.participants].index("active")

    def get_entries(self) -> dict[str, MemberEntry]:
        """Return how everybody is reached, by name."""
        participants: dict[str, MemberEntry] = {
            participant.name: participant for participant in self.participants
        }
        return {**participants, **self.get_dealer_entries()}

    def get_role(self, name: str) -> str:
        """Return whether a participant is the active or a passive one."""
        if name not in self.party_names:
            raise ParameterError(
                f"{name!r} is no participant of the job {self.name!r}; there are "
                f"{', '.join(self.party_names)}"
            )
        return self.participants[self.party_names.index(name)].role

    def get_entry(self, name: str) -> MemberEntry:
        """Return how somebody is reached; raise ParameterError if it takes no part."""
        try:
            return self.get_entries()[name]
        except KeyError:
            raise ParameterError(
                f"{name!r} takes no part in the job {self.name!r}; there are "
                f"{', '.join(self.get_entries())}"
            ) from None

    def make_members(self) -> list[Member]:
        """Return everybody, as connecting takes them."""
        return [
            Member(name, *parse_address(contact.address), contact.fingerprint)
            for name, contact in self.get_entries().items()
        ]

    def list_connection_settings(self) -> dict[str, str]:
        """Return where everybody is reached, and by which certificate it is known."""
        return {
            f"{name}'s {key}": value
            for name, contact in self.get_entries().items()
            for key, value in contact.model_dump(include={"address", "fingerprint"}).items()
        }
