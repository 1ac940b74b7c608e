"""Cost and time of predictions with existing model parts, with and without explanations."""

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
    """Program that predicts the same rows repeatedly."""

    query: PredictionQuery
    parties: tuple[str, ...]
    times: int = 1

    @classmethod
    def by(
        cls, training_spec: TrainingSpec, explain: ExplainBy | None, rows: int, times: int = 1
    ) -> Predicting:
        """Return a program that predicts with a complete model for the label holder."""
        query = PredictionQuery.for_label_holder(
            training_spec, training_spec.params.tables, rows, explain
        )
        return cls(query, training_spec.parties, times)

    def __call__(self, runtime: Runtime, data: tuple[ModelPart, FloatArray] | None) -> None:
        """Run as one participant, or as the dealer."""
        part, columns = data or (None, None)
        for _ in range(self.times):
            unit = reveal_label_unit(runtime, self.query, part)
            answer_query(runtime, self.query, self.parties, part, columns, unit)


def count_prediction(training_spec: TrainingSpec, explain: ExplainBy | None, rows: int) -> Cost:
    """Return the rounds and bytes of a prediction."""
    counter = CostCounter(len(training_spec.parties))
    Predicting.by(training_spec, explain, rows)(counter, None)
    return counter.total


def predict_timed(
    training_spec: TrainingSpec,
    parts: Sequence[ModelPart],
    columns: Sequence[FloatArray],
    explain: ExplainBy | None,
    times: int,
) -> tuple[Outcome, list[float]]:
    """Predict with processes on loopback; return the outcome and each process's seconds."""
    program = Predicting.by(training_spec, explain, columns[0].shape[1], times)
    names, inputs = training_spec.parties, list(zip(parts, columns, strict=True))
    return simulate_timed(program, len(names), inputs, network="loopback", names=names)
