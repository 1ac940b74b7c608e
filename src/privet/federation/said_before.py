"""What a participant says of its table before it trains on it: to its people, and to all."""

from __future__ import annotations

from privet.boosting.federation import PartyData
from privet.federation.events import Event, Tell
from privet.files.job import Job
from privet.terms.cuts import told_cuts


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
