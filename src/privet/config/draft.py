"""A job draft, which circulates until every participant has filled in its entry.

    [[participants]]
    name = "telecom"
    address = ""
    fingerprint = ""

Entries are filled in place: comments and the order of keys stay unchanged.
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
    """The text of a job.toml in which entries can be open."""

    text: str
    display_name: str = "the job"
    """The name of the file in error messages."""

    @classmethod
    def read(cls, path: str | Path) -> JobDraft:
        """Read a file; raise ParameterError unless filled-in entries would make it a valid job."""
        text, _ = read_toml(path)
        draft = cls(text, str(path))
        draft.make_placeholder_job()
        return draft

    @classmethod
    def create(
        cls,
        settings: Mapping[str, Any],
        params: Mapping[str, Any],
        party_names: Sequence[str],
        label_holder: str,
        operators_by_dealer: Mapping[str, str],
    ) -> JobDraft:
        """Return a new draft with all entries open.

        `operators_by_dealer` maps each dealer to the participant that runs it, or to "".
        """
        lines = [
            _FILE_COMMENT,
            *format_toml_lines(settings),
            "",
            "[params]",
            *format_toml_lines(params),
        ]
        open_entry = {"address": "", "fingerprint": ""}
        for name, operator in operators_by_dealer.items():
            by = {"by": operator} if operator else {}
            lines += ["", "[[dealers]]", *format_toml_lines({"name": name, **by, **open_entry})]
        for name in party_names:
            role = {"role": "active"} if name == label_holder else {}
            lines += [
                "",
                "[[participants]]",
                *format_toml_lines({"name": name, **role, **open_entry}),
            ]
        draft = cls("\n".join(lines) + "\n", "the new job")
        draft.make_placeholder_job()
        return draft

    @property
    def values(self) -> dict[str, Any]:
        """The parsed content of the file."""
        return parse_toml(self.text)

    @property
    def entries(self) -> dict[str, Mapping[str, Any]]:
        """The entries of all participants and dealers, by name."""
        return dict(collect_entries(self.values))

    @property
    def open_names(self) -> list[str]:
        """The participants and dealers that must still fill in an entry."""
        return self.resolve_operators(
            [name for name, entry in self.entries.items() if is_open_entry(entry)]
        )

    def resolve_operators(self, names: Iterable[str]) -> list[str]:
        """Replace each dealer that a participant runs by this participant."""
        operators = self.make_placeholder_job().dealer_operators
        return list(dict.fromkeys(operators.get(name, name) for name in names))

    def make_placeholder_job(self) -> Job:
        """Return the job with placeholders in open entries, to validate the other settings."""
        values = self.values
        for number, (name, entry) in enumerate(collect_entries(values).items(), start=1):
            if is_open_entry(entry):
                entry["address"] = f"open.invalid:{number}"
                entry["fingerprint"] = hashlib.sha256(name.encode()).hexdigest()
        return self._parse_job(values)

    def to_job(self) -> Job:
        """Return the job; raise ParameterError if entries are open."""
        return self._parse_job(self.values)

    def _parse_job(self, values: dict[str, Any]) -> Job:
        try:
            return Job.parse(values)
        except ParameterError as error:
            raise ParameterError(f"{self.display_name}: {error}") from None

    def with_entry(self, name: str, address: str, fingerprint: str) -> JobDraft:
        """Return a draft with the entry of `name` filled in or replaced."""
        try:
            document = tomlkit.parse(self.text)
        except ValueError as error:  # tomlkit is stricter than the reader
            raise ParameterError(f"{self.display_name}: cannot be changed: {error}") from None
        collect_entries(document)[name].update({"address": address, "fingerprint": fingerprint})
        draft = JobDraft(tomlkit.dumps(document), self.display_name)
        draft.make_placeholder_job()
        return draft

    def merge(self, other: JobDraft, replacing: Collection[str] = ()) -> JobDraft:
        """Return this draft with the entries that are filled in in a received draft.

        Raises DisagreementError if the drafts differ in other settings, or in a filled entry whose
        name is not in `replacing`.
        """
        local, received = (
            _strip_connection_settings(each.make_placeholder_job()) for each in (self, other)
        )
        differences = [
            f"{key}: {quote_untrusted(local.get(key))} here, {quote_untrusted(received.get(key))} "
            "there"
            for key in {**local, **received}
            if local.get(key) != received.get(key)
        ]
        if differences:
            raise DisagreementError(
                f"{self.display_name} and {other.display_name} are not the same job: "
                f"{'; '.join(differences)}. "
                "Agree on one of them; whoever is to have the other removes its own and joins "
                "again, with the same keys"
            )
        merged, entries = self, self.entries
        for name, entry in other.entries.items():
            if is_open_entry(entry) or _is_same_entry(entry, entries[name]):
                continue
            if not is_open_entry(entries[name]) and name not in replacing:
                raise DisagreementError(
                    f"the seat of {name} is filled in twice: {_format_entry(entries[name])} in "
                    f"{self.display_name}, {_format_entry(entry)} in {other.display_name}. Ask "
                    f"{name} on the phone; if "
                    f"it has changed its own, take the new one with --replace {name}",
                    name,
                )
            merged = merged.with_entry(name, entry["address"], entry["fingerprint"])
        return merged

    def write(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, self.text.encode())


def _strip_connection_settings(job: Job) -> dict[str, Any]:
    connection_settings = job.list_connection_settings()
    return {
        key: value
        for key, value in job.list_agreed_settings().items()
        if key not in connection_settings
    }


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
    """Raise ParameterError unless these are valid dealers with valid operators."""
    entries = [
        DealerEntry(name=name, by=by, address="open.invalid:1", fingerprint="0" * 64)
        for name, by in operators_by_dealer.items()
    ]
    try:
        DealerSettings(dealers=entries).check_dealer_settings(
            party_names, DEFAULT_PROTOCOL, align=False
        )
    except ValueError as error:
        raise ParameterError(str(error)) from None


PARTY_FILE_NAME = "party.toml"
JOB_FILE_NAME = "job.toml"


KeyPair = tuple[Path, Path]
"""A key and its certificate."""


def make_key_paths(name: str, folder: Path) -> KeyPair:
    """Return the default paths of a participant's or dealer's keys."""
    return folder / f"{name}.key", folder / f"{name}.crt"


@dataclass(frozen=True)
class LocalEntry:
    """An entry that this participant fills in: its own, or that of the dealer that it runs."""

    name: str
    address: str
    key_pair: KeyPair

    def load_or_create_identity(self, created: list[Path]) -> Identity:
        """Return the keys; create them, and append their paths to `created`, if there are none."""
        default_paths = make_key_paths(self.name, self.key_pair[0].parent)
        if self.key_pair != default_paths or any(path.exists() for path in default_paths):
            return load_identity(*self.key_pair)
        created += default_paths
        return create_identity(self.name, make_folder(default_paths[0].parent))


def write_entries(
    draft: JobDraft, entries: Sequence[LocalEntry], folder: Path, party_toml: str | None = None
) -> tuple[JobDraft, list[Path]]:
    """Fill in local entries, and write the job, missing keys and, if given, party.toml.

    Return the job, and the new files. If a step fails or is interrupted, all new files are removed.
    """
    make_folder(folder)
    with remove_on_failure() as created:
        for entry in entries:
            draft = draft.with_entry(
                entry.name, entry.address, entry.load_or_create_identity(created).fingerprint
            )
        if party_toml is not None:
            created.append(folder / PARTY_FILE_NAME)
            write_atomically(created[-1], party_toml.encode())
        path = folder / JOB_FILE_NAME
        if not path.exists():
            created.append(path)
        draft.write(path)
    return draft, created


def format_party_toml(name: str, table_spec: TableSpec, folder: Path, dealer: str | None) -> str:
    """Return the text of a participant's party.toml in `folder`.

    `dealer` is the dealer that the participant runs, or None.
    """
    settings: dict[str, Any] = table_spec.model_dump(exclude_defaults=True)
    if table_spec.path is not None and not is_url(table_spec.path):
        settings["path"] = _relativise(folder, Path(table_spec.path))
    first_keys = [key for key in ("path", "id", "label") if key in settings]
    ordered = {key: settings[key] for key in dict.fromkeys([*first_keys, *settings])}
    lines = [f"# What is {name}'s own: nobody else needs it, or should see it.", ""]
    lines += format_toml_lines({"name": name, **_format_key_paths(name), "folder": "models"})
    if dealer is not None:
        lines += ["", "[dealer]", *format_toml_lines(_format_key_paths(dealer))]
    lines += ["", "[data]", *format_toml_lines(ordered)]
    return "\n".join(lines) + "\n"


def _format_key_paths(name: str) -> dict[str, str]:
    key, certificate = make_key_paths(name, Path())
    return {"key": str(key), "certificate": str(certificate)}


def _relativise(folder: Path, path: Path) -> str:
    """Return a path relative to a folder if it lies inside, and absolute otherwise."""
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
