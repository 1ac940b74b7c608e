"""The first files of somebody who takes part in a job: its keys, and its own file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.data.description import DataDescription
from privet.data.sources.location import is_address
from privet.files.atomic import all_or_none, make_folder, write_atomically
from privet.files.open_job import OpenJob, toml_lines
from privet.transport.identity import Identity, create_identity, load_identity

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
