"""Watching the loss on validation rows while a model is trained, and stopping in time."""

from __future__ import annotations

from collections.abc import Sequence

from privet.boosting.part import LabelUnit
from privet.errors import ResultError
from privet.runtime.runtime import Runtime
from privet.suites.suite import Suite, TrainedTable
from privet.terms.plan import Plan
from privet.terms.validation import tables_to_keep


class Watch:
    """The losses of one training, which the label's holder knows, and its word when to stop."""

    def __init__(
        self, runtime: Runtime, plan: Plan, unit: LabelUnit | None, losses: Sequence[float]
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._unit = unit
        self.losses = list(losses)
        """After each table: at the label's holder, in the label's own unit; nobody else has any."""

    def reveal_training_loss(self, suite: Suite, table: TrainedTable) -> float | None:
        """Return the loss that a table started from, if all agreed to learn it."""
        if table.loss is None:
            return None
        everybody = range(self._runtime.n_parties)
        revealed = self._runtime.reveal(table.loss, everybody, "training loss")
        return None if revealed is None else suite.loss_of(revealed)

    def look(self, suite: Suite) -> None:
        """Have the loss after one more table computed, if there are validation rows.

        Reveals: the mean loss to the label's holder alone.
        """
        if not self._plan.n_validation:
            return
        active = self._plan.ownership.active
        revealed = self._runtime.reveal(suite.validation_loss(), [active], "validation loss")
        if revealed is not None and self._unit is not None:
            self.losses.append(suite.validation_loss_of(revealed) * self._unit.scale**2)

    def keep(self, done: int) -> int:
        """Return how many tables to keep, if training ends after so many, and 0 if it goes on.

        Reveals: that number to all and the dealer, where there is patience.
        """
        params = self._plan.params
        last = done == params.tables
        if params.patience is None:
            return done if last else 0
        active, own = self._plan.ownership.active, None
        if self._runtime.index == active:
            # Without a history, which a part alone does not have, all there is was kept before.
            own = done
            if self.losses:
                own = tables_to_keep(self.losses, params.patience, params.tables)
        with self._runtime.step("table"), self._runtime.step("stop"):
            told = self._runtime.announce(own, active, "number of tables to keep, or none yet")
        if told is None:  # a counter, or a dealer ahead of its time: it never stops
            return done if last else 0
        if told > done or (last and not told):
            raise ResultError(f"{told} tables to keep, of {done}, from participant {active + 1}")
        if told and not last:
            self._runtime.end_early()
        return told
