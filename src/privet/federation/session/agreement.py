"""The agreement before a session: proposals, data summaries and constraints, compared.

Each states what it was asked to do, to everybody else; then, perhaps after an alignment, what it
brings along. Every difference between any two is found by all of them, since all compare with all;
so each ends by itself, naming what differs.

Then each tells digests of all numbers that it will compute with (`federation.numbers`).

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

from privet.boosting.model import Feature
from privet.config.job import Job
from privet.errors import DataError, InputError, ParameterError, PeerMisbehavedError
from privet.federation.session.public_constants import (
    digest_public_constants,
    require_same_constants,
)
from privet.federation.session.session import parse_message, require_equal
from privet.schema import StrictSchema, is_printable, quote_untrusted
from privet.spec.params import MAX_TABLES
from privet.spec.plan import MonotoneConstraints, check_disclosed_cut_counts
from privet.storage.checkpoint import CheckpointKey
from privet.storage.json_records import Name
from privet.transport.channel import Channel, exchange_messages
from privet.version import __version__


def get_local_constraints(job: Job, name: str, features: Sequence[str] | None) -> list[int] | None:
    """Return the constraint of each of a participant's features; None if there are none."""
    if not job.monotone or features is None:
        return None
    own = job.monotone.get(name, {})
    return [own.get(feature, 0) for feature in features]


def check_constrained_features(
    job: Job, features: Sequence[Feature], announced: MonotoneConstraints | None
) -> None:
    """Raise ParameterError, at the dealer, if somebody lacks a column that the job constrains.

    The others were told nothing: they find the same by name.
    """
    if announced is None:
        return
    signs: dict[str, list[int]] = {name: [] for name in job.party_names}
    for feature, sign in zip(features, announced, strict=True):
        signs[feature.owner] += [sign] if sign else []
    for name, found in signs.items():
        due = sorted(job.monotone.get(name, {}).values())
        if sorted(found) != due:
            raise ParameterError(
                f"monotone: the job constrains {len(due)} columns of {name}, which has "
                f"{len(found)} of these: the participants know which is missing"
            )


class DataSummary(StrictSchema):
    """What a participant brings along; the dealer has nothing."""

    samples: Annotated[int, Field(ge=0)] | None = None
    n_features: Annotated[int, Field(ge=0, le=100_000)] = 0
    features: list[Name] | None = None
    """The names of a participant's features: for the other participants, not the dealer."""
    cuts: Annotated[list[int], Field(max_length=100_000)] | None = None
    """How many cuts each of them has, as far as the job has it told: for the dealer, too."""
    monotone: Annotated[list[Literal[-1, 0, 1]], Field(max_length=100_000)] | None = None
    """The constraint of each of them, if the job has any, for the dealer, which knows no names."""
    stages: list[tuple[int, Name]] = Field(default_factory=list)
    """The stages from which a participant could go on."""
    ended: bool = False
    """Whether its training ended, as the job says when it does, at its only stage."""
    tables: Annotated[int, Field(ge=1)] | None = None
    """How many tables the model has that is to predict: the dealer has none."""


def merge_features(job: Job, summaries: Sequence[DataSummary]) -> tuple[Feature, ...]:
    """Return the features of all, by number where we are not told their names."""
    features = []
    for name, holding in zip(job.party_names, summaries, strict=True):
        names = holding.features
        if names is None:  # so it is to the dealer
            names = [str(number) for number in range(holding.n_features)]
        elif len(names) != holding.n_features or not all(is_printable(f) for f in names):
            raise PeerMisbehavedError(name, "stated features that are not all named")
        features += [Feature(feature, name) for feature in names]
    return tuple(features)


def merge_cut_counts(job: Job, summaries: Sequence[DataSummary]) -> tuple[int, ...] | None:
    """Return what all told of their columns; raise if it is not what the job has told."""
    told: list[int] = []
    most = job.make_params().max_cut_count
    for name, holding in zip(job.party_names, summaries, strict=True):
        cuts = holding.cuts or []
        due = 0 if job.cut_disclosure == "hidden" else holding.n_features
        try:
            check_disclosed_cut_counts(cuts, job.cut_disclosure, most)
        except DataError as error:
            raise PeerMisbehavedError(name, f"stated nonsense: {error}") from None
        if len(cuts) != due:
            raise PeerMisbehavedError(
                name, f"stated {len(cuts)} numbers of cuts, and {due} are due"
            )
        told += cuts
    return None if job.cut_disclosure == "hidden" else tuple(told)


