"""What somebody who takes part in a job does next, and with whom."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from privet.files.job import Job
from privet.files.open_job import OpenJob
from privet.files.own_files import JOB_FILE, PARTY_FILE, OwnSeat
from privet.files.seats import is_open, listed, read_out


def say(text: str) -> None:
    """Say something to the person, and not to a program that reads what we print."""
    typer.echo(text, err=True)


def tell_terms(job: Job) -> None:
    """Say what somebody agrees to who joins a job."""
    params = job.hyper_parameters()
    rows = "those that all have" if job.align else "the same at all, in the same order"
    say(
        f"The job {job.name}: {job.task}, {params.tables} tables of {params.depth} tests each.\n"
        f"  {job.names[job.active]} has the label, {job.names[job.recipient_index]} gets "
        f"predictions, {listed(job.dealer_names)} deal{'s' * (len(job.dealer_names) == 1)}. The "
        f"rows: {rows}."
    )
    more = {**job.reveals(), "export": job.export, "keep_indicators": job.keep_indicators}
    said = [f"{key} = {value}" for key, value in more.items() if value]
    if said:
        say(f"  It also says: {', '.join(said)}.")


def tell_own(job: OpenJob, seats: Sequence[OwnSeat], new: Sequence[Path]) -> None:
    """Say what was written, and print our fingerprints, which a program may want to read."""
    kept = [seat.keys[0] for seat in seats if seat.keys[0] not in new]
    if kept:
        say(f"used, since there were keys: {_listed(kept)}")
    say(f"written: {_listed(new)}" if new else "written: your seat in the job")
    for seat in seats:
        say(f"The fingerprint of {seat.name}, to read out on the phone to the others:")
        typer.echo(job.seats[seat.name]["fingerprint"])


def tell_taken_in(before: OpenJob, after: OpenJob, us: str) -> None:
    """Show the seats of others that we did not know: all of them, while our own was open."""
    known = {} if is_open(before.seats[us]) else before.seats
    players = after.as_if_filled().played_by
    unknown = {
        name: seat
        for name, seat in after.seats.items()
        if not is_open(seat) and us not in (name, players.get(name)) and known.get(name) != seat
    }
    for name, seat in unknown.items():
        say(f"taken in: {name} at {seat['address']}, fingerprint\n  {seat['fingerprint']}")
    if unknown:
        say("Compare on the phone: fingerprints now, or the digest of the whole job at the end.")


def tell_next(job: OpenJob, us: Sequence[str], folder: Path, *, send: str, whole: bool) -> None:
    """Say how the job gets whole; or, where it is, how all see that they have the same, and begin.

    `us` is our name, and that of a dealer that we play; `send` says where a job with open seats
    goes, and `whole` that there are none in what we were sent.
    """
    path = typed(folder / JOB_FILE)
    if job.waited_for:
        several = "s" * (len(job.waited_for) > 1)
        say(f"Not filled in yet: the seat{several} of {listed(job.waited_for)}.")
        say(f"What next: {send}")
        return
    agreed = job.whole()
    others = [name for name in job.people(job.seats) if name not in us]
    say("All seats are filled in. Everybody must see this digest of the job; read it out:")
    say(f"  {read_out(agreed.terms())}")
    if whole:
        say("What next, once all see it:")
    else:
        say(f"What next: send {path} to {listed(others)}, who run `privet join` with it.")
        say("Then, once all see the same digest:")
    for command in _commands(us[0], folder, dealers=agreed.dealer_names):
        say(f"  {command}")


def _commands(name: str, folder: Path, *, dealers: Sequence[str]) -> list[str]:
    job = typed(folder / JOB_FILE)
    if name not in dealers:
        party = typed(folder / PARTY_FILE)
        return [f"privet {verb} --job {job} --party {party}" for verb in ("check", "train")]
    options = f"--job {job}" + (f" --name {name}" if len(dealers) > 1 else "")
    if folder.resolve() != Path().resolve():
        key, certificate = (typed(folder / f"{name}.{end}") for end in ("key", "crt"))
        options += f" --key {key} --certificate {certificate}"
    return [f"privet check --dealer {options}", f"privet dealer {options}"]


def typed(path: Path) -> str:
    """Return a path as somebody types it."""
    return shlex.quote(str(path))


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)
