"""The numbers that all will compute with, compared before anything is computed.

Each tells digests of all numbers that it will multiply shares with, and of what its machine makes
of known sums: participants that computed differently would train noise and not notice.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from privet.boosting.training import Federation
from privet.federation.session.fingerprint import probe
from privet.federation.session.session import parse, refuse_differences
from privet.schema import Checked
from privet.storage.json_records import Name
from privet.transport.channel import Channel, swap

UNLIKE_MACHINES = (
    "participants would multiply shares with different numbers and train noise: install the same "
    "release of this software everywhere, and report it if that is what differs already"
)


class Numbers(Checked):
    """Digests of the numbers that somebody will compute with, by what they are for."""

    digests: Annotated[dict[Name, Name], Field(max_length=100)]


def numbers_of(federation: Federation | None, samples: int) -> dict[str, str]:
    """Return digests of all numbers that this machine would compute with, by what they are for.

    Those of a training, if there is to be one.
    """
    constants: dict[str, object] = {f"this machine's {k}": v for k, v in probe().items()}
    if federation is not None:
        plan = federation.plan(samples)
        constants |= {"cuts": plan.cuts, **federation.suite.constants(plan)}
        constants |= {"constraints": plan.monotone} if plan.monotone else {}
    return {f"numbers of {k}": _digest(value) for k, value in constants.items()}


def compare_numbers(channel: Channel, digests: dict[str, str]) -> None:
    """Raise DisagreementError unless all will compute with the same numbers."""
    ours = Numbers(digests=digests)
    received = swap(channel, dict.fromkeys(channel.peers, ours.model_dump_json().encode()))
    stated = {peer: parse(Numbers, peer, content).digests for peer, content in received.items()}
    stated[channel.name] = digests
    keys = dict.fromkeys(key for each in stated.values() for key in each)
    table = {k: {name: each.get(k) for name, each in stated.items()} for k in keys}
    refuse_differences(channel, table, advice=UNLIKE_MACHINES)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
