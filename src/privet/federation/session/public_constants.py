"""The public constants of a computation, compared by all members before it starts.

Each member sends digests of all constants that multiply shares, and of its self-test: participants
that compute differently would train noise without an error.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from privet.boosting.training import TrainingSpec
from privet.federation.session.fingerprint import run_self_test
from privet.federation.session.session import parse_message, require_equal
from privet.schema import StrictSchema
from privet.storage.json_records import Name
from privet.transport.channel import Channel, exchange_messages

MISMATCH_ADVICE = (
    "participants would multiply shares with different numbers and train noise: install the same "
    "release of this software everywhere, and report it if that is what differs already"
)


class ConstantDigests(StrictSchema):
    """Digests of a member's public constants, by name."""

    digests: Annotated[dict[Name, Name], Field(max_length=100)]


def digest_public_constants(training_spec: TrainingSpec | None, n_samples: int) -> dict[str, str]:
    """Return digests of the self-test and, for a training run, of its constants, by name."""
    constants: dict[str, object] = {f"this machine's {k}": v for k, v in run_self_test().items()}
    if training_spec is not None:
        plan = training_spec.make_plan(n_samples)
        constants |= {
            "cuts": plan.cut_counts,
            **training_spec.protocol_type.list_public_constants(plan),
        }
        constants |= {"constraints": plan.monotone} if plan.monotone else {}
    return {f"numbers of {k}": _digest_value(value) for k, value in constants.items()}


def require_same_constants(channel: Channel, digests: dict[str, str]) -> None:
    """Raise DisagreementError unless all members have the same public constants."""
    local = ConstantDigests(digests=digests)
    received = exchange_messages(
        channel, dict.fromkeys(channel.peers, local.model_dump_json().encode())
    )
    stated = {
        peer: parse_message(ConstantDigests, peer, content).digests
        for peer, content in received.items()
    }
    stated[channel.name] = digests
    keys = dict.fromkeys(key for each in stated.values() for key in each)
    comparison = {k: {name: each.get(k) for name, each in stated.items()} for k in keys}
    require_equal(channel, comparison, advice=MISMATCH_ADVICE)


def _digest_value(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
