"""A training as dealers know it, and run it: without names, data or outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from privet.boosting.federation import Federation, Keeping, train
from privet.boosting.model import Feature
from privet.boosting.validation import validate
from privet.federation.ids import refuse_other_ids
from privet.files.job import Job
from privet.runtime.orders import Head
from privet.runtime.runtime import Runtime
from privet.terms.plan import Plan
from privet.transport.channel import Channel


def numbered_features(job: Job, counts: Sequence[int]) -> tuple[Feature, ...]:
    """Return features as the dealer knows them: whose, and how many."""
    return tuple(
        Feature(str(number), owner)
        for owner, count in zip(job.names, counts, strict=True)
        for number in range(count)
    )


def training_program(
    federation: Federation,
    plan: Plan,
    done: int,
    channel: Channel | None,
    keeping: Keeping | None = None,
    *,
    aligned: bool = False,
    workers: Sequence[Head] = (),
) -> Callable[[Runtime, None], None]:
    """Return a training as the dealer runs it: with the participants' channel, or ahead of them.

    Rows that were aligned are known to be the same, so their ids are not compared.
    """

    def training(runtime: Runtime, _: None) -> None:
        if not aligned:
            refuse_other_ids(runtime, federation.parties, None, channel)
        trained = train(
            runtime, federation, plan, None, done=done, keeping=keeping, workers=workers
        )
        validate(runtime, federation, plan, trained, None, workers)

    return training
