"""Making sure, before anything is computed, that all mean the same job, version and samples.

Each states what it was asked to do, to everybody else. Every difference between any two is found
by all of them, since all compare with all; so each ends by itself, naming what differs. Ids are
compared by a digest under a key that the participants draw together and the dealer never sees.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from privet.arrays import TextArray
from privet.boosting.model import Feature
from privet.config import explain
from privet.errors import DisagreementError, PeerMisbehavedError
from privet.runtime.roles import DEALER
from privet.service.job import Job
from privet.service.messages import swap
from privet.service.records import Name, Record
from privet.transport.channel import Channel
from privet.version import __version__

Command = Literal["train", "predict", "serve"]
Stage = tuple[int, str]
"""How many tables a training had done, and in which run."""


class Statement(Record):
    """What somebody was asked to do."""

    version: Name
    """Of the software."""
    terms: dict[str, Any]
    """The job's."""
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    command: Command | None = None
    """What a participant wants to do; the dealer follows."""
    samples: Annotated[int, Field(ge=0)] | None = None
    n_features: Annotated[int, Field(ge=0)] = 0
    features: list[Name] | None = None
    """The names of a participant's features: for the other participants, not the dealer."""
    stages: list[tuple[int, Name]] = Field(default_factory=list)
    """The stages from which a participant could go on."""
    model: Name | None = None
    """Which model to predict with."""

    @classmethod
    def of(cls, job: Job, **values: Any) -> Statement:
        """Return what somebody with this job and version states."""
        return cls(version=__version__, terms=job.terms(), nonce=secrets.token_hex(32), **values)

    def comparable(self) -> dict[str, Any]:
        """Return what must be the same at all participants, by name."""
        mine = {"command": self.command, "samples": self.samples, "model": self.model}
        return {**self.terms, **{k: v for k, v in mine.items() if v is not None}}


@dataclass(frozen=True)
class Agreement:
    """What all agree on."""

    command: Command
    run: str
    """The name of this run, new every time."""
    samples: int
    features: tuple[Feature, ...]
    """Of all participants; the dealer knows how many each has, not what they are called."""
    stage: Stage
    """The latest that all participants have; (0, "") if there is none."""


def agree(channel: Channel, job: Job, statement: Statement, ids: TextArray | None) -> Agreement:
    """Exchange statements with everybody; raise DisagreementError that says in what they differ."""
    channel.where = lambda: "agreement"
    for_dealer = statement.model_copy(update={"features": None})
    received = swap(
        channel,
        {
            peer: (for_dealer if peer == DEALER else statement).model_dump_json().encode()
            for peer in channel.peers
        },
    )
    _refuse_differences(
        channel,
        {"version": {p: _version(p, c) for p, c in received.items()} | {channel.name: __version__}},
    )
    statements = {peer: _parse(peer, content) for peer, content in received.items()}
    statements[channel.name] = statement
    everybody = [*job.names, DEALER]
    table: dict[str, dict[str, Any]] = {}
    for name in everybody:
        for key, value in statements[name].comparable().items():
            table.setdefault(key, {})[name] = value
    _refuse_differences(channel, table)
    participants = [statements[name] for name in job.names]
    nonces = b"".join(bytes.fromhex(s.nonce) for s in participants)
    _compare_ids(channel, nonces, ids)
    first = participants[0]
    if first.command is None or first.samples is None:
        raise PeerMisbehavedError(job.names[0], "stated nothing to do")
    return Agreement(
        command=first.command,
        run=hashlib.sha256(nonces + bytes.fromhex(statements[DEALER].nonce)).hexdigest(),
        samples=first.samples,
        features=_features(job, participants),
        stage=_stage(participants),
    )


def _version(peer: str, content: bytes) -> str:
    """Return the version that a statement names, whatever else that version writes there."""
    try:
        found = json.loads(content)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PeerMisbehavedError(peer, "stated something that is no statement") from None
    return str(found)[:100]


def _parse(peer: str, content: bytes) -> Statement:
    try:
        return Statement.model_validate_json(content)
    except ValidationError as error:
        raise PeerMisbehavedError(peer, f"stated nonsense: {explain(error)}") from None


def _refuse_differences(channel: Channel, table: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise DisagreementError unless everything is the same at everybody who states it."""
    complaints = []
    for key, values in table.items():
        if all(value == next(iter(values.values())) for value in values.values()):
            continue
        places: dict[str, list[str]] = {}
        for name in sorted(values, key=lambda name: name != channel.name):
            place = "here" if name == channel.name else f"at {name}"
            places.setdefault(str(values[name])[:80], []).append(place)
        told = ", ".join(f"{value} {' and '.join(names)}" for value, names in places.items())
        complaints.append(f"{key}: {told}")
    if complaints:
        # Everybody finds a difference now, and says goodbye: nobody just hangs up.
        channel.close()
        raise DisagreementError(
            f"{'; '.join(complaints)}. Use the same job file and version everywhere"
        )


def _compare_ids(channel: Channel, key: bytes, ids: TextArray | None) -> None:
    """Raise DisagreementError unless all participants have the same ids in the same order.

    The dealer, which takes no part in comparing, is told what came out.
    """
    complaint = ""
    if ids is not None:
        content = b"".join(
            len(text).to_bytes(4, "little") + text for text in (str(i).encode() for i in ids)
        )
        ours = hmac.new(key, content, hashlib.sha256).digest()
        peers = [peer for peer in channel.peers if peer != DEALER]
        theirs = swap(channel, dict.fromkeys(peers, ours))
        if others := [peer for peer in peers if theirs[peer] != ours]:
            complaint = (
                f"ids: the samples at {' and '.join(others)} are not those at {channel.name}, or "
                "in another order; sort all tables by id, and keep the ids that all have"
            )
    told = swap(channel, dict.fromkeys(channel.peers, complaint.encode()))
    verdicts = [complaint, *(text.decode(errors="replace") for text in told.values())]
    if found := next((verdict for verdict in verdicts if verdict), None):
        channel.close()
        raise DisagreementError(found)


def _features(job: Job, participants: Sequence[Statement]) -> tuple[Feature, ...]:
    features = []
    for name, statement in zip(job.names, participants, strict=True):
        names = statement.features
        if names is None:
            names = [str(number) for number in range(statement.n_features)]
        elif len(names) != statement.n_features:
            raise PeerMisbehavedError(name, "stated another number of features than it names")
        features += [Feature(feature, name) for feature in names]
    return tuple(features)


def _stage(participants: Sequence[Statement]) -> Stage:
    common = set.intersection(*(set(statement.stages) for statement in participants))
    return max(common, default=(0, ""))
