"""Who deals in a job: one dealer, or three, of whom none knows a mask.

    [dealer]                                  [[dealers]]
    address = "dealer.example:7400"           address = "notary.example:7400"
    fingerprint = "5f0c..."                   fingerprint = "5f0c..."
                                              (and two more)

Three of the participants may play the three: each says which one is its own, with a key of its own
and at an address of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from privet.boosting.federation import SUITES
from privet.config import Config, check_name
from privet.files.contacts import Contact
from privet.runtime.roles import dealer_names


class DealerContact(Contact):
    """One of the dealers."""

    name: str = ""
    """dealer, or of three dealer1, dealer2 and dealer3, if it is not said."""
    by: str = ""
    """The participant that plays this dealer, if one does."""


class Dealers(Config):
    """The terms of a job that say who deals."""

    dealer: Contact | None = None
    """The only one."""
    dealers: list[DealerContact] = Field(default_factory=list)
    """One or three; of three, any one may be corrupt."""

    def dealing(self) -> dict[str, Contact]:
        """Return how each dealer is reached, by name, in the order of their roles."""
        if self.dealer is not None:
            return {dealer_names(1)[0]: self.dealer}
        usual = dealer_names(len(self.dealers))
        return {d.name or name: d for d, name in zip(self.dealers, usual, strict=True)}

    @property
    def dealer_names(self) -> tuple[str, ...]:
        """The dealers, in the order of their roles."""
        return tuple(self.dealing())

    @property
    def aligner(self) -> str:
        """Which dealer helps to align rows."""
        return self.dealer_names[0]

    @property
    def played_by(self) -> dict[str, str]:
        """Which participant plays each dealer, of those that participants play."""
        contacts = zip(self.dealer_names, self.dealers, strict=False)
        return {name: dealer.by for name, dealer in contacts if dealer.by}

    def check_dealers(self, participants: Sequence[str], protocol: str, *, align: bool) -> None:
        """Raise ValueError unless there are one or three, and what the job asks for can be dealt.

        `align` tells whether rows are aligned.
        """
        if (self.dealer is None) == (not self.dealers):
            raise ValueError(
                "dealers: there is one [dealer], or one or three [[dealers]], not both and not none"
            )
        if self.dealer is None and len(self.dealers) not in (1, 3):
            raise ValueError(f"dealers: there are one or three, and here are {len(self.dealers)}")
        usual = dealer_names(len(self.dealers) or 1)
        names = [d.name or name for d, name in zip(self.dealers, usual, strict=False)] or [*usual]
        for name in names:
            check_name(name)
            if name in participants or names.count(name) > 1:
                raise ValueError(f"dealers: {name!r} is the name of somebody else, too")
        players = list(self.played_by.values())
        if len(names) == 1:
            if players:
                raise ValueError(
                    f"dealers.by: {players[0]} would be the only dealer, and know all masks: three "
                    "participants play dealers, or none does"
                )
            return
        if not SUITES[protocol].several_dealers:
            raise ValueError(f"dealers: the protocol {protocol} takes one; use masked")
        strangers = [name for name in players if name not in participants]
        if strangers:
            raise ValueError(f"dealers.by: {strangers[0]!r} is none of {', '.join(participants)}")
        if players and len(set(players)) < len(names):
            raise ValueError(
                "dealers.by: three participants play the three dealers, each of them one"
            )
        if players and align:
            raise ValueError(
                "align: the dealer that aligns must collude with nobody, and here it is a "
                "participant's: have dealers from outside, or align the tables another way"
            )
