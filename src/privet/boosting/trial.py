"""A training and what follows it, as the program of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from privet.arrays import FloatArray
from privet.boosting.federation import Federation, PartyData, TrainingState
from privet.boosting.federation import train as train_on_shares
from privet.boosting.inference import Explained, Query, answer, tell_unit
from privet.boosting.part import ModelPart
from privet.boosting.reasons import Explanation
from privet.boosting.validation import validate
from privet.runtime.runtime import Runtime
from privet.terms.plan import ExplainBy, Plan


class TrialInput(NamedTuple):
    """What one participant brings along."""

    own: PartyData
    new: FloatArray | None = None
    """Its columns of the samples to predict."""
    state: TrainingState | None = None
    """What it goes on from."""


@dataclass(frozen=True)
class Trial:
    """A training, and a prediction of other samples with its model: the program of a simulation."""

    federation: Federation
    plan: Plan
    n_new: int = 0
    explain: ExplainBy | None = None
    """By what the predictions are explained, if they are."""
    done: int = 0
    """How many tables there are, if participants go on from an earlier training."""

    def __call__(
        self, runtime: Runtime, data: TrialInput | tuple[PartyData, FloatArray | None] | None
    ) -> TrialResult:
        """Run as one participant, or as the dealer."""
        own, new, state = (None, None, None) if data is None else TrialInput(*data)

        def on_state(latest: TrainingState) -> None:
            nonlocal state
            state = latest

        trained = train_on_shares(
            runtime,
            self.federation,
            self.plan,
            own,
            done=self.done,
            state=state,
            on_state=on_state,
        )
        part, losses = trained.part, list(trained.losses)
        validation, _ = validate(runtime, self.federation, self.plan, trained, own)
        if not self.n_new:
            return TrialResult(part, losses=losses, validation=validation, state=state)
        query = Query.to_holder(self.federation, trained.tables, self.n_new, self.explain)
        unit = tell_unit(runtime, query, part)
        found = answer(runtime, query, self.federation.parties, part, new, unit)
        if isinstance(found, Explained):
            told = (found.predictions, found.explanation)
            return TrialResult(part, *told, losses, validation, state)
        return TrialResult(part, found, None, losses, validation, state)


@dataclass(frozen=True)
class TrialResult:
    """What one participant has at the end of a trial."""

    part: ModelPart | None
    predictions: FloatArray | None = None
    """At the active participant."""
    explanation: Explanation | None = None
    """Of the scores behind them, there."""
    losses: list[float] = field(default_factory=list)
    """On validation rows, after each table that was trained: at the active participant."""
    validation: FloatArray | None = None
    """The predictions of validation rows, if they are revealed: at the active participant."""
    state: TrainingState | None = None
    """After the last table that was trained: what more tables go on from."""
