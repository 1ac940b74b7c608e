"""Who takes part in a job: participants and dealers, by name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from privet.errors import ParameterError
from privet.files.contacts import Contact, Participant, parse_address
from privet.files.dealers import Dealers
from privet.transport.mesh import Member


class TakingPart(Dealers):
    """The terms of a job that say who takes part."""

    name: str
    """Of the job, and of the files of its model."""
    participants: Annotated[list[Participant], Field(min_length=2)]
    """Who takes part, in the order in which all count them: two or more."""

    @property
    def names(self) -> list[str]:
        """The participants, in the order in which all count them."""
        return [participant.name for participant in self.participants]

    @property
    def active(self) -> int:
        """Which participant holds the label."""
        return [participant.role for participant in self.participants].index("active")

    def contacts(self) -> dict[str, Contact]:
        """Return how everybody is reached, by name."""
        participants: dict[str, Contact] = {
            participant.name: participant for participant in self.participants
        }
        return {**participants, **self.dealing()}

    def role(self, name: str) -> str:
        """Return whether a participant is the active or a passive one."""
        if name not in self.names:
            raise ParameterError(
                f"{name!r} is no participant of the job {self.name!r}; there are "
                f"{', '.join(self.names)}"
            )
        return self.participants[self.names.index(name)].role

    def contact(self, name: str) -> Contact:
        """Return how somebody is reached; raise ParameterError if it takes no part."""
        try:
            return self.contacts()[name]
        except KeyError:
            raise ParameterError(
                f"{name!r} takes no part in the job {self.name!r}; there are "
                f"{', '.join(self.contacts())}"
            ) from None

    def members(self) -> list[Member]:
        """Return everybody, as connecting takes them."""
        return [
            Member(name, *parse_address(contact.address), contact.fingerprint)
            for name, contact in self.contacts().items()
        ]

    def seats(self) -> dict[str, str]:
        """Return where everybody is reached, and by which certificate it is known."""
        return {
            f"{name}'s {key}": value
            for name, contact in self.contacts().items()
            for key, value in contact.model_dump(include={"address", "fingerprint"}).items()
        }
