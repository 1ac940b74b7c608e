"""A model as one participant serves it: its part, and the rows that can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from privet.arrays import IndexArray
from privet.data.frame import Frame
from privet.data.ids import Ids
from privet.files.part_file import PartFile


@dataclass(frozen=True, eq=False, repr=False)
class ServedModel:
    """Our part of a model, and our features of the rows that can be asked for."""

    file: PartFile
    frame: Frame
    rows: dict[str, int] = field(init=False)
    """Where the row of each key is."""

    def __post_init__(self) -> None:
        keys = self.ids.keys.to_pylist()
        object.__setattr__(self, "rows", {key: row for row, key in enumerate(keys)})

    @property
    def name(self) -> str:
        """The model's, the same at all participants."""
        return self.file.model

    @property
    def ids(self) -> Ids:
        """Whose rows they are."""
        assert self.frame.ids is not None
        return self.frame.ids

    def take(self, rows: IndexArray) -> ServedModel:
        """Return the same with some rows alone, in that order."""
        return ServedModel(self.file, self.frame.take(rows))

    def find(self, asked: Sequence[str]) -> IndexArray:
        """Return which rows have these keys; -1 where none has."""
        return np.array([self.rows.get(key, -1) for key in asked], dtype=np.intp)


Newest = Callable[[], ServedModel]
"""Returns the model that was loaded last."""
