"""The agreement before a session: proposals, data summaries and constraints, compared.

Each member sends its proposal to all others and, after an alignment if `align = true`, its data
summary and digests of its public constants. Each member compares the messages of all members, so
every member finds every difference, and ends the session by itself with an error that names it.

A dealer takes part if it is online. With preprocessing files, `federation.offline` compares the
specification of the files instead. Without an alignment, the ids are compared on shares, later
(`federation.alignment.alignment`).
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
    constraints = job.monotone.get(name, {})
    return [constraints.get(feature, 0) for feature in features]


def check_constrained_features(
    job: Job, features: Sequence[Feature], announced: MonotoneConstraints | None
) -> None:
    """Raise ParameterError, at the dealer, if a participant lacks a column that the job constrains.

    At the participants, `announced` is None: they find a missing column by its name.
    """
    if announced is None:
        return
    signs: dict[str, list[int]] = {name: [] for name in job.party_names}
    for feature, sign in zip(features, announced, strict=True):
        signs[feature.owner] += [sign] if sign else []
    for name, found in signs.items():
        expected = sorted(job.monotone.get(name, {}).values())
        if sorted(found) != expected:
            raise ParameterError(
                f"monotone: the job constrains {len(expected)} columns of {name}, which has "
                f"{len(found)} of these: the participants know which is missing"
            )


class DataSummary(StrictSchema):
    """A participant's data and checkpoints in numbers; a dealer's summary is empty."""

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
    """Return the features of all participants, numbered if their names are not known here."""
    features = []
    for name, summary in zip(job.party_names, summaries, strict=True):
        names = summary.features
        if names is None:  # at the dealer
            names = [str(number) for number in range(summary.n_features)]
        elif len(names) != summary.n_features or not all(is_printable(f) for f in names):
            raise PeerMisbehavedError(name, "stated features that are not all named")
        features += [Feature(feature, name) for feature in names]
    return tuple(features)


def merge_cut_counts(job: Job, summaries: Sequence[DataSummary]) -> tuple[int, ...] | None:
    """Return the disclosed cut counts of all participants; raise unless they match the job."""
    counts: list[int] = []
    max_count = job.make_params().max_cut_count
    for name, summary in zip(job.party_names, summaries, strict=True):
        cuts = summary.cuts or []
        n_expected = 0 if job.cut_disclosure == "hidden" else summary.n_features
        try:
            check_disclosed_cut_counts(cuts, job.cut_disclosure, max_count)
        except DataError as error:
            raise PeerMisbehavedError(name, f"stated nonsense: {error}") from None
        if len(cuts) != n_expected:
            raise PeerMisbehavedError(
                name, f"stated {len(cuts)} numbers of cuts, and {n_expected} are due"
            )
        counts += cuts
    return None if job.cut_disclosure == "hidden" else tuple(counts)


def is_training_finished(
    job: Job, resume_from: CheckpointKey, summaries: Sequence[DataSummary]
) -> bool:
    """Return whether training has finished at a checkpoint.

    It has if a participant states so, or if the number of tables shows it. With explanations, all
    participants must state so and have their parts: the data for explanations is derived after the
    last table, and no checkpoint contains it.
    """
    finished = [summary.ended and resume_from in summary.stages for summary in summaries]
    if job.explain is not None:
        return all(finished)
    if any(finished):
        return True
    params = job.make_params()
    return resume_from[0] == params.tables and params.patience is None and not job.reveal_validation


def get_model_tables(job: Job, command: str, summaries: Sequence[DataSummary]) -> int:
    """Return the number of tables of the model to predict with; 0 if the command is `train`."""
    tables = summaries[0].tables
    if command == "train":
        return 0
    if tables is None or tables > MAX_TABLES:
        raise PeerMisbehavedError(
            job.party_names[0], "stated no number of tables that there can be"
        )
    return tables


def merge_constraints(job: Job, summaries: Sequence[DataSummary]) -> MonotoneConstraints | None:
    """Return the constraints that the dealer is sent; all members compare digests of them later."""
    if not job.monotone:
        return None
    constraints: list[int] = []
    for name, summary in zip(job.party_names, summaries, strict=True):
        signs = [0] * summary.n_features if summary.monotone is None else summary.monotone
        if len(signs) != summary.n_features:
            raise PeerMisbehavedError(
                name, f"stated {len(signs)} constraints of {summary.n_features} features"
            )
        constraints += signs
    return tuple(constraints)


def find_common_checkpoint(summaries: Sequence[DataSummary]) -> CheckpointKey:
    """Return the latest checkpoint that all participants have."""
    common = set.intersection(*(set(summary.stages) for summary in summaries))
    return max(common, default=(0, ""))


EXPLANATIONS_DISABLED_TEXT = "wants explanations, which the job does not have"
"""Error text about a recipient that requests explanations without `explain` in the job."""
SessionCommand = Literal["align", "train", "predict", "serve", "export"]


class Proposal(StrictSchema):
    """What a member proposes to do in a session."""

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
        """Return the proposal of a member with this job and this version of Privet."""
        return cls(
            version=__version__,
            terms=job.list_agreed_settings(),
            nonce=secrets.token_hex(32),
            **values,
        )


@dataclass(frozen=True)
class SessionPlan:
    """The command that all members agree on, with their proposals."""

    command: SessionCommand
    run: str
    """Id of this run, new every time."""
    proposals: dict[str, Proposal]
    """Proposal of each participant."""


@dataclass(frozen=True)
class Agreement:
    """The result of the comparison, the same at all members."""

    command: SessionCommand
    run: str
    """Id of this run."""
    n_samples: int
    features: tuple[Feature, ...]
    """Features of all participants; the dealer knows their number, not their names."""
    cut_counts: tuple[int, ...] | None
    """Cut count of each feature, if the job discloses cut counts."""
    monotone: MonotoneConstraints | None
    """Constraint of each feature, at the dealer; None at participants, which know them by name."""
    resume_from: CheckpointKey
    """Latest checkpoint that all participants have; (0, "") if there is none."""
    is_finished: bool
    """Whether training has finished at this checkpoint."""
    n_model_tables: int
    """Number of tables of the model to predict with."""
    randomness_ids: dict[str, str | None]
    """Id of the preprocessing run of each participant's file; None with an online dealer."""
    explain: bool = False
    """Whether the recipient wants predictions explained."""


