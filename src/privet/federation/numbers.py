"""The numbers that everybody will compute with: compared, as digests, before anything is computed.

Participants that multiplied shares with different numbers would train noise and not notice.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from privet.arithmetic.probe import probe
from privet.boosting.model import Feature
from privet.config import Checked
from privet.federation.differences import parse, refuse_differences
from privet.federation.messages import swap
from privet.files.job import Job
from privet.files.records import Name
from privet.transport.channel import Channel

UNLIKE_MACHINES = (
    "participants would multiply shares with different numbers and train noise: install the same "
    "release of this software everywhere, and report it if that is what differs already"
)


class Numbers(Checked):
    """Digests of the numbers that somebody will compute with, by what they are for."""

    digests: Annotated[dict[Name, Name], Field(max_length=100)]


def numbers_of(
    job: Job,
    command: str,
    samples: int,
    features: tuple[Feature, ...],
    cut_counts: tuple[int, ...] | None,
) -> dict[str, str]:
    """Return digests of all numbers that this machine would compute with, by what they are for."""
    constants: dict[str, object] = {f"this machine's {k}": v for k, v in probe().items()}
    if command == "train":
        federation = job.federation(features, cut_counts)
        plan = federation.plan(samples)
        constants |= {"cuts": plan.cuts, **federation.suite.constants(plan)}
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
