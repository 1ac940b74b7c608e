"""Making sure, before anything is computed, that all mean the same job, version and samples.

Each states what it was asked to do, to everybody else; then, perhaps after an alignment, what it
brings along. Every difference between any two is found by all of them, since all compare with all;
so each ends by itself, naming what differs.

Then each tells digests of all numbers that it will multiply shares with, and of what its machine
makes of known sums: participants that computed differently would train noise and not notice.

The dealer takes part if it is there. Where correlations were dealt ahead, `federation.ahead`
compares what they were dealt for. Ids are aligned before, if the job says so
(`federation.common_rows`); otherwise they are compared on shares (`federation.ids`).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from privet.arithmetic.probe import probe
from privet.boosting.model import Feature
from privet.config import Checked, printable, quoted
from privet.errors import DataError, InputError, PeerMisbehavedError
from privet.federation.differences import parse, refuse_differences
from privet.federation.messages import swap
from privet.files.checkpoint import Stage
from privet.files.job import Job
from privet.files.records import Name
from privet.runtime.roles import DEALER
from privet.terms.cuts import check_told
from privet.transport.channel import Channel
from privet.version import __version__

DEADLINE = 10.0
"""Seconds without a sign of life after which a peer is given up, once all have agreed."""
UNLIKE_MACHINES = (
    "participants would multiply shares with different numbers and train noise: install the same "
    "release of this software everywhere, and report it if that is what differs already"
)
NOT_AGREED = "wants explanations, which the job does not have"
"""What is said of a recipient that asks for what it may not have."""
Command = Literal["align", "train", "predict", "serve", "export"]


class Statement(Checked):
    """What somebody was asked to do."""

    version: Name
    """Of the software."""
    terms: dict[str, Any]
    """The job's."""
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    command: Command | None = None
    """What a participant wants to do; the dealer follows."""
    model: Name | None = None
    """Which model to predict with."""
    dealing: Name | None = None
    """The name of the dealing that a participant has a file of; None if the dealer is there."""
    alignment: Name | None = None
    """The alignment that a participant has kept for its rows, and could use again."""
    explain: bool = False
    """Whether the recipient wants predictions explained."""
    aligned: Annotated[int, Field(ge=0)] = 0
    """How often it has aligned for this job."""
    goes_on: bool = False
    """Whether it has tables that were trained on the rows of that alignment."""

    @classmethod
    def of(cls, job: Job, **values: Any) -> Statement:
        """Return what somebody with this job and version states."""
        return cls(version=__version__, terms=job.terms(), nonce=secrets.token_hex(32), **values)


class Holding(Checked):
    """What a participant brings along; the dealer has nothing."""

    samples: Annotated[int, Field(ge=0)] | None = None
    n_features: Annotated[int, Field(ge=0, le=100_000)] = 0
    features: list[Name] | None = None
    """The names of a participant's features: for the other participants, not the dealer."""
    cuts: Annotated[list[int], Field(max_length=100_000)] | None = None
    """How many cuts each of them has, as far as the job has it told: for the dealer, too."""
    stages: list[tuple[int, Name]] = Field(default_factory=list)
    """The stages from which a participant could go on."""


class Numbers(Checked):
    """Digests of the numbers that somebody will compute with, by what they are for."""

    digests: Annotated[dict[Name, Name], Field(max_length=100)]


@dataclass(frozen=True)
class Purpose:
    """What all mean to do."""

    command: Command
    run: str
    """The name of this run, new every time."""
    statements: dict[str, Statement]
    """What each participant states."""


@dataclass(frozen=True)
class Agreement:
    """What all agree on."""

    command: Command
    run: str
    """The name of this run."""
    samples: int
    features: tuple[Feature, ...]
    """Of all participants; the dealer knows how many each has, not what they are called."""
    cut_counts: tuple[int, ...] | None
    """How many cuts each feature has, if the job has that told."""
    stage: Stage
    """The latest that all participants have; (0, "") if nobody has any."""
    dealings: dict[str, str | None]
    """The name of each participant's dealing, if it was dealt ahead."""
    explain: bool = False
    """Whether the recipient wants predictions explained."""


def agree_on_purpose(channel: Channel, job: Job, statement: Statement) -> Purpose:
    """Exchange statements with everybody; raise DisagreementError that says in what they differ."""
    channel.where = lambda: "agreement"
    content = statement.model_dump_json().encode()
    received = swap(channel, dict.fromkeys(channel.peers, content))
    refuse_differences(
        channel,
        {"version": {p: _version(p, c) for p, c in received.items()} | {channel.name: __version__}},
    )
    statements = {peer: parse(Statement, peer, content) for peer, content in received.items()}
    statements[channel.name] = statement
    everybody = [name for name in (*job.names, DEALER) if name in statements]
    keys = dict.fromkeys(key for name in everybody for key in statements[name].terms)
    table = {k: {name: statements[name].terms.get(k) for name in everybody} for k in keys}
    for key in ("command", "model"):
        table[key] = {name: getattr(statements[name], key) for name in job.names}
    refuse_differences(channel, table)
    command = statements[job.names[0]].command
    if command is None:
        raise PeerMisbehavedError(job.names[0], "stated nothing to do")
    nonces = "".join(statements[name].nonce for name in everybody)
    run = hashlib.sha256(bytes.fromhex(nonces)).hexdigest()
    channel.deadline = DEADLINE
    return Purpose(command, run, {name: statements[name] for name in job.names})


