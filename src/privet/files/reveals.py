"""What a job has revealed beside a model and predictions: terms that all agree on."""

from __future__ import annotations

from privet.config import Config
from privet.terms.plan import ExplainBy


class Reveals(Config):
    """The terms of a job that say what somebody learns; nothing of it, if the job does not say."""

    reveal_validation: bool = False
    """Whether the label's holder receives the predictions of validation rows when a training ends,
    for metrics and curves in its report. Otherwise it learns their mean loss, table by table."""
    reveal_loss: bool = False
    """Whether all learn the training loss, table by table: the mean squared residual, of several
    classes their sum, in a regression relative to the square of the label's unit, which only its
    holder knows."""
    reveal_gain: bool = False
    """Whether the label's holder learns by how much each level of a table lowers the loss: for
    importances by gain, in its part and its report."""
    explain: ExplainBy | None = None
    """What the recipient may have beside predictions: what each "feature" contributes to a score,
    or what all features of each "participant" do. Nothing, if the job does not say."""
    reveal_importances: bool = False
    """Whether the label's holder learns, when a training ends, how large the contributions to the
    scores of validation rows are on average: of each feature or participant, as `explain` says."""

    def reveals(self) -> dict[str, object]:
        """Return these terms, by key."""
        return {key: getattr(self, key) for key in Reveals.model_fields}
