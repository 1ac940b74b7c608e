"""A scenario: one table, cut the way a federation would have it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.boosting.preparation import weighted_by_class
from privet.config import Config
from privet.data.datasets import DATASETS, DataSet, load_dataset
from privet.data.description import DataDescription
from privet.data.frame import Frame
from privet.data.labels import settle_label, task_of
from privet.data.partition import N_PARTIES, TEST_SIZE, Holdings, assign_columns, spread_columns
from privet.data.reader import column_names, read_table
from privet.data.sources.location import is_address
from privet.data.sources.source import naming
from privet.errors import DataError, ParameterError
from privet.terms.monotone import Constraints
from privet.terms.objective import Objective
from privet.terms.params import Task


class Scenario(Config):
    """A table, whose its columns would be, and what is learned from it."""

    data: str = ""
    """The name of a data set, or a file; nothing, if `table` has a query."""
    n_parties: Annotated[int, Field(ge=2)] | None = None
    """Over how many parties the columns are spread evenly; None: 4, unless there are `columns`."""
    columns: dict[str, list[str]] | None = None
    """The columns of each participant, by name or pattern: see `data.partition.assign_columns`."""
    active: str | None = None
    """Who has the label; None: the last participant."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Hyper-parameters by name; the task comes with the data."""
    monotone: Constraints = Field(default_factory=dict)
    """Columns as which grow scores never fall (1) or never rise (-1)."""
    label: str | None = None
    """The label's column, of a file; None: the one called so."""
    id: str | list[str] | None = None
    """The id's column, of a file; None: the one called so, if there is one."""
    table: dict[str, Any] = Field(default_factory=dict)
    """What else there is to say of a file: the keys of `data.description.DataDescription`."""
    task: Task | None = None
    """What is learned from a file; None: what its label looks like."""
    test_size: Annotated[float, Field(gt=0, lt=1)] = TEST_SIZE
    """The share of the rows that are set aside to be predicted."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Chooses the test rows."""
    stratify: bool | None = None
    """Whether training and test rows have the same share of each class. None: they have, where a
    file is to be classified; the paper's data sets are split as they were for published figures."""

    @model_validator(mode="after")
    def _says_once_who_takes_part(self) -> Self:
        if self.n_parties is not None and self.columns is not None:
            raise ValueError("n_parties: columns says who takes part; leave one of them out")
        return self

    def load(self) -> DataSet:
        """Load a named data set, or read a table and settle what its label asks for."""
        if self.data in DATASETS:
            said = [key for key in ("label", "id", "task") if getattr(self, key) is not None]
            for option in (*said, *self.table):
                raise DataError(
                    f"the data set {self.data} has its own {option}; leave --{option} out"
                )
            return load_dataset(self.data)
        described = self._described()
        frame = read_table(described)
        with naming(described.where):
            task = self.task or task_of(frame)
            settled, classes = settle_label(frame, task, described.positive)
            if described.class_weight is not None:
                settled = weighted_by_class(settled, classes, described.class_weight)
        return DataSet(Path(described.where).name, task, settled, tuple(classes))

    def _described(self) -> DataDescription:
        if bool(self.data) == ("query" in self.table):
            raise ParameterError("data, query: give one of them: a data set, a table, or a query")
        given = {"label": self.label or "label", "id": self.id, **self.table}
        described = DataDescription(path=self.data or None, **given)
        if self.data and not is_address(self.data) and not Path(self.data).exists():
            known = ", ".join(DATASETS)
            raise DataError(f"{self.data!r} is neither a file nor a data set; these are {known}")
        names = column_names(described)
        if given["label"] not in names and self.label is None:
            raise DataError(
                f"{described.where}: there is no column 'label'; name the label's column with "
                "--label"
            )
        if self.id is None and "id" in names and not described.drops("id"):
            return described.model_copy(update={"id": "id"})
        return described

    def holdings(self, frame: Frame) -> Holdings:
        """Return the columns of each participant; the last one has the label."""
        if self.columns is not None:
            return assign_columns(frame.names, self.columns, self.active)
        return spread_columns(frame.names, self.n_parties or N_PARTIES, self.active)

    def stratified(self, objective: Objective) -> bool:
        """Tell whether rows are set aside class by class."""
        if self.stratify and not objective.has_classes:
            raise ParameterError(f"stratify: a {objective.name} has no classes; leave it out")
        by_default = objective.has_classes and self.data not in DATASETS
        return by_default if self.stratify is None else self.stratify
