"""What a participant says beside its training: of its table, of the cost, of what is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from privet.boosting.estimate import Estimate
from privet.boosting.federation import PartyData
from privet.errors import PeerError, UnavailableError
from privet.federation.events import Event, Tell
from privet.files.job import Job
from privet.terms.cuts import told_cuts
from privet.terms.plan import Plan


def warn_of(warnings: Iterable[str], tell: Tell, advice: str = "") -> None:
    """Say what may be wrong with our table, or with what is kept, though it does not stop us."""
    for warning in warnings:
        tell(Event("warning", f"warning: {warning}{advice}", {"warning": warning}))


def of_classes(classes: tuple[str, ...]) -> Event:
    """Return how the label's classes are numbered, for its holder."""
    if len(classes) > 2:
        text = f"the label's classes are {', '.join(map(repr, classes))}"
    else:
        text = " and ".join(f"{name!r} is {number}" for number, name in enumerate(classes))
        text = f"of the label, {text} (positive, in party.toml)"
    return Event("classes", text, {"classes": classes})


def told_of(data: PartyData, job: Job, tell: Tell) -> list[int] | None:
    """Return the numbers of cuts that we state, and say so before we do."""
    columns, cuts = data.columns, job.told_cuts
    told = told_cuts(columns.filled_cuts, cuts, job.hyper_parameters().candidates)
    if told is None:
        return None
    by_name = dict(zip(columns.names, told, strict=True))
    text = ", ".join(f"{name} {count}" for name, count in by_name.items()) or "none of ours"
    tell(Event("cuts", f"all are told our numbers of cuts, {cuts}: {text}", {"cuts": by_name}))
    return list(told)


def of_cost(plan: Plan, cost: Estimate) -> Event:
    """Return what is about to be trained, and what that will take."""
    whose = " a worker" if plan.shards > 1 else ""
    return Event(
        "started",
        f"{plan.n_samples:,} samples, {plan.n_features} features: "
        f"{cost.rounds:,} rounds, {cost.online / 1e6:,.0f} MB between the participants, "
        f"{cost.offline / 1e6:,.0f} MB from the dealer, "
        f"about {cost.memory / 1e6:,.0f} MB of memory{whose}, {cost.masks} masks",
        {
            "samples": plan.n_samples,
            "features": plan.n_features,
            "tables": plan.params.tables,
            "rounds": cost.rounds,
            "bytes_online": cost.online,
            "bytes_offline": cost.offline,
            "memory": cost.memory,
            "masks": cost.masks,
        },
    )


@contextlib.contextmanager
def what_is_kept(tables: Callable[[], int], plan: Plan, tell: Tell) -> Iterator[None]:
    """Say how many tables are kept of a training that is cut short, and how it goes on."""
    try:
        yield
    except (PeerError, UnavailableError, OSError, KeyboardInterrupt):
        kept = tables()
        text = "no table is kept yet: start the same commands again"
        if kept:
            are = "is" if kept == 1 else "are"
            text = f"{kept} of {plan.params.tables} tables {are} kept: start the same commands "
            text += "again, without --restart, and they go on from what all have"
        tell(Event("stopped", text, {"tables": kept}))
        raise
