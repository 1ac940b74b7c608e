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

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, field_validator

from privet.config import Config
from privet.data.description import DataDescription
from privet.data.encoder import Encoder
from privet.data.frame import ByColumn, Frame
from privet.data.ids import Ids
from privet.data.reader import Rules, read_by_column, read_new_rows
from privet.errors import ParameterError
from privet.files.cluster import Cluster
from privet.files.contacts import check_address
from privet.files.endpoint import Endpoint
from privet.files.job import Job


class OwnDealer(Config):
    """The dealer that a participant plays, if the job has it play one: started with it."""

    key: str
    """The private key, as `privet keys` made it for this dealer."""
    certificate: str
    """The certificate of that key."""
    listen: str | None = None
    """HOST:PORT to listen on, where it is not the dealer's address in the job."""

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str | None) -> str | None:
        return None if listen is None else check_address(listen)


class PartyFile(Config):
    """One participant."""

    name: str
    """Ours, as the job has it."""
    key: str
    """The file with our private key, as `privet keys` made it."""
    certificate: str
    """The file with the certificate of that key."""
    listen: str | None = None
    """HOST:PORT to listen on, where it is not the address in the job."""
    folder: str = "models"
    """Where models, checkpoints and the record of used correlations are kept."""
    correlations: str | list[str] | None = None
    """The file that the dealer made ahead for a training, at which it is not there then; of three
    dealers, the file of each, in the order of the job."""
    dealer: OwnDealer | None = None
    """If the job has us play a dealer, and it is to be started with us: a process of its own."""
    audit: str | None = None
    """The audit log, to which every session is added (`privet audit`)."""
    cluster: Cluster = Field(default_factory=Cluster)
    """Where our workers are, in jobs that have rows in shards."""
    endpoint: Endpoint = Field(default_factory=Endpoint)
    """Where and how we are asked for predictions, if we are their recipient."""
    data: DataDescription
    """Our table: where it is, and what its columns are."""
    _file: str = PrivateAttr("party.toml")
    """Where this was read, for complaints."""

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str | None) -> str | None:
        return None if listen is None else check_address(listen)

    @classmethod
    def load(cls, path: str | Path) -> PartyFile:
        """Read a participant's file; its paths start from where it is."""
        home, read = Path(path).resolve().parent, cls.read(path)
        paths: dict[str, Any] = {
            key: str(home / getattr(read, key)) for key in ("key", "certificate", "folder")
        }
        if read.audit is not None:
            paths["audit"] = str(home / read.audit)
        if read.dealer is not None:
            keys = {key: str(home / getattr(read.dealer, key)) for key in ("key", "certificate")}
            paths["dealer"] = read.dealer.model_copy(update=keys)
        if read.correlations is not None:
            paths["correlations"] = [str(home / path) for path in read.dealt]
        paths["endpoint"] = read.endpoint.starting_from(home)
        paths["cluster"] = read.cluster.starting_from(home)
        if read.data.id is None:
            raise ParameterError(f"{path}: data.id: is required: which sample a row is")
        loaded = read.model_copy(update={**paths, "data": read.data.starting_from(home)})
        loaded._file = str(path)
        return loaded

    def check_seat(self, job: Job) -> None:
        """Raise ParameterError unless we take part in a job."""
        if self.name not in job.names:
            raise self._complaint(
                f"name: {self.name!r} takes no part in the job {job.name!r}; there are "
                f"{', '.join(job.names)}"
            )

    def _complaint(self, text: str) -> ParameterError:
        return ParameterError(f"{self._file}: {text}")

    @property
    def dealt(self) -> list[str]:
        """The files that were dealt ahead, if any."""
        named = self.correlations or []
        return [named] if isinstance(named, str) else named

    def read_rows(self, job: Job) -> ByColumn:
        """Read our rows for training, with the label if we are the active participant."""
        data, role = self.data, job.role(self.name)
        if role == "active" and data.label is None:
            raise self._complaint(
                f"data.label: is required of {self.name}, the active participant of the job"
            )
        if role != "active" and data.label is not None:
            raise self._complaint(
                f"data.label: {self.name} is a passive participant of the job; the label is the "
                "active one's: leave it out"
            )
        if role != "active" and data.weighted:
            raise self._complaint(
                f"data.weight, data.class_weight: {self.name} is a passive participant of the job; "
                "weights are the active one's: leave them out"
            )
        if role == "active" and data.weighted != job.weighted:
            raise self._complaint(
                "weighted: the job says that rows have weights, and data.weight and "
                "data.class_weight are not there: give one of them, or change everybody's job"
                if job.weighted
                else "data.weight, data.class_weight: the job has no weights: say weighted = true "
                "in everybody's job, since all compute with them, or leave them out"
            )
        return read_by_column(data, self._rules(job))

    def read_new_rows(
        self,
        job: Job,
        encoders: Sequence[Encoder],
        path: str | Path | None = None,
        query: str | None = None,
    ) -> Frame:
        """Read rows to predict, from our table or from another like it."""
        return read_new_rows(self.describe_new_rows(path, query), encoders, self._rules(job))

    def describe_new_rows(
        self, path: str | Path | None = None, query: str | None = None
    ) -> DataDescription:
        """Return how rows to predict are described: as our table is, but elsewhere."""
        data = self.data if path is None else self.data.at(path)
        return data if query is None else data.asking(query)

    def read_ids(self, job: Job) -> Ids:
        """Read our ids alone."""
        ids = self.read_new_rows(job, ()).ids
        assert ids is not None
        return ids

    def _rules(self, job: Job) -> Rules:
        """Return how ids are compared; raise ParameterError unless ours have the job's parts."""
        ids, parts = self.data.id_columns, job.ids.parts
        if len(ids) != len(parts):
            raise self._complaint(
                f"data.id: names {', '.join(ids) or 'no column'}, and an id of the job has "
                f"{len(parts)} parts, {', '.join(parts)}: name a column for each of them"
            )
        return job.ids.rules
