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
from privet.config.members import DealerEntry, DealerSettings, collect_entries, is_open_entry
from privet.config.table import TableSpec
from privet.data.sources.base import is_url
from privet.errors import DisagreementError, ParameterError
from privet.filesystem import make_folder, remove_on_failure, write_atomically
from privet.schema import parse_toml, quote_untrusted, read_toml
from privet.spec.params import DEFAULT_PROTOCOL
from privet.transport.tls import Identity, create_identity, load_identity

_FILE_COMMENT = """\
# What all agree on. Everybody fills in its own seat with `privet join`, and nobody changes the rest
# alone: before anything is trained, all copies are compared.
"""


@dataclass(frozen=True)
class JobDraft:
    """A job of which some seats may be open, as its file has it."""

    text: str
    display_name: str = "the job"
    """The file, for complaints."""

    @classmethod
    def read(cls, path: str | Path) -> JobDraft:
        """Read a file; raise ParameterError if it could not become a job by filling in seats."""
        text, _ = read_toml(path)
        found = cls(text, str(path))
        found.make_placeholder_job()
        return found

    @classmethod
    def create(
        cls,
        settings: Mapping[str, Any],
        params: Mapping[str, Any],
        party_names: Sequence[str],
        label_holder: str,
        operators_by_dealer: Mapping[str, str],
    ) -> JobDraft:
        """Return a new one, with all seats open.

        Dealers have who plays them beside their names, or nothing.
        """
        lines = [
            _FILE_COMMENT,
            *format_toml_lines(settings),
            "",
            "[params]",
            *format_toml_lines(params),
        ]
        seat = {"address": "", "fingerprint": ""}
        for name, player in operators_by_dealer.items():
            by = {"by": player} if player else {}
            lines += ["", "[[dealers]]", *format_toml_lines({"name": name, **by, **seat})]
        for name in party_names:
            role = {"role": "active"} if name == label_holder else {}
            lines += ["", "[[participants]]", *format_toml_lines({"name": name, **role, **seat})]
        begun = cls("\n".join(lines) + "\n", "the new job")
        begun.make_placeholder_job()
        return begun

    @property
    def values(self) -> dict[str, Any]:
        """What the file says."""
        return parse_toml(self.text)

    @property
    def entries(self) -> dict[str, Mapping[str, Any]]:
        """Everybody's seat, by name."""
        return dict(collect_entries(self.values))

    @property
    def open_names(self) -> list[str]:
        """Who has not filled in its seat yet, or that of the dealer that it plays."""
        return self.resolve_operators(
            [name for name, seat in self.entries.items() if is_open_entry(seat)]
        )

    def resolve_operators(self, names: Iterable[str]) -> list[str]:
        """Return who is asked about seats: in place of a dealer, the participant that plays it."""
        players = self.make_placeholder_job().dealer_operators
        return list(dict.fromkeys(players.get(name, name) for name in names))

    def make_placeholder_job(self) -> Job:
        """Return the job as if all seats were filled in, to see whether the rest is right."""
        values = self.values
        for number, (name, seat) in enumerate(collect_entries(values).items(), start=1):
            if is_open_entry(seat):
                seat["address"] = f"open.invalid:{number}"
                seat["fingerprint"] = hashlib.sha256(name.encode()).hexdigest()
        return self._parse_job(values)

    def to_job(self) -> Job:
        """Return the job; raise ParameterError if seats are open."""
        return self._parse_job(self.values)

    def _parse_job(self, values: dict[str, Any]) -> Job:
        try:
            return Job.parse(values)
        except ParameterError as error:
            raise ParameterError(f"{self.display_name}: {error}") from None

    def with_entry(self, name: str, address: str, fingerprint: str) -> JobDraft:
        """Return the same with somebody's seat filled in, or filled in anew."""
        try:
            document = tomlkit.parse(self.text)
        except ValueError as error:  # where it is stricter than the reader
            raise ParameterError(f"{self.display_name}: cannot be changed: {error}") from None
        collect_entries(document)[name].update({"address": address, "fingerprint": fingerprint})
        filled = JobDraft(tomlkit.dumps(document), self.display_name)
        filled.make_placeholder_job()
        return filled

    def merge(self, other: JobDraft, replacing: Collection[str] = ()) -> JobDraft:
        """Return our copy with the seats that are filled in in one that we were sent.

        Raises DisagreementError if that one differs from ours in anything else, unless it is in the
        seat of somebody who is to be replaced.
        """
        ours, theirs = (
            _strip_connection_settings(each.make_placeholder_job()) for each in (self, other)
        )
        differences = [
            f"{key}: {quote_untrusted(ours.get(key))} here, {quote_untrusted(theirs.get(key))} "
            "there"
            for key in {**ours, **theirs}
            if ours.get(key) != theirs.get(key)
        ]
        if differences:
            raise DisagreementError(
                f"{self.display_name} and {other.display_name} are not the same job: "
                f"{'; '.join(differences)}. "
                "Agree on one of them; whoever is to have the other removes its own and joins "
                "again, with the same keys"
            )
        found, seats = self, self.entries
        for name, seat in other.entries.items():
            if is_open_entry(seat) or _is_same_entry(seat, seats[name]):
                continue
            if not is_open_entry(seats[name]) and name not in replacing:
                raise DisagreementError(
                    f"the seat of {name} is filled in twice: {_format_entry(seats[name])} in "
                    f"{self.display_name}, {_format_entry(seat)} in {other.display_name}. Ask "
                    f"{name} on the phone; if "
                    f"it has changed its own, take the new one with --replace {name}",
                    name,
                )
            found = found.with_entry(name, seat["address"], seat["fingerprint"])
        return found

    def write(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, self.text.encode())


