"""What participants bring along to a training or prediction, and what follows from all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from privet.boosting.model import Feature
from privet.config import Checked, printable
from privet.errors import DataError, PeerMisbehavedError
from privet.files.checkpoint import Stage
from privet.files.job import Job
from privet.files.records import Name
from privet.terms.cuts import check_told
from privet.terms.monotone import Monotone
from privet.terms.params import MOST_TABLES


class Holding(Checked):
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


def all_features(job: Job, participants: Sequence[Holding]) -> tuple[Feature, ...]:
    """Return the features of all, by number where we are not told their names."""
    features = []
    for name, holding in zip(job.names, participants, strict=True):
        names = holding.features
        if names is None:  # so it is to the dealer
            names = [str(number) for number in range(holding.n_features)]
        elif len(names) != holding.n_features or not all(printable(f) for f in names):
            raise PeerMisbehavedError(name, "stated features that are not all named")
        features += [Feature(feature, name) for feature in names]
    return tuple(features)


def told_counts(job: Job, participants: Sequence[Holding]) -> tuple[int, ...] | None:
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


def has_ended(job: Job, stage: Stage, participants: Sequence[Holding]) -> bool:
    """Tell whether a training has ended at a stage: as somebody knows, or as all can see.

    What explains scores is derived when all tables are there, and in no checkpoint: then all must
    have their parts.
    """
    ended = [each.ended and stage in each.stages for each in participants]
    if job.explain is not None:
        return all(ended)
    if any(ended):
        return True
    params = job.hyper_parameters()
    return stage[0] == params.tables and params.patience is None and not job.reveal_validation


def tables_of(job: Job, command: str, participants: Sequence[Holding]) -> int:
    """Return how many tables the model has that all have parts of."""
    tables = participants[0].tables
    if command == "train":
        return 0
    if tables is None or tables > MOST_TABLES:
        raise PeerMisbehavedError(job.names[0], "stated no number of tables that there can be")
    return tables


def told_constraints(job: Job, participants: Sequence[Holding]) -> Monotone | None:
    """Return what the dealer is told of constraints; all compare digests of them later."""
    if not job.monotone:
        return None
    told: list[int] = []
    for name, holding in zip(job.names, participants, strict=True):
        signs = [0] * holding.n_features if holding.monotone is None else holding.monotone
        if len(signs) != holding.n_features:
            raise PeerMisbehavedError(
                name, f"stated {len(signs)} constraints of {holding.n_features} features"
            )
        told += signs
    return tuple(told)


def common_stage(participants: Sequence[Holding]) -> Stage:
    """Return the latest stage that all have."""
    common = set.intersection(*(set(holding.stages) for holding in participants))
    return max(common, default=(0, ""))
