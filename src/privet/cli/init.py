"""`privet init`: the first files of a federation, and the next steps for its participants."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privet.cli.options import (
    Categorical,
    Decimal,
    Drop,
    Encoding,
    Missing,
    Types,
    any_of,
    table_of,
)
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
    comma_separated,
    one_of,
    refuse_described,
)
from privet.config.draft import (
    JOB_FILE,
    PARTY_FILE,
    OpenJob,
    OwnSeat,
    check_dealers,
    key_files,
    party_text,
    take_seats,
)
from privet.config.job import Job
from privet.config.members import is_open, listed, read_out
from privet.config.party import PartyFile
from privet.config.table import likely_label
from privet.data.encoding import settle_label, task_of
from privet.data.frame import Frame
from privet.data.reader import read_table
from privet.errors import ParameterError, UnavailableError
from privet.objectives.regression import OBJECTIVES
from privet.schema import check_name
from privet.spec.params import Params


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


_SHOWN_PARAMS = ("tables", "depth", "learning_rate")


def init(
    folder: Folder = None,
    name: Name = None,
    address: Address = None,
    others: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="The other participants, who have columns, too.",
            show_default=False,
        ),
    ] = None,
    dealers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME,NAME]",
            help="Who deals: one or three from outside, or three of the participants.",
            show_default="dealer",
        ),
    ] = None,
    dealer_address: DealerAddress = None,
    table: TableFile = None,
    id_: Id = None,
    label: Label = None,
    active: Annotated[
        str | None, typer.Option(help="Who has the label.", show_default="you")
    ] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    types: Types = None,
    missing: Missing = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    task: Annotated[
        str | None,
        typer.Option(
            help=f"What is learned: {', '.join(OBJECTIVES)}.",
            show_default="by the label",
            autocompletion=any_of(OBJECTIVES),
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="How many the label has.", show_default="those of the label, or 2"),
    ] = None,
    recipient: Annotated[
        str | None, typer.Option(help="Who gets predictions.", show_default="who has the label")
    ] = None,
    job_name: Annotated[
        str | None, typer.Option(help="What the model is called.", show_default="as the label")
    ] = None,
    same_rows: Annotated[
        bool | None,
        typer.Option(
            "--same-rows/--align",
            help="All have the same rows in the same order; or find those that all have.",
            show_default="--align",
        ),
    ] = None,
    tables: Annotated[int | None, typer.Option(help="How many decision tables.")] = None,
    depth: Annotated[int | None, typer.Option(help="How many tests in a table.")] = None,
) -> None:
    """Begin a federation: ask five questions, write keys, party.toml and a job to send round.

    What is not given is asked for. The others fill in their side with `privet join`.
    """
    questions = Questions()
    place = questions.answer(
        None if folder is None else str(folder),
        "1. Folder for your keys, party.toml and job.toml",
        _free_place,
        ".",
    )
    own = PartyFile.load(place / PARTY_FILE) if (place / PARTY_FILE).exists() else None
    if own is not None:
        refuse_described(own, name, table=table, id=id_, label=label)
        name = own.name
    needed = {"--name": name, "--address": address, "--others": others, "--table": own or table}
    questions.require(needed)
    questions.show("2. Who takes part?")
    us = questions.answer(name, "Your name, as the others will see it", _name)
    address = ask_address(questions, address, ())
    everybody, dealing = _ask_others(questions, us, others, dealers)
    keys = key_files(us, place) if own is None else (Path(own.key), Path(own.certificate))
    seats = [OwnSeat(us, address, keys)]
    played = next((dealer for dealer, player in dealing.items() if player == us), None)
    if played is not None:
        given = ask_played(questions, dealer_address, played, address, ())
        seats.append(OwnSeat(played, given, key_files(played, place)))
    questions.show("3. Your table")
    if own is None:
        known = table_of(
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            encoding=encoding,
            decimal=decimal,
        )
        asked = TableQuestions(questions, table, known)
        ids = asked.id(id_)
        found = None if active not in (None, us) else asked.label(label, ours=active == us)
        data, frame = asked.read(id=ids, label=found)
    else:
        data, frame = own.data, read_table(own.data)
    questions.show("4. What is predicted?")
    holder = us
    if data.label is None:
        holder = questions.answer(active, "Who has the label", one_of("active", everybody[1:]))
    terms = {
        "name": questions.answer(job_name, "A name for the model", _name, _model_name(data.label)),
        **_ask_task(questions, task, classes, frame),
        "recipient": questions.answer(
            recipient, "Who gets predictions", one_of("recipient", everybody), holder
        ),
        "align": _ask_align(questions, same_rows, played=any(dealing.values())),
    }
    params = Params.parse({"task": terms["task"]}).model_dump(include=set(_SHOWN_PARAMS))
    chosen = {"tables": tables, "depth": depth}
    params |= {key: value for key, value in chosen.items() if value is not None}
    job = OpenJob.begin(terms, params, everybody, holder, dealing)
    party = None if own is not None else party_text(us, data, place, played)
    job, new = take_seats(job, seats, place, party)
    tell_own(job, seats, new)
    path = typed(place / JOB_FILE)
    where = "" if place == Path() else f" --folder {typed(place)}"
    tell_next(
        job,
        [seat.name for seat in seats],
        place,
        whole=False,
        send=f"see whether {path} says what you want, its params for instance.\n"
        f"Send it to {listed(job.waited_for)}. Each runs `privet join job.toml` and sends its "
        f"own job.toml back.\nTake each of them in: privet join THE_FILE{where}",
    )


def _free_place(text: str) -> Path:
    """Return a folder in which there is no job yet."""
    place = Path(text).expanduser()
    if (place / JOB_FILE).exists():
        raise UnavailableError(
            f"{place / JOB_FILE}: is there already, and is not overwritten: choose another folder, "
            "or take part in that job with `privet join`"
        )
    if place.exists() and not place.is_dir():
        raise UnavailableError(f"{place}: is no folder; choose another name")
    return place


def _name(text: str) -> str:
    check_name(text)
    return text


def _model_name(label: str | None) -> str:
    """Return a name for a model after its label, if that has one of its own."""
    if label is None or likely_label([label]) is not None:
        return "model"
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("_.-")[:64] or "model"


def _ask_others(
    questions: Questions, us: str, others: str | None, dealers: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return all participants, us first, and the dealers with who plays each."""

    def participants(text: str) -> list[str]:
        found = [us, *comma_separated(text)]
        for name in found:
            check_name(name)
            if found.count(name) > 1:
                raise ParameterError(f"others: {name} is taken; everybody has a name of its own")
        if len(found) < 2:
            raise ParameterError("others: there must be one other participant at least")
        return found

    def dealing(text: str) -> dict[str, str]:
        names = comma_separated(text)
        players = {f"{name}-dealer" if name in everybody else name: name for name in names}
        found = {name: by if by in everybody else "" for name, by in players.items()}
        check_dealers(found, everybody)
        return found

    everybody = questions.answer(others, "The other participants, with commas", participants)
    asked = "Who deals: one or three from outside, or three of the participants"
    return everybody, questions.answer(dealers, asked, dealing, "dealer")


def _ask_task(
    questions: Questions, task: str | None, classes: int | None, frame: Frame
) -> dict[str, Any]:
    """Return what is learned, as far as the label does not say it by itself."""

    def check(text: str) -> dict[str, Any]:
        one_of("task", list(OBJECTIVES))(text)
        found = 2 if classes is None else classes
        if frame.label is not None:
            found = len(settle_label(frame, text, agreed=classes)[1])
        return {"task": text, **({"classes": found} if found > 2 else {})}

    if frame.label is None:
        questions.require({"--task": task})
    default = None if frame.label is None else task_of(frame)
    return questions.answer(task, f"What is learned: {' or '.join(OBJECTIVES)}", check, default)


def _ask_align(questions: Questions, same_rows: bool | None, *, played: bool) -> bool:
    """Return whether rows are aligned, which dealers that participants play cannot help with."""

    def check(text: str) -> bool:
        return one_of("same_rows", ["yes", "no"])(text.lower()) == "no"

    if same_rows is not None or played:
        return same_rows is False
    questions.show("5. Whose rows?")
    return questions.answer(
        None, "Do all have the same rows, in the same order (yes or no)", check, "no"
    )