def agree_on_rows(channel: Channel, job: Job, purpose: Purpose, holding: Holding) -> Agreement:
    """Exchange what all bring along; raise DisagreementError if it does not fit together."""
    channel.where = lambda: "agreement"
    for_dealer = holding.model_copy(update={"features": None})
    received = swap(
        channel,
        {
            peer: (for_dealer if peer == DEALER else holding).model_dump_json().encode()
            for peer in channel.peers
        },
    )
    holdings = {peer: parse(Holding, peer, content) for peer, content in received.items()}
    holdings[channel.name] = holding
    participants = [holdings[name] for name in job.names]
    refuse_differences(channel, _comparison(job, participants))
    if participants[0].samples is None:
        raise PeerMisbehavedError(job.names[0], "stated no number of samples")
    agreement = Agreement(
        command=purpose.command,
        run=purpose.run,
        samples=participants[0].samples,
        features=_features(job, participants),
        cut_counts=_cut_counts(job, participants) if purpose.command == "train" else None,
        stage=_stage(participants),
        dealings={name: statement.dealing for name, statement in purpose.statements.items()},
        explain=_asks_for_reasons(job, purpose),
    )
    try:
        _compare_numbers(channel, job, agreement)
    except InputError:
        # Nothing can be trained on what all have, which all find now: nobody just hangs up.
        channel.close()
        raise
    return agreement


def _asks_for_reasons(job: Job, purpose: Purpose) -> bool:
    """Tell whether the recipient wants predictions explained; raise if the job has it not told."""
    recipient = job.names[job.recipient_index]
    if purpose.statements[recipient].explain and job.explain is None:
        raise PeerMisbehavedError(recipient, NOT_AGREED)
    return purpose.statements[recipient].explain


def _version(peer: str, content: bytes) -> str:
    """Return the version that a statement names, whatever else that version writes there."""
    try:
        found = json.loads(content)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PeerMisbehavedError(peer, "stated something that is no statement") from None
    return quoted(found)


def _comparison(job: Job, participants: Sequence[Holding]) -> dict[str, dict[str, Any]]:
    """Return what must be the same, by what it is and who states it."""
    holdings = dict(zip(job.names, participants, strict=True))
    table: dict[str, dict[str, Any]] = {"samples": {n: h.samples for n, h in holdings.items()}}
    stages = {name: holding.stages for name, holding in holdings.items()}
    furthest = max((done for each in stages.values() for done, _ in each), default=0)
    if furthest > 1 and not set.intersection(*(set(each) for each in stages.values())):
        # Who fell in the first table leaves others with one that it has not: that is soon done
        # again. Anything more is nobody's to throw away unasked.
        table["tables done"] = {
            name: ", ".join(f"{done} in run {run[:8]}" for done, run in each) or "none"
            for name, each in stages.items()
        }
    return table


def numbers_of(
    job: Job,
    command: Command,
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


def _compare_numbers(channel: Channel, job: Job, agreement: Agreement) -> None:
    """Raise DisagreementError unless all will compute with the same numbers."""
    digests = numbers_of(
        job, agreement.command, agreement.samples, agreement.features, agreement.cut_counts
    )
    ours = Numbers(digests=digests)
    received = swap(channel, dict.fromkeys(channel.peers, ours.model_dump_json().encode()))
    stated = {peer: parse(Numbers, peer, content).digests for peer, content in received.items()}
    stated[channel.name] = digests
    keys = dict.fromkeys(key for each in stated.values() for key in each)
    table = {k: {name: each.get(k) for name, each in stated.items()} for k in keys}
    refuse_differences(channel, table, advice=UNLIKE_MACHINES)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _features(job: Job, participants: Sequence[Holding]) -> tuple[Feature, ...]:
    features = []
    for name, holding in zip(job.names, participants, strict=True):
        names = holding.features
        if names is None:  # so it is to the dealer
            names = [str(number) for number in range(holding.n_features)]
        elif len(names) != holding.n_features or not all(printable(f) for f in names):
            raise PeerMisbehavedError(name, "stated features that are not all named")
        features += [Feature(feature, name) for feature in names]
    return tuple(features)


def _cut_counts(job: Job, participants: Sequence[Holding]) -> tuple[int, ...] | None:
    """Return what all told of their columns; raise if it is not what the job has told."""
    told: list[int] = []
    most = job.hyper_parameters().candidates
    for name, holding in zip(job.names, participants, strict=True):
        cuts = holding.cuts or []
        due = 0 if job.told_cuts == "hidden" else holding.n_features
        try:
            check_told(cuts, job.told_cuts, most)
        except DataError as error:
            raise PeerMisbehavedError(name, f"stated nonsense: {error}") from None
        if len(cuts) != due:
            raise PeerMisbehavedError(
                name, f"stated {len(cuts)} numbers of cuts, and {due} are due"
            )
        told += cuts
    return None if job.told_cuts == "hidden" else tuple(told)


def _stage(participants: Sequence[Holding]) -> Stage:
    common = set.intersection(*(set(holding.stages) for holding in participants))
    return max(common, default=(0, ""))
