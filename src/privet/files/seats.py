"""Seats of a job as its file has them: somebody's address and fingerprint, or neither yet.

And how people see that all of them have the same seats, and the same job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from privet.runtime.roles import dealer_names

_FILLED_IN = ("address", "fingerprint")


def seats_of(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return everybody's seat by name, as far as values that nobody has checked have any."""
    participants, dealer, dealers = (
        values.get(key) for key in ("participants", "dealer", "dealers")
    )
    listed = [each for each in _list(participants) if isinstance(each.get("name"), str)]
    found = {str(each["name"]): each for each in listed}
    if isinstance(dealer, dict):
        found[dealer_names(1)[0]] = dealer
    dealing = _list(dealers)
    usual = dealer_names(3 if len(dealing) > 1 else 1)
    for number, each in enumerate(dealing[: len(usual)]):
        found[str(each.get("name") or usual[number])] = each
    return found


def is_open(seat: Mapping[str, Any]) -> bool:
    """Tell whether nobody has filled a seat in."""
    return not any(seat.get(key) for key in _FILLED_IN)


def refuse_open_seats(values: Any) -> None:
    """Raise ValueError if a job has seats that nobody has filled in yet."""
    if not isinstance(values, dict):
        return
    waited_for = [name for name, seat in seats_of(values).items() if is_open(seat)]
    if waited_for:
        several = len(waited_for) > 1
        raise ValueError(
            f"the seat{'s' * several} of {listed(waited_for)} {'are' if several else 'is'} "
            "not filled in yet: they run `privet join` with this file and send it back, and you "
            "run it with what they send"
        )


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: bank, telecom and dealer."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def read_out(terms: Mapping[str, Any]) -> str:
    """Return a digest of a job's terms, for people to read out to each other.

    Whoever carries a job from one to another, and could put keys of its own into both copies, has
    to find two with the same digest: 128 bits make that 2^64 attempts.
    """
    digits = hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _list(values: object) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
