"""A participant's own file: its name, keys and data. Nobody else sees it.

    name = "bank"
    key = "bank.key"
    certificate = "bank.crt"
    folder = "models"
    correlations = "bank.correlations"

    [data]
    path = "customers.parquet"
    id = "customer"
    label = "churned"

Paths are relative to the file.
"""

from __future__ import annotations

from pathlib import Path

from privet.config import Config
from privet.data.frame import Frame
from privet.data.reader import read_frame
from privet.errors import ParameterError


class DataFile(Config):
    """Where a participant's table is, and which of its columns are what."""

    path: str
    """CSV or Parquet."""
    id: str
    """The column that says which sample a row is. All participants have the same, in order."""
    label: str | None = None
    """The label's column, at the active participant."""
    columns: list[str] | None = None
    """The features: by default all other columns."""


class PartyFile(Config):
    """One participant."""

    name: str
    key: str
    certificate: str
    listen: str | None = None
    """HOST:PORT to listen on, where it is not the address in the job."""
    folder: str = "models"
    """Where models, checkpoints and the record of used correlations are kept."""
    correlations: str | None = None
    """The file that the dealer made ahead for a training, at which it is not there then."""
    data: DataFile

    @classmethod
    def load(cls, path: str | Path) -> PartyFile:
        """Read a participant's file; its paths start from where it is."""
        home, read = Path(path).resolve().parent, cls.read(path)
        given = {
            key: getattr(read, key) for key in ("key", "certificate", "folder", "correlations")
        }
        paths = {key: str(home / path) for key, path in given.items() if path is not None}
        data = read.data.model_copy(update={"path": str(home / read.data.path)})
        return read.model_copy(update={**paths, "data": data})

    def read_rows(self, role: str) -> Frame:
        """Read our rows for training, with the label if we are the active participant."""
        data = self.data
        if role == "active" and data.label is None:
            raise ParameterError(
                f"data.label: is required of {self.name}, the active participant of the job"
            )
        if role != "active" and data.label is not None:
            raise ParameterError(
                f"data.label: {self.name} is a passive participant of the job; the label is the "
                "active one's: leave it out"
            )
        return read_frame(
            data.path,
            id_column=data.id,
            label_column=data.label,
            columns=data.columns,
        )
