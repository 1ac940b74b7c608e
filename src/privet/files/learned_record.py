"""What a participant learned of its table, as JSON: for those of its processes that read a part.

Nobody else's: there are thresholds in it, and the names of categories and classes.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import FailFast, Field, ValidationError

from privet.boosting.learned import Learned
from privet.config import Checked, explain
from privet.data.kinds import Kind, KindName
from privet.errors import DataError, ModelError
from privet.files.records import EncoderRecord, Infinity, Name, Text, threshold_to_json
from privet.terms.objectives import MOST_CLASSES
from privet.terms.weights import Mean, Weighting

_Positive = Annotated[float, Field(gt=0)]
_Cuts = Annotated[list[float | Infinity], Field(max_length=255), FailFast()]


class _KindRecord(Checked):
    name: KindName
    form: Name | None
    one_hot: bool


class _WeightingRecord(Checked):
    largest: _Positive
    of_largest: _Positive
    by_class: Annotated[list[Annotated[float, Field(ge=0)]], Field(max_length=MOST_CLASSES)]


class LearnedRecord(Checked):
    """What was learned of a table. All its numbers are read back as the same doubles."""

    owner: Name
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    candidates: Annotated[int, Field(ge=1, le=255)]
    """How many thresholds a feature may have."""
    thresholds: Annotated[list[_Cuts], FailFast()]
    """Those that each feature has."""
    classes: Annotated[list[Text], Field(max_length=MOST_CLASSES)]
    label: _KindRecord | None
    weighting: _WeightingRecord | None

    @classmethod
    def of(cls, learned: Learned) -> LearnedRecord:
        """Return what is written of it."""
        kind, weighting = learned.label_kind, learned.weighting
        return cls(
            owner=learned.owner,
            encoders=[EncoderRecord.of(encoder) for encoder in learned.encoders],
            candidates=learned.thresholds.shape[1],
            thresholds=[
                [threshold_to_json(cut) for cut in cuts[cuts < np.inf].tolist()]
                for cuts in learned.thresholds
            ],
            classes=list(learned.classes),
            label=None
            if kind is None
            else _KindRecord(name=kind.name, form=kind.form, one_hot=kind.one_hot),
            weighting=None
            if weighting is None
            else _WeightingRecord(
                largest=weighting.mean.largest,
                of_largest=weighting.mean.of_largest,
                by_class=list(weighting.by_class),
            ),
        )

    @classmethod
    def read(cls, content: bytes) -> Learned:
        """Return what was written; raise ModelError if it is not sound."""
        try:
            return cls.model_validate_json(content).learned()
        except ValidationError as error:
            raise ModelError(f"what was learned of a table is damaged: {explain(error)}") from None
        except DataError as error:
            raise ModelError(f"what was learned of a table is damaged: {error}") from None

    def learned(self) -> Learned:
        """Return what was written."""
        thresholds = np.full((len(self.thresholds), self.candidates), np.inf)
        for row, cuts in zip(thresholds, self.thresholds, strict=True):
            if len(cuts) > self.candidates:
                raise DataError(f"{len(cuts)} thresholds of {self.candidates}")
            row[: len(cuts)] = [float(cut) for cut in cuts]
        kind, weighting = self.label, self.weighting
        return Learned(
            owner=self.owner,
            encoders=tuple(record.encoder() for record in self.encoders),
            thresholds=thresholds,
            classes=tuple(self.classes),
            label_kind=None if kind is None else Kind(kind.name, kind.form, kind.one_hot),
            weighting=None
            if weighting is None
            else Weighting(
                Mean(weighting.largest, weighting.of_largest), tuple(weighting.by_class)
            ),
        )
