"""A job draft, which circulates until every participant has filled in its entry.

    [[participants]]
    name = "telecom"
    address = ""
    fingerprint = ""

Seats are filled in where they stand: comments, and the order of the rest, stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from privet.config.job import Job
from privet.config.members import DealerContact, Dealers, is_open, seats_of
from privet.config.table import DataDescription
from privet.data.sources.base import is_address
from privet.errors import DisagreementError, ParameterError
from privet.filesystem import all_or_none, make_folder, write_atomically
from privet.schema import parse_toml, quoted, read_toml
from privet.spec.params import DEFAULT_PROTOCOL
from privet.transport.tls import Identity, create_identity, load_identity

_HEAD = """\
# What all agree on. Everybody fills in its own seat with `privet join`, and nobody changes the rest
# alone: before anything is trained, all copies are compared.
"""


@dataclass(frozen=True)
class OpenJob:
    """A job of which some seats may be open, as its file has it."""

    text: str
    where: str = "the job"
    """The file, for complaints."""

    @classmethod
    def read(cls, path: str | Path) -> OpenJob:
        """Read a file; raise ParameterError if it could not become a job by filling in seats."""
        text, _ = read_toml(path)
        found = cls(text, str(path))
        found.as_if_filled()
        return found

    @classmethod
    def begin(
        cls,
        terms: Mapping[str, Any],
        params: Mapping[str, Any],
        participants: Sequence[str],
        active: str,
        dealers: Mapping[str, str],
    ) -> OpenJob:
        """Return a new one, with all seats open.

        Dealers have who plays them beside their names, or nothing.
        """
        lines = [_HEAD, *toml_lines(terms), "", "[params]", *toml_lines(params)]
        seat = {"address": "", "fingerprint": ""}
        for name, player in dealers.items():
            by = {"by": player} if player else {}
            lines += ["", "[[dealers]]", *toml_lines({"name": name, **by, **seat})]
        for name in participants:
            role = {"role": "active"} if name == active else {}
            lines += ["", "[[participants]]", *toml_lines({"name": name, **role, **seat})]
        begun = cls("\n".join(lines) + "\n", "the new job")
        begun.as_if_filled()
        return begun

    @property
    def values(self) -> dict[str, Any]:
        """What the file says."""
        return parse_toml(self.text)

    @property
    def seats(self) -> dict[str, Mapping[str, Any]]:
        """Everybody's seat, by name."""
        return dict(seats_of(self.values))

    @property
    def waited_for(self) -> list[str]:
        """Who has not filled in its seat yet, or that of the dealer that it plays."""
        return self.people([name for name, seat in self.seats.items() if is_open(seat)])

    def people(self, names: Iterable[str]) -> list[str]:
        """Return who is asked about seats: in place of a dealer, the participant that plays it."""
        players = self.as_if_filled().played_by
        return list(dict.fromkeys(players.get(name, name) for name in names))

    def as_if_filled(self) -> Job:
        """Return the job as if all seats were filled in, to see whether the rest is right."""
        values = self.values
        for number, (name, seat) in enumerate(seats_of(values).items(), start=1):
            if is_open(seat):
                seat["address"] = f"open.invalid:{number}"
                seat["fingerprint"] = hashlib.sha256(name.encode()).hexdigest()
        return self._checked(values)

    def whole(self) -> Job:
        """Return the job; raise ParameterError if seats are open."""
        return self._checked(self.values)

    def _checked(self, values: dict[str, Any]) -> Job:
        try:
            return Job.parse(values)
        except ParameterError as error:
            raise ParameterError(f"{self.where}: {error}") from None

    def with_seat(self, name: str, address: str, fingerprint: str) -> OpenJob:
        """Return the same with somebody's seat filled in, or filled in anew."""
        try:
            document = tomlkit.parse(self.text)
        except ValueError as error:  # where it is stricter than the reader
            raise ParameterError(f"{self.where}: cannot be changed: {error}") from None
        seats_of(document)[name].update({"address": address, "fingerprint": fingerprint})
        filled = OpenJob(tomlkit.dumps(document), self.where)
        filled.as_if_filled()
        return filled

    def joined(self, sent: OpenJob, replacing: Collection[str] = ()) -> OpenJob:
        """Return our copy with the seats that are filled in in one that we were sent.

        Raises DisagreementError if that one differs from ours in anything else, unless it is in the
        seat of somebody who is to be replaced.
        """
        ours, theirs = (_without_seats(each.as_if_filled()) for each in (self, sent))
        differences = [
            f"{key}: {quoted(ours.get(key))} here, {quoted(theirs.get(key))} there"
            for key in {**ours, **theirs}
            if ours.get(key) != theirs.get(key)
        ]
        if differences:
            raise DisagreementError(
                f"{self.where} and {sent.where} are not the same job: {'; '.join(differences)}. "
                "Agree on one of them; whoever is to have the other removes its own and joins "
                "again, with the same keys"
            )
        found, seats = self, self.seats
        for name, seat in sent.seats.items():
            if is_open(seat) or _same(seat, seats[name]):
                continue
            if not is_open(seats[name]) and name not in replacing:
                raise DisagreementError(
                    f"the seat of {name} is filled in twice: {_in_words(seats[name])} in "
                    f"{self.where}, {_in_words(seat)} in {sent.where}. Ask {name} on the phone; if "
                    f"it has changed its own, take the new one with --replace {name}",
                    name,
                )
            found = found.with_seat(name, seat["address"], seat["fingerprint"])
        return found

    def write(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, self.text.encode())