def exchange_proposals(channel: Channel, job: Job, proposal: Proposal) -> SessionPlan:
    """Exchange proposals with all members; raise DisagreementError, naming what differs."""
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
    proposals = {peer: parse_message(Proposal, peer, content) for peer, content in received.items()}
    proposals[channel.name] = proposal
    names = [name for name in (*job.party_names, *job.dealer_names) if name in proposals]
    keys = dict.fromkeys(key for name in names for key in proposals[name].terms)
    comparison = {k: {name: proposals[name].terms.get(k) for name in names} for k in keys}
    for key in ("command", "model"):
        comparison[key] = {name: getattr(proposals[name], key) for name in job.party_names}
    require_equal(channel, comparison)
    command = proposals[job.party_names[0]].command
    if command is None:
        raise PeerMisbehavedError(job.party_names[0], "stated nothing to do")
    nonces = "".join(proposals[name].nonce for name in names)
    run = hashlib.sha256(bytes.fromhex(nonces)).hexdigest()
    return SessionPlan(command, run, {name: proposals[name] for name in job.party_names})


def exchange_summaries(
    channel: Channel, job: Job, plan: SessionPlan, summary: DataSummary
) -> Agreement:
    """Exchange data summaries with all members; raise DisagreementError if they do not match."""
    channel.current_step = lambda: "agreement"
    dealer_summary = summary.model_copy(
        update={
            "features": None,
            "monotone": get_local_constraints(job, channel.name, summary.features),
        }
    )
    received = exchange_messages(
        channel,
        {
            peer: (dealer_summary if peer in job.dealer_names else summary)
            .model_dump_json()
            .encode()
            for peer in channel.peers
        },
    )
    summaries = {
        peer: parse_message(DataSummary, peer, content) for peer, content in received.items()
    }
    summaries[channel.name] = summary
    party_summaries = [summaries[name] for name in job.party_names]
    require_equal(channel, _make_comparison_table(job, party_summaries))
    if party_summaries[0].samples is None:
        raise PeerMisbehavedError(job.party_names[0], "stated no number of samples")
    resume_from = find_common_checkpoint(party_summaries)
    agreement = Agreement(
        command=plan.command,
        run=plan.run,
        n_samples=party_summaries[0].samples,
        features=merge_features(job, party_summaries),
        cut_counts=merge_cut_counts(job, party_summaries) if plan.command == "train" else None,
        monotone=(
            merge_constraints(job, party_summaries) if channel.name in job.dealer_names else None
        ),
        resume_from=resume_from,
        is_finished=is_training_finished(job, resume_from, party_summaries),
        n_model_tables=get_model_tables(job, plan.command, party_summaries),
        randomness_ids={name: proposal.dealing for name, proposal in plan.proposals.items()},
        explain=_is_explanation_agreed(job, plan),
    )
    try:
        training_spec = None
        if agreement.command == "train":
            check_constrained_features(job, agreement.features, agreement.monotone)
            training_spec = job.make_training_spec(
                agreement.features, agreement.cut_counts, agreement.monotone
            )
        require_same_constants(channel, digest_public_constants(training_spec, agreement.n_samples))
    except InputError:
        # All members find now that training is not possible, so each closes with a goodbye.
        channel.close_best_effort()
        raise
    return agreement


def _is_explanation_agreed(job: Job, plan: SessionPlan) -> bool:
    """Return whether the recipient wants predictions explained; raise if the job forbids it."""
    recipient = job.party_names[job.recipient_index]
    if plan.proposals[recipient].explain and job.explain is None:
        raise PeerMisbehavedError(recipient, EXPLANATIONS_DISABLED_TEXT)
    return plan.proposals[recipient].explain


def _parse_version(peer: str, content: bytes) -> str:
    """Return the version in a proposal, even if another version writes its other fields."""
    try:
        found = json.loads(content)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PeerMisbehavedError(peer, "stated something that is no statement") from None
    return quote_untrusted(found)


def _make_comparison_table(job: Job, summaries: Sequence[DataSummary]) -> dict[str, dict[str, Any]]:
    """Return the values that must be the same, by key and participant."""
    summary_by_name = dict(zip(job.party_names, summaries, strict=True))
    table: dict[str, dict[str, Any]] = {
        key: {name: getattr(summary, key) for name, summary in summary_by_name.items()}
        for key in ("samples", "tables")
    }
    checkpoints = {name: summary.stages for name, summary in summary_by_name.items()}
    most_tables = max((done for keys in checkpoints.values() for done, _ in keys), default=0)
    if most_tables > 1 and not set.intersection(*(set(keys) for keys in checkpoints.values())):
        # A participant that failed in the first table leaves the others with one that it lacks: one
        # table is soon trained again. More tables must not be discarded without a user's decision.
        table["tables done"] = {
            name: ", ".join(f"{done} in run {run[:8]}" for done, run in keys) or "none"
            for name, keys in checkpoints.items()
        }
    return table
