"""Whose workers have which rows: a participant's read their own, a dealer's have none."""

from __future__ import annotations

import contextlib

from privet.arrays import IndexArray
from privet.boosting.federation import PartyData, unit_of
from privet.boosting.learned import Learned, SameIds, prepare_rows
from privet.boosting.shards import rows_of_shard
from privet.data.description import DataDescription
from privet.federation.agreement import Agreement
from privet.federation.brief import Brief, Place, unit_fields
from privet.federation.crew import Crew, gathered
from privet.federation.engines import engine_of
from privet.federation.own import Own, Table
from privet.federation.session import Seat
from privet.files.cluster import Cluster
from privet.files.job import Job
from privet.files.learned_record import LearnedRecord
from privet.terms.plan import Plan
from privet.terms.validation import rows_in_order
from privet.transport.channel import Channel


def crew_of_participant(
    seat: Seat,
    channel: Channel,
    agreement: Agreement,
    own: Own,
    table: Table,
    common: IndexArray | None,
    plan: Plan,
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant, whose rows are all of its table, or those in common."""
    shards, cluster = plan.cut(), table.party.cluster
    federation = seat.job.federation(agreement.features, agreement.cut_counts)
    unit = unit_of(federation, plan, own.data, own.state(agreement.stage))
    in_order = rows_in_order(plan.n_rows, plan.params)
    in_table = in_order if common is None else common[in_order]
    learned = LearnedRecord.of(Learned.of(own.prepared)).model_dump(mode="json")
    described = table.party.data.model_dump(mode="json")

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

    engine = engine_of(cluster, here, read_rows)
    return gathered(seat, channel, agreement.run, cluster, engine, brief, rows)


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


def crew_of_dealer(
    seat: Seat, channel: Channel, agreement: Agreement, cluster: Cluster
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a dealer, who know what it knows: no names, and no data."""

    def brief(shard: int, group: dict[str, Place], session: str) -> Brief:
        return Brief.of(seat.job, agreement, seat.name, group=group, session=session)

    engine = engine_of(cluster, no_rows, no_rows)
    return gathered(seat, channel, agreement.run, cluster, engine, brief, lambda _: None)


def no_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Load nothing: a dealer's workers have no rows."""
    raise AssertionError(f"{brief.name} has no rows")
