"""The tables of a run, as they are kept while it goes on: every new one is added to a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from privet.boosting.federation import TrainingState
from privet.config import Checked
from privet.files.atomic import extend, write_atomically
from privet.files.streams import start_of
from privet.files.tables import PartHeader, write_tables

TABLES_FORMAT: Final = "privet-tables"
VERSION = 4
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Version = Annotated[int, Field(ge=VERSION, le=VERSION)]


class TablesHeader(Checked):
    """What such a file begins with."""

    format: Literal["privet-tables"]
    version: Version
    run: Digest
    part: PartHeader


@dataclass
class RunTables:
    """The tables of a run, as far as they are on disk."""

    path: Path
    count: int
    size: int
    digest: hashlib._Hash

    @classmethod
    def begin(cls, path: Path, state: TrainingState, run: str) -> RunTables:
        """Write all tables that there are at the first stage of a run."""
        part = PartHeader.of(state.part)
        header = TablesHeader(format=TABLES_FORMAT, version=VERSION, run=run, part=part)
        content = start_of(header, part.columns()) + write_tables(state.part)
        write_atomically(path, content, private=True)
        return cls(path, state.part.n_tables, len(content), hashlib.sha256(content))

    def add(self, state: TrainingState) -> None:
        """Write the tables that are new."""
        content = write_tables(state.part, self.count)
        extend(self.path, self.size, content)
        self.count = state.part.n_tables
        self.size += len(content)
        self.digest.update(content)
