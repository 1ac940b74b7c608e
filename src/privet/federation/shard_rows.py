"""Whose workers have which rows: a participant's read their own, a dealer's have none."""

from __future__ import annotations

import contextlib

import numpy as np

from privet.arrays import IndexArray
from privet.boosting.federation import PartyData, unit_of
from privet.boosting.shards import rows_of_shard
from privet.federation.agreement import Agreement
from privet.federation.brief import Brief, Place, unit_fields
from privet.federation.crew import Crew, gathered
from privet.federation.engines import engine_of
from privet.federation.own import Own, Table
from privet.federation.session import Seat
from privet.files.cluster import Cluster
from privet.terms.plan import Plan
from privet.transport.channel import Channel


def crew_of_participant(
    seat: Seat, channel: Channel, agreement: Agreement, own: Own, table: Table, plan: Plan
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a participant."""
    shards, cluster = plan.cut(), table.party.cluster
    federation = seat.job.federation(agreement.features, agreement.cut_counts)
    unit = unit_of(federation, plan, own.data, own.state(agreement.stage))

    def here(_: Brief, shard: int, __: IndexArray) -> PartyData:
        return rows_of_shard(own.data, plan, shards[shard])

    def brief(group: dict[str, Place], session: str) -> Brief:
        return Brief.of(
            seat.job,
            agreement,
            seat.name,
            group=group,
            session=session,
            folder=str(own.checkpoints.folder.resolve()),
            data=own.digest,
            **unit_fields(unit),
        )

    def rows(shard: int) -> IndexArray:
        return np.empty(0, dtype=np.intp)

    engine = engine_of(cluster, here, here)
    return gathered(seat, channel, agreement.run, cluster, engine, brief, rows)


def crew_of_dealer(
    seat: Seat, channel: Channel, agreement: Agreement, cluster: Cluster
) -> contextlib.AbstractContextManager[Crew]:
    """Gather the workers of a dealer, who know what it knows: no names, and no data."""

    def brief(group: dict[str, Place], session: str) -> Brief:
        return Brief.of(seat.job, agreement, seat.name, group=group, session=session)

    engine = engine_of(cluster, no_rows, no_rows)
    return gathered(seat, channel, agreement.run, cluster, engine, brief, lambda _: None)


def no_rows(brief: Brief, shard: int, rows: IndexArray) -> PartyData:
    """Load nothing: a dealer's workers have no rows."""
    raise AssertionError(f"{brief.name} has no rows")
