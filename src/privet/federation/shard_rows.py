"""Whose workers have which rows: a participant's read their own, a dealer's have none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.arrays import IndexArray
from privet.boosting.federation import PartyData
from privet.boosting.inference import applied
from privet.boosting.learned import Learned, SameIds, prepare_rows, refuse_other_rows
from privet.boosting.part import LabelUnit, ModelPart
from privet.boosting.shards import rows_of_shard
from privet.data.description import DataDescription
from privet.data.encoding import encode
from privet.data.frame import Frame
from privet.data.reader import read_some_rows
from privet.federation.agreement import Agreement
from privet.federation.brief import Brief, Place, unit_fields
from privet.federation.crew import Crew, gathered
from privet.federation.engines import Engine
from privet.federation.own import Own
from privet.federation.session import Seat
from privet.files.cluster import Cluster
from privet.files.job import Job
from privet.files.learned_record import LearnedRecord
from privet.files.part_file import load_part
from privet.files.party_file import PartyFile
from privet.suites.suite import AppliedTests
from privet.terms.plan import Plan
from privet.terms.shards import cut_rows
from privet.terms.validation import rows_in_order
from privet.transport.sockets import SocketChannel


def crew_of_participant(
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    own: Own,
    party: PartyFile,
    common: IndexArray | None,
    plan: Plan,
    unit: LabelUnit | None,
    engine: Engine,
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant, whose rows are all of its table, or those in common."""
    shards, cluster = plan.cut(), party.cluster
    in_order = rows_in_order(plan.n_rows, plan.params)
    in_table = in_order if common is None else common[in_order]
    learned = LearnedRecord.of(Learned.of(own.prepared)).model_dump(mode="json")
    described = party.data.model_dump(mode="json")

    def here(_: Brief, shard: int, __: IndexArray) -> PartyData:
        return rows_of_shard(own.data, plan, shards[shard])

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        ids = own.ids.take(shards[shard].positions(plan.n_samples))
        return Brief.of(
            seat.job,
            agreement,
            seat.name,
            group=group,
            session=session,
            folder=str(own.checkpoints.folder.resolve()),
            data=own.digest,
            learned=learned,
            described=described,
            ids=ids.digest().hex(),
            **unit_fields(unit),
        )

    def rows(shard: int) -> IndexArray:
        return in_table[shards[shard].positions(plan.n_samples)]

    return gathered(seat, channel, agreement.run, cluster, engine, here, brief, rows)


def read_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Read a worker's rows where they are, and prepare them as its head has prepared all."""
    _, plan = brief.training()
    return prepare_rows(
        DataDescription.parse(brief.described),
        LearnedRecord.model_validate(brief.learned).learned(),
        rows,
        plan.cut()[shard].n_validation,
        SameIds(Job.parse(brief.job).ids.rules, bytes.fromhex(brief.ids)),
    )


@dataclass(frozen=True)
class Batch:
    """Where the rows of a batch are, for workers who read their own."""

    described: DataDescription
    model: Path
    """Our part of the model that is to predict."""
    cluster: Cluster


def crew_for_batch(
    seat: Seat,
    channel: SocketChannel,
    agreement: Agreement,
    part: ModelPart,
    frame: Frame,
    common: IndexArray | None,
    batch: Batch,
    engine: Engine,
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant who predict rows: all of a frame, in its order."""
    shards = cut_rows(frame.n_samples, 0, seat.job.shards)

    def here(brief: Brief, shard: int, _: IndexArray) -> AppliedTests:
        columns = frame.columns[:, shards[shard].positions(frame.n_samples)]
        return applied(brief.query(shard), seat.job.names, part, columns)

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        assert frame.ids is not None
        ids = frame.ids.take(shards[shard].positions(frame.n_samples))
        return Brief.of(
            seat.job,
            agreement,
            seat.name,
            command="predict",
            group=group,
            session=session,
            model=str(batch.model.resolve()),
            described=batch.described.model_dump(mode="json"),
            ids=ids.digest().hex(),
        )

    def rows(shard: int) -> IndexArray:
        at = shards[shard].positions(frame.n_samples)
        return at if common is None else common[at]

    return gathered(seat, channel, agreement.run, batch.cluster, engine, here, brief, rows)


def read_batch(brief: Brief, shard: int, rows: IndexArray) -> AppliedTests:
    """Read a worker's rows to predict, and apply its participant's tests to them."""
    job, file = Job.parse(brief.job), load_part(Path(brief.model))
    described = DataDescription.parse(brief.described)
    described = described.model_copy(update={"label": None, "weight": None})
    ordered, place = np.unique(rows, return_inverse=True)
    frame = read_some_rows(described, ordered, file.encoders, None, job.ids.rules).together()
    refuse_other_rows(described.where, frame.ids, place, bytes.fromhex(brief.ids))
    columns = encode(frame, file.encoders).columns[:, place]
    return applied(brief.query(shard), job.names, file.part, columns)


def crew_without_rows(
    seat: Seat, channel: SocketChannel, agreement: Agreement, cluster: Cluster, engine: Engine
) -> contextlib.AbstractContextManager[Crew]:
    """Gather workers who have no rows: a dealer's, and anybody's in a service.

    Those of a dealer know what it knows: no names, and no data.
    """

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        command = agreement.command
        return Brief.of(
            seat.job, agreement, seat.name, group=group, session=session, command=command
        )

    run, rows = agreement.run, lambda _: None
    return gathered(seat, channel, run, cluster, engine, no_rows, brief, rows)


def no_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Load nothing."""
    raise AssertionError(f"{brief.name} has no rows")
