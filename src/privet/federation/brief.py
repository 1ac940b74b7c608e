"""What a head tells a worker once it is there: whose group it is in, and what is trained on what.

Of data it says where they are and how their owner reads them, never what they hold, but for
thresholds and names of categories: these are the participant's own, and the worker is, too.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from privet.arrays import IndexArray
from privet.boosting.federation import Federation
from privet.boosting.inference import Query
from privet.boosting.model import Feature
from privet.boosting.part import LabelUnit
from privet.config import Checked
from privet.errors import PeerMisbehavedError
from privet.federation.agreement import Agreement
from privet.files.job import Job
from privet.terms.plan import Plan
from privet.terms.shards import cut_rows
from privet.transport.channel import Channel, Expected
from privet.transport.mesh import Member


def _number(text: str) -> str:
    """Refuse what is no finite number in hexadecimal."""
    try:
        good = math.isfinite(float.fromhex(text))
    except OverflowError:
        good = False
    if not good:
        raise ValueError("no number of floating point")
    return text


_Number = Annotated[str, AfterValidator(_number)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class Place(Checked):
    """Where a worker listens, and who it must prove to be."""

    host: str
    port: int
    fingerprint: str = ""


class Brief(Checked):
    """What one worker is told."""

    job: dict[str, Any]
    name: str
    """Whose worker it is: a participant's, or a dealer's."""
    group: dict[str, Place]
    """The workers of the same shard, by whose they are, in the order of the job."""
    session: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    samples: _Count
    features: list[tuple[str, str]]
    """Names and owners; a dealer's worker knows no names."""
    cut_counts: list[Annotated[int, Field(ge=0, le=255)]] | None
    monotone: list[Annotated[int, Field(ge=-1, le=1)]] | None
    tables: _Count
    """How many are trained already."""
    run: str
    """In which run they were, or this run's name."""
    this_run: str
    folder: str = ""
    """Where checkpoints are kept."""
    data: str = ""
    """The digest of the participant's whole data."""
    start: list[_Number] = Field(default_factory=list)
    scale: _Number | Literal[""] = ""
    """The label's unit, at its holder: floating-point numbers in hexadecimal, so that none is
    rounded."""
    learned: dict[str, Any] = Field(default_factory=dict)
    """What a participant has learned of its whole table, for a worker that reads its own rows."""
    described: dict[str, Any] = Field(default_factory=dict)
    """How the participant describes its table."""
    ids: str = ""
    """The digest of the ids of the worker's rows."""
    command: Literal["train", "predict", "serve"] = "train"
    model: str = ""
    """Where the participant's part of a model is that is to predict."""
    model_tables: _Count = 0
    """How many tables that has."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse features of strangers, and more or less told of features than there are."""
        job = Job.parse(self.job)
        if self.name not in (*job.names, *job.dealer_names):
            raise ValueError(f"name: {self.name!r} has no part in the job")
        if any(owner not in job.names for _, owner in self.features):
            raise ValueError("features: one is of nobody in the job")
        for told in (self.cut_counts, self.monotone):
            if told is not None and len(told) != len(self.features):
                raise ValueError(f"features: there are {len(self.features)}, {len(told)} are told")
        return self

    @classmethod
    def of(cls, job: Job, agreement: Agreement, name: str, **values: Any) -> Brief:
        """Return what is the same for all workers of somebody."""
        tables, run = agreement.stage
        counts, signs = agreement.cut_counts, agreement.monotone
        return cls(
            job=job.model_dump(mode="json"),
            name=name,
            samples=agreement.samples,
            features=[(feature.name, feature.owner) for feature in agreement.features],
            cut_counts=None if counts is None else list(counts),
            monotone=None if signs is None else list(signs),
            tables=tables,
            run=run,
            this_run=agreement.run,
            model_tables=agreement.tables,
            **values,
        )

    def unit(self) -> LabelUnit | None:
        """Return the label's unit; None, to all but its holder."""
        if not self.scale:
            return None
        start = tuple(float.fromhex(number) for number in self.start)
        return LabelUnit(start, float.fromhex(self.scale))

    def members(self) -> list[Member]:
        """Return the group, as connecting takes it."""
        return [Member(n, p.host, p.port, p.fingerprint) for n, p in self.group.items()]

    def training(self) -> tuple[Federation, Plan]:
        """Return what is trained."""
        features = tuple(Feature(name, owner) for name, owner in self.features)
        counts = None if self.cut_counts is None else tuple(self.cut_counts)
        signs = None if self.monotone is None else tuple(self.monotone)
        federation = Job.parse(self.job).federation(features, counts, signs)
        return federation, federation.plan(self.samples)

    def query(self, shard: int) -> Query:
        """Return what is predicted of the rows of a shard."""
        job = Job.parse(self.job)
        rows = cut_rows(self.samples, 0, job.shards)[shard].n_rows
        return job.query(rows, self.model_tables)


def unit_fields(unit: LabelUnit | None) -> dict[str, Any]:
    """Return the fields of a brief that hold a label's unit."""
    if unit is None:
        return {}
    return {"start": [float(x).hex() for x in unit.start], "scale": float(unit.scale).hex()}


def send_rows(channel: Channel, worker: str, rows: IndexArray | None) -> None:
    """Tell a worker which rows of the table are its own, if it is to read them."""
    numbers = np.empty(0, dtype=np.uint64) if rows is None else rows.astype(np.uint64)
    channel.send(worker, np.array([len(numbers)], dtype=np.uint64))
    channel.send(worker, numbers)


def receive_rows(channel: Channel, head: str, most: int) -> IndexArray:
    """Return which rows of the table are ours: at most so many."""
    (count,) = channel.receive(head, Expected(np.dtype(np.uint64), (1,)))
    if count > most:
        raise PeerMisbehavedError(head, f"announced {count} rows of {most}")
    rows = channel.receive(head, Expected(np.dtype(np.uint64), (int(count),)))
    return rows.astype(np.intp)