def is_training_finished(
    job: Job, resume_from: CheckpointKey, summaries: Sequence[DataSummary]
) -> bool:
    """Tell whether a training has ended at a stage: as somebody knows, or as all can see.

    What explains scores is derived when all tables are there, and in no checkpoint: then all must
    have their parts.
    """
    ended = [each.ended and resume_from in each.stages for each in summaries]
    if job.explain is not None:
        return all(ended)
    if any(ended):
        return True
    params = job.make_params()
    return resume_from[0] == params.tables and params.patience is None and not job.reveal_validation


def get_model_tables(job: Job, command: str, summaries: Sequence[DataSummary]) -> int:
    """Return how many tables the model has that all have parts of."""
    tables = summaries[0].tables
    if command == "train":
        return 0
    if tables is None or tables > MAX_TABLES:
        raise PeerMisbehavedError(
            job.party_names[0], "stated no number of tables that there can be"
        )
    return tables


def merge_constraints(job: Job, summaries: Sequence[DataSummary]) -> MonotoneConstraints | None:
    """Return what the dealer is told of constraints; all compare digests of them later."""
    if not job.monotone:
        return None
    told: list[int] = []
    for name, holding in zip(job.party_names, summaries, strict=True):
        signs = [0] * holding.n_features if holding.monotone is None else holding.monotone
        if len(signs) != holding.n_features:
            raise PeerMisbehavedError(
                name, f"stated {len(signs)} constraints of {holding.n_features} features"
            )
        told += signs
    return tuple(told)


def find_common_checkpoint(summaries: Sequence[DataSummary]) -> CheckpointKey:
    """Return the latest stage that all have."""
    common = set.intersection(*(set(holding.stages) for holding in summaries))
    return max(common, default=(0, ""))


EXPLANATIONS_DISABLED_TEXT = "wants explanations, which the job does not have"
"""What is said of a recipient that asks for what it may not have."""
SessionCommand = Literal["align", "train", "predict", "serve", "export"]


class Proposal(StrictSchema):
    """What somebody was asked to do."""

    version: Name
    """Of the software."""
    terms: dict[str, Any]
    """The job's."""
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    command: SessionCommand | None = None
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
    def for_job(cls, job: Job, **values: Any) -> Proposal:
        """Return what somebody with this job and version states."""
        return cls(
            version=__version__,
            terms=job.list_agreed_settings(),
            nonce=secrets.token_hex(32),
            **values,
        )


@dataclass(frozen=True)
class SessionPlan:
    """What all mean to do."""

    command: SessionCommand
    run: str
    """The name of this run, new every time."""
    proposals: dict[str, Proposal]
    """What each participant states."""


@dataclass(frozen=True)
class Agreement:
    """What all agree on."""

    command: SessionCommand
    run: str
    """The name of this run."""
    n_samples: int
    features: tuple[Feature, ...]
    """Of all participants; the dealer knows how many each has, not what they are called."""
    cut_counts: tuple[int, ...] | None
    """How many cuts each feature has, if the job has that told."""
    monotone: MonotoneConstraints | None
    """The constraint of each feature, as its owner tells the dealer; None: by name."""
    resume_from: CheckpointKey
    """The latest that all participants have; (0, "") if nobody has any."""
    is_finished: bool
    """Whether nothing is left to do after it."""
    n_model_tables: int
    """How many tables the model to predict with has."""
    randomness_ids: dict[str, str | None]
    """The name of each participant's dealing, if it was dealt ahead."""
    explain: bool = False
    """Whether the recipient wants predictions explained."""


