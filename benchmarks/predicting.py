"""Predictions with parts that are there, explained or not: what they cost, and their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.evidence.processor import simulate_timed
from privet.arrays import FloatArray
from privet.boosting.model_part import ModelPart
from privet.boosting.prediction import PredictionQuery, answer_query, reveal_label_unit
from privet.boosting.training import TrainingSpec
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.local.launcher import Outcome
from privet.runtime.runtime import Runtime
from privet.spec.plan import ExplainBy


@dataclass(frozen=True)
class Predicting:
    """Predictions of the same rows, again and again, as a program."""

    query: PredictionQuery
    parties: tuple[str, ...]
    times: int = 1

    @classmethod
    def by(
        cls, federation: TrainingSpec, explain: ExplainBy | None, rows: int, times: int = 1
    ) -> Predicting:
        """Return predictions with a whole model, for the label's holder."""
        query = PredictionQuery.for_label_holder(
            federation, federation.params.tables, rows, explain
        )
        return cls(query, federation.parties, times)

    def __call__(self, runtime: Runtime, data: tuple[ModelPart, FloatArray] | None) -> None:
        """Run as one participant, or as the dealer."""
        part, columns = data or (None, None)
        for _ in range(self.times):
            unit = reveal_label_unit(runtime, self.query, part)
            answer_query(runtime, self.query, self.parties, part, columns, unit)


def count_prediction(federation: TrainingSpec, explain: ExplainBy | None, rows: int) -> Cost:
    """Return the rounds and bytes of a prediction."""
    counter = CostCounter(len(federation.parties))
    Predicting.by(federation, explain, rows)(counter, None)
    return counter.total


def predict_timed(
    federation: TrainingSpec,
    parts: Sequence[ModelPart],
    columns: Sequence[FloatArray],
    explain: ExplainBy | None,
    times: int,
) -> tuple[Outcome, list[float]]:
    """Predict as processes on loopback; return also the processor seconds of every process."""
    program = Predicting.by(federation, explain, columns[0].shape[1], times)
    names, inputs = federation.parties, list(zip(parts, columns, strict=True))
    return simulate_timed(program, len(names), inputs, network="loopback", names=names)
