"""`privet join`: our own side of a job that we were sent, and the others' sides in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.init import say, tell_next, tell_own, tell_taken_in, tell_terms, typed
from privet.cli.options import Categorical, Decimal, Drop, Encoding, Missing, Types, table_of
from privet.cli.prompts import (
    Address,
    DealerAddress,
    Folder,
    Id,
    Label,
    Name,
    Questions,
    TableFile,
    TableQuestions,
    ask_address,
    ask_played,
    one_of,
    refuse_described,
)
from privet.config.draft import (
    JOB_FILE,
    PARTY_FILE,
    KeyFiles,
    OpenJob,
    OwnSeat,
    key_files,
    party_text,
    take_seats,
)
from privet.config.job import Job
from privet.config.members import is_open, listed
from privet.config.party import PartyFile
from privet.config.table import DataDescription
from privet.data.encoding import settle_label
from privet.data.sources.base import naming
from privet.errors import DisagreementError, ParameterError
from privet.transport.tls import load_identity


def join(
    job: Annotated[Path, typer.Argument(help="The job, as somebody sent it to you.")],
    name: Name = None,
    address: Address = None,
    dealer_address: DealerAddress = None,
    table: TableFile = None,
    id_: Id = None,
    label: Label = None,
    drop: Drop = None,
    categorical: Categorical = None,
    types: Types = None,
    missing: Missing = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Take in the seat of somebody who has filled it in anew. May be repeated.",
        ),
    ] = None,
    folder: Folder = None,
) -> None:
    """Take part in a job that you were sent: fill in your side, and take in those of others.

    Run it with every copy of the job that you are sent: the seats in it go into your own copy,
    job.toml, once the rest is known to be the same.
    """
    questions = Questions()
    place = folder or Path()
    sent = OpenJob.read(job)
    own = PartyFile.load(place / PARTY_FILE) if (place / PARTY_FILE).exists() else None
    ours, joined = _take_in(place, sent, replace or [])
    us = _who(questions, joined, own, name, place)
    keys = key_files(us, place) if own is None else (Path(own.key), Path(own.certificate))
    taken = _elsewhere(joined, us)
    agreed = joined.as_if_filled()
    if is_open(joined.seats[us]):
        tell_terms(agreed)
    has_columns = us not in agreed.dealer_names
    if own is not None:
        refuse_described(own, name, table=table, id=id_, label=label)
    needed = {"--address": address} if is_open(joined.seats[us]) else {}
    questions.require({**needed, "--table": own or table} if has_columns else needed)
    seats = [_own_seat(questions, joined, us, keys, address, taken)]
    played = next((dealer for dealer, by in agreed.played_by.items() if by == us), None)
    if played is not None:
        keys = key_files(played, place)
        if own is not None and own.dealer is not None:
            keys = Path(own.dealer.key), Path(own.dealer.certificate)
        if is_open(joined.seats[played]):
            dealer_address = ask_played(questions, dealer_address, played, seats[0].address, taken)
        seats.append(_own_seat(questions, joined, played, keys, dealer_address, taken))
    party = None
    if has_columns and own is None:
        known = table_of(
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            encoding=encoding,
            decimal=decimal,
        )
        asked = TableQuestions(questions, table, known)
        party = party_text(us, _described(asked, agreed, us, id_, label), place, played)
    filled, new = take_seats(joined, seats, place, party)
    tell_taken_in(ours, filled, us)
    changed = [seat for seat in seats if ours.seats[seat.name] != filled.seats[seat.name]]
    send = "when one of them sends you its job.toml, run `privet join` with it"
    if changed:
        tell_own(filled, changed, new)
        send = (
            f"send {typed(place / JOB_FILE)} back to whom you have it from; or on to "
            f"{listed(filled.waited_for)}, if that is agreed on"
        )
    whole = not sent.waited_for and not changed
    tell_next(filled, [seat.name for seat in seats], place, send=send, whole=whole)


def _described(
    asked: TableQuestions, job: Job, us: str, id_: str | None, label: str | None
) -> DataDescription:
    """Return our table, described as the job needs it: with its label, if that is ours."""
    ids = asked.id(id_, len(job.ids.parts))
    if job.role(us) != "active":
        if label is not None:
            raise ParameterError(f"label: the job has {job.names[job.active]} hold the label")
        return asked.read(id=ids)[0]
    data, frame = asked.read(id=ids, label=asked.label(label, ours=True))
    with naming(data.where):
        settle_label(frame, job.task, agreed=job.classes)
    return data


def _take_in(place: Path, sent: OpenJob, replace: list[str]) -> tuple[OpenJob, OpenJob]:
    """Return our own copy, and the same with the seats that are filled in in another."""
    path = place / JOB_FILE
    for name in replace:
        one_of("replace", list(sent.seats))(name)
    if not path.exists():
        return sent, sent
    ours = OpenJob.read(path)
    return ours, ours.joined(sent, replace)


def _who(
    questions: Questions, job: OpenJob, own: PartyFile | None, name: str | None, place: Path
) -> str:
    """Return who we are: as party.toml says, or our keys; or else it is asked."""
    check = one_of("name", list(job.seats))
    known = name if own is None else own.name
    if known is not None:
        try:
            return check(known)
        except ParameterError:
            raise ParameterError(
                f"name: nobody called {known!r} takes part in {job.where}; there are "
                f"{listed(list(job.seats))}. Choose the name that whoever sent the job gave you, "
                "or have them write you into it"
            ) from None
    players = job.as_if_filled().played_by
    with_keys = [
        each for each in job.seats if key_files(each, place)[0].exists() and each not in players
    ]
    if len(with_keys) == 1:
        return with_keys[0]
    waited_for = job.waited_for
    if not questions.can_ask or not waited_for:
        raise ParameterError(
            f"name: say who you are with --name: {listed(list(job.seats))}; or with --folder where "
            "your files are"
        )
    default = waited_for[0] if len(waited_for) == 1 else None
    return questions.answer(None, f"Who are you: {listed(waited_for)}", check, default)


def _elsewhere(job: OpenJob, us: str) -> list[str]:
    """Return the addresses of everybody else."""
    players = job.as_if_filled().played_by
    return [
        str(seat["address"])
        for name, seat in job.seats.items()
        if not is_open(seat) and us not in (name, players.get(name))
    ]


def _own_seat(
    questions: Questions,
    job: OpenJob,
    name: str,
    keys: KeyFiles,
    address: str | None,
    taken: Sequence[str],
) -> OwnSeat:
    """Return our seat: to be filled in; or filled in by us, which our keys show."""
    seat = job.seats[name]
    if is_open(seat):
        return OwnSeat(name, ask_address(questions, address, taken), keys)
    if not keys[0].exists():
        raise DisagreementError(
            f"the seat of {name} in {job.where} is filled in, with the fingerprint "
            f"{seat['fingerprint']}, and its key is not here ({keys[0]}): if that is you, say "
            "where your files are with --folder; if it is not, say who you are with --name"
        )
    fingerprint = load_identity(*keys).fingerprint
    if fingerprint != seat["fingerprint"]:
        raise DisagreementError(
            f"the seat of {name} in {job.where} is filled in with another key: "
            f"{seat['fingerprint']}, and yours is {fingerprint}. Somebody else has done that: ask "
            "whoever sent you the job"
        )
    if address is None or address == seat["address"]:
        return OwnSeat(name, str(seat["address"]), keys)
    say(f"your address was {seat['address']}; the others take the new one with --replace {name}")
    return OwnSeat(name, ask_address(questions, address, taken), keys)
