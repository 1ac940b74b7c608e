"""Our table, written anew a file for each shard, in the order that a job's rows have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from privet.data.description import DataDescription
from privet.data.rewriting import rewrite_table
from privet.errors import DataError
from privet.files.alignments import Alignments
from privet.files.job import Job
from privet.files.lock import locked
from privet.files.party_file import PartyFile


def shard_table(party: PartyFile, job: Job, folder: Path, shards: int) -> DataDescription:
    """Write our rows that take part, in the order that all share; return what is there.

    Ids are read first, so what no training would take (one twice, or none) is refused before
    anything is written. An alignment that was kept is kept for the new table, too.
    """
    party.check_seat(job)
    if not job.align:
        party.read_ids(job)
        return rewrite_table(party.data, folder, shards)
    with locked(party.folder, job.name):
        ids, alignments = party.read_ids(job), Alignments(party.folder, job)
        alignment = alignments.find(ids.digest().hex())
        if alignment is None:
            raise DataError(
                f"{party.data.where}: its rows are not aligned for the job {job.name!r}, so they "
                "have no order yet: run `privet align` first, with the others"
            )
        written = rewrite_table(party.data, folder, shards, alignment.rows)
        alignments.keep_sharded(alignment, ids.take(alignment.rows).digest().hex())
        return written


def changes(before: DataDescription, after: DataDescription) -> tuple[list[str], list[str]]:
    """Return the lines of `[data]` that become others, and the keys that are to be left out."""
    lines, gone = list[str](), list[str]()
    for key, field in type(after).model_fields.items():
        value = getattr(after, key)
        if value == getattr(before, key):
            continue
        if value == field.get_default(call_default_factory=True):
            gone.append(key)
        else:
            lines.append(f"{key} = {_toml(value)}")
    return lines, gone


def _toml(value: str | list[str] | dict[str, Any]) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(value[key])}" for key in value) + " }"
    return json.dumps(value, ensure_ascii=False)
