"""What a gate is: two halves side by side, and its cost as code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from privet.runtime.dealer import Dealer
from privet.runtime.opening import ALL_TO_ALL_BYTES
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


class Gate(ABC):
    """A step of a program that needs the dealer, or the network, or both.

    Called with a runtime, it does that runtime's half. The halves must draw the same values from
    the dealer's randomness in the same order; a running tag catches it if they do not.
    """

    name: str

    def __call__(self, runtime: Runtime, *values: Any, **options: Any) -> Any:
        """Do the half of this gate that the runtime is there for."""
        with runtime.step(self.name):
            runtime.note(f"{options}")
            if isinstance(runtime, Dealer):
                return self.deal(runtime, *values, **options)
            assert isinstance(runtime, Party)
            return self.run(runtime, *values, **options)

    @abstractmethod
    def deal(self, dealer: Dealer, *values: Any, **options: Any) -> Any:
        """Draw and derive what the participants need."""

    @abstractmethod
    def run(self, party: Party, *values: Any, **options: Any) -> Any:
        """Open and compute."""


@dataclass(frozen=True)
class Cost:
    """What a gate costs: network delays, and bytes summed over all participants."""

    rounds: int = 0
    online: int = 0
    """Bytes that participants send each other."""
    offline: int = 0
    """Bytes of corrections from the dealer."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rounds + other.rounds, self.online + other.online, self.offline + other.offline
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(self.rounds * times, self.online * times, self.offline * times)


def sharing_cost(nbytes: int, n_parties: int) -> Cost:
    """Return what it costs owners to share that many bytes among all."""
    return Cost(rounds=1, online=(n_parties - 1) * nbytes)


def revealing_cost(nbytes: int, recipients: int, n_parties: int) -> Cost:
    """Return what revealing that many bytes to that many participants costs."""
    return Cost(rounds=1, online=recipients * (n_parties - 1) * nbytes)


def opening_cost(nbytes: int, n_parties: int) -> Cost:
    """Return what opening that many bytes to all costs."""
    if nbytes <= ALL_TO_ALL_BYTES or n_parties == 2:
        return Cost(rounds=1, online=n_parties * (n_parties - 1) * nbytes)
    return Cost(rounds=2, online=2 * (n_parties - 1) * nbytes)