def _without_seats(job: Job) -> dict[str, Any]:
    seats = job.seats()
    return {key: value for key, value in job.terms().items() if key not in seats}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("address", "fingerprint"))


def _in_words(seat: Mapping[str, Any]) -> str:
    return f"{quoted(seat.get('address'))} with {quoted(seat.get('fingerprint'))}"


def toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return keys and values as lines of TOML."""
    return [f"{key} = {tomlkit.item(value).as_string()}" for key, value in values.items()]


def check_dealers(dealers: Mapping[str, str], participants: Sequence[str]) -> None:
    """Raise ParameterError unless these can deal; beside each is who plays it, or nothing."""
    contacts = [
        DealerContact(name=name, by=by, address="open.invalid:1", fingerprint="0" * 64)
        for name, by in dealers.items()
    ]
    try:
        Dealers(dealers=contacts).check_dealers(participants, DEFAULT_PROTOCOL, align=False)
    except ValueError as error:
        raise ParameterError(str(error)) from None


PARTY_FILE = "party.toml"
JOB_FILE = "job.toml"


KeyFiles = tuple[Path, Path]
"""A key and its certificate."""


def key_files(name: str, folder: Path) -> KeyFiles:
    """Return where somebody's keys are, unless it says otherwise."""
    return folder / f"{name}.key", folder / f"{name}.crt"


@dataclass(frozen=True)
class OwnSeat:
    """A seat of ours in a job: as a participant, or as the dealer that it plays."""

    name: str
    address: str
    keys: KeyFiles

    def identity(self, new: list[Path]) -> Identity:
        """Return our keys; make them, and list their files as new, if there are none."""
        usual = key_files(self.name, self.keys[0].parent)
        if self.keys != usual or any(path.exists() for path in usual):
            return load_identity(*self.keys)
        new += usual
        return create_identity(self.name, make_folder(usual[0].parent))


def take_seats(
    job: OpenJob, seats: Sequence[OwnSeat], folder: Path, party: str | None = None
) -> tuple[OpenJob, list[Path]]:
    """Fill in our seats, and write keys, the job and our own file, as far as they are not there.

    Return the job, and which files are new. Whatever fails, or interrupts it: none is.
    """
    make_folder(folder)
    with all_or_none() as new:
        for seat in seats:
            job = job.with_seat(seat.name, seat.address, seat.identity(new).fingerprint)
        if party is not None:
            new.append(folder / PARTY_FILE)
            write_atomically(new[-1], party.encode())
        path = folder / JOB_FILE
        if not path.exists():
            new.append(path)
        job.write(path)
    return job, new


def party_text(name: str, data: DataDescription, folder: Path, dealer: str | None) -> str:
    """Return what a participant's own file says, if it is in a folder.

    `dealer` is the one that it plays, if it plays one.
    """
    said: dict[str, Any] = data.model_dump(exclude_defaults=True)
    if data.path is not None and not is_address(data.path):
        said["path"] = _seen_from(folder, Path(data.path))
    first = [key for key in ("path", "id", "label") if key in said]
    described = {key: said[key] for key in dict.fromkeys([*first, *said])}
    lines = [f"# What is {name}'s own: nobody else needs it, or should see it.", ""]
    lines += toml_lines({"name": name, **_key_names(name), "folder": "models"})
    if dealer is not None:
        lines += ["", "[dealer]", *toml_lines(_key_names(dealer))]
    lines += ["", "[data]", *toml_lines(described)]
    return "\n".join(lines) + "\n"


def _key_names(name: str) -> dict[str, str]:
    key, certificate = key_files(name, Path())
    return {"key": str(key), "certificate": str(certificate)}


def _seen_from(folder: Path, path: Path) -> str:
    """Return a path as it is from a folder, if it lies in it, and wherever it is otherwise."""
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