def exchange_proposals(channel: Channel, job: Job, proposal: Proposal) -> SessionPlan:
    """Exchange statements with everybody; raise DisagreementError that says in what they differ."""
    channel.current_step = lambda: "agreement"
    content = proposal.model_dump_json().encode()
    received = exchange_messages(channel, dict.fromkeys(channel.peers, content))
    require_equal(
        channel,
        {
            "version": {p: _parse_version(p, c) for p, c in received.items()}
            | {channel.name: __version__}
        },
    )
    statements = {
        peer: parse_message(Proposal, peer, content) for peer, content in received.items()
    }
    statements[channel.name] = proposal
    everybody = [name for name in (*job.party_names, *job.dealer_names) if name in statements]
    keys = dict.fromkeys(key for name in everybody for key in statements[name].terms)
    table = {k: {name: statements[name].terms.get(k) for name in everybody} for k in keys}
    for key in ("command", "model"):
        table[key] = {name: getattr(statements[name], key) for name in job.party_names}
    require_equal(channel, table)
    command = statements[job.party_names[0]].command
    if command is None:
        raise PeerMisbehavedError(job.party_names[0], "stated nothing to do")
    nonces = "".join(statements[name].nonce for name in everybody)
    run = hashlib.sha256(bytes.fromhex(nonces)).hexdigest()
    return SessionPlan(command, run, {name: statements[name] for name in job.party_names})


def exchange_summaries(
    channel: Channel, job: Job, plan: SessionPlan, summary: DataSummary
) -> Agreement:
    """Exchange what all bring along; raise DisagreementError if it does not fit together."""
    channel.current_step = lambda: "agreement"
    for_dealer = summary.model_copy(
        update={
            "features": None,
            "monotone": get_local_constraints(job, channel.name, summary.features),
        }
    )
    received = exchange_messages(
        channel,
        {
            peer: (for_dealer if peer in job.dealer_names else summary).model_dump_json().encode()
            for peer in channel.peers
        },
    )
    holdings = {
        peer: parse_message(DataSummary, peer, content) for peer, content in received.items()
    }
    holdings[channel.name] = summary
    participants = [holdings[name] for name in job.party_names]
    require_equal(channel, _make_comparison_table(job, participants))
    if participants[0].samples is None:
        raise PeerMisbehavedError(job.party_names[0], "stated no number of samples")
    stage = find_common_checkpoint(participants)
    agreement = Agreement(
        command=plan.command,
        run=plan.run,
        n_samples=participants[0].samples,
        features=merge_features(job, participants),
        cut_counts=merge_cut_counts(job, participants) if plan.command == "train" else None,
        monotone=(
            merge_constraints(job, participants) if channel.name in job.dealer_names else None
        ),
        resume_from=stage,
        is_finished=is_training_finished(job, stage, participants),
        n_model_tables=get_model_tables(job, plan.command, participants),
        randomness_ids={name: statement.dealing for name, statement in plan.proposals.items()},
        explain=_is_explanation_agreed(job, plan),
    )
    try:
        federation = None
        if agreement.command == "train":
            check_constrained_features(job, agreement.features, agreement.monotone)
            federation = job.make_training_spec(
                agreement.features, agreement.cut_counts, agreement.monotone
            )
        require_same_constants(channel, digest_public_constants(federation, agreement.n_samples))
    except InputError:
        # Nothing can be trained on what all have, which all find now: nobody just hangs up.
        channel.close_best_effort()
        raise
    return agreement


def _is_explanation_agreed(job: Job, plan: SessionPlan) -> bool:
    """Tell whether the recipient wants predictions explained; raise if the job has it not told."""
    recipient = job.party_names[job.recipient_index]
    if plan.proposals[recipient].explain and job.explain is None:
        raise PeerMisbehavedError(recipient, EXPLANATIONS_DISABLED_TEXT)
    return plan.proposals[recipient].explain


def _parse_version(peer: str, content: bytes) -> str:
    """Return the version that a statement names, whatever else that version writes there."""
    try:
        found = json.loads(content)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PeerMisbehavedError(peer, "stated something that is no statement") from None
    return quote_untrusted(found)


def _make_comparison_table(job: Job, summaries: Sequence[DataSummary]) -> dict[str, dict[str, Any]]:
    """Return what must be the same, by what it is and who states it."""
    holdings = dict(zip(job.party_names, summaries, strict=True))
    table: dict[str, dict[str, Any]] = {
        key: {name: getattr(holding, key) for name, holding in holdings.items()}
        for key in ("samples", "tables")
    }
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
