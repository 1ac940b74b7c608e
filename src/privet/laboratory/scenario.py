"""A scenario: one table, cut the way a federation would have it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.config import Config
from privet.data.datasets import DATASETS
from privet.data.frame import Frame
from privet.data.partition import N_PARTIES, TEST_SIZE, Holdings, assign_columns, spread_columns
from privet.errors import ParameterError
from privet.terms.objective import Objective
from privet.terms.params import Task


class Scenario(Config):
    """A table, whose its columns would be, and what is learned from it."""

    data: str
    """The name of a data set, or a file."""
    n_parties: Annotated[int, Field(ge=2)] | None = None
    """Over how many parties the columns are spread evenly; None: 4, unless there are `columns`."""
    columns: dict[str, list[str]] | None = None
    """The columns of each participant, by name or pattern: see `data.partition.assign_columns`."""
    active: str | None = None
    """Who has the label; None: the last participant."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Hyper-parameters by name; the task comes with the data."""
    label: str | None = None
    id: str | None = None
    task: Task | None = None
    test_size: Annotated[float, Field(gt=0, lt=1)] = TEST_SIZE
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