def _strip_connection_settings(job: Job) -> dict[str, Any]:
    seats = job.list_connection_settings()
    return {key: value for key, value in job.list_agreed_settings().items() if key not in seats}


def _is_same_entry(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("address", "fingerprint"))


def _format_entry(entry: Mapping[str, Any]) -> str:
    return (
        f"{quote_untrusted(entry.get('address'))} with {quote_untrusted(entry.get('fingerprint'))}"
    )


def format_toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return keys and values as lines of TOML."""
    return [f"{key} = {tomlkit.item(value).as_string()}" for key, value in values.items()]


def check_draft_dealers(operators_by_dealer: Mapping[str, str], party_names: Sequence[str]) -> None:
    """Raise ParameterError unless these can deal; beside each is who plays it, or nothing."""
    contacts = [
        DealerEntry(name=name, by=by, address="open.invalid:1", fingerprint="0" * 64)
        for name, by in operators_by_dealer.items()
    ]
    try:
        DealerSettings(dealers=contacts).check_dealer_settings(
            party_names, DEFAULT_PROTOCOL, align=False
        )
    except ValueError as error:
        raise ParameterError(str(error)) from None


PARTY_FILE_NAME = "party.toml"
JOB_FILE_NAME = "job.toml"


KeyPair = tuple[Path, Path]
"""A key and its certificate."""


def make_key_paths(name: str, folder: Path) -> KeyPair:
    """Return where somebody's keys are, unless it says otherwise."""
    return folder / f"{name}.key", folder / f"{name}.crt"


@dataclass(frozen=True)
class LocalEntry:
    """A seat of ours in a job: as a participant, or as the dealer that it plays."""

    name: str
    address: str
    key_pair: KeyPair

    def load_or_create_identity(self, created: list[Path]) -> Identity:
        """Return our keys; make them, and list their files as new, if there are none."""
        usual = make_key_paths(self.name, self.key_pair[0].parent)
        if self.key_pair != usual or any(path.exists() for path in usual):
            return load_identity(*self.key_pair)
        created += usual
        return create_identity(self.name, make_folder(usual[0].parent))


def write_entries(
    draft: JobDraft, entries: Sequence[LocalEntry], folder: Path, party_toml: str | None = None
) -> tuple[JobDraft, list[Path]]:
    """Fill in our seats, and write keys, the job and our own file, as far as they are not there.

    Return the job, and which files are new. Whatever fails, or interrupts it: none is.
    """
    make_folder(folder)
    with remove_on_failure() as new:
        for seat in entries:
            draft = draft.with_entry(
                seat.name, seat.address, seat.load_or_create_identity(new).fingerprint
            )
        if party_toml is not None:
            new.append(folder / PARTY_FILE_NAME)
            write_atomically(new[-1], party_toml.encode())
        path = folder / JOB_FILE_NAME
        if not path.exists():
            new.append(path)
        draft.write(path)
    return draft, new


def format_party_toml(name: str, table_spec: TableSpec, folder: Path, dealer: str | None) -> str:
    """Return what a participant's own file says, if it is in a folder.

    `dealer` is the one that it plays, if it plays one.
    """
    said: dict[str, Any] = table_spec.model_dump(exclude_defaults=True)
    if table_spec.path is not None and not is_url(table_spec.path):
        said["path"] = _relativise(folder, Path(table_spec.path))
    first = [key for key in ("path", "id", "label") if key in said]
    described = {key: said[key] for key in dict.fromkeys([*first, *said])}
    lines = [f"# What is {name}'s own: nobody else needs it, or should see it.", ""]
    lines += format_toml_lines({"name": name, **_format_key_paths(name), "folder": "models"})
    if dealer is not None:
        lines += ["", "[dealer]", *format_toml_lines(_format_key_paths(dealer))]
    lines += ["", "[data]", *format_toml_lines(described)]
    return "\n".join(lines) + "\n"


def _format_key_paths(name: str) -> dict[str, str]:
    key, certificate = make_key_paths(name, Path())
    return {"key": str(key), "certificate": str(certificate)}


def _relativise(folder: Path, path: Path) -> str:
    """Return a path as it is from a folder, if it lies in it, and wherever it is otherwise."""
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
