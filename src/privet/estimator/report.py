"""What `fit` took and revealed: for programs, and as a page in a notebook."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from privet.boosting.model import Model
from privet.boosting.view import view_of_model
from privet.estimator.html import curve, model_in_html, section, table
from privet.federation.party_report import Reported, Reveal
from privet.terms.params import Params


class FitReport(Reported):
    """What an estimator's training took, and what left the protocol in the clear.

    In the clear (`protocol="plain"`) there are no rounds, no bytes, and nothing to reveal.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    protocol: str
    params: Params
    seconds: float = 0.0
    rounds: int = 0
    bytes_sent: int = 0
    """Between the parties, all together."""
    bytes_from_dealer: int = 0
    reveals: list[Reveal] = Field(default_factory=list)
    losses: list[float] = Field(default_factory=list)
    """After each table, where they are known: of the training rows, in the clear."""
    model: Model | None = Field(default=None, exclude=True, repr=False)
    """The model, for its picture."""

    def _repr_html_(self) -> str:
        took = {"protocol": self.protocol, "seconds": f"{self.seconds:.2f}"}
        if self.rounds:
            took |= {
                "rounds": f"{self.rounds:,}",
                "MB between the parties": f"{self.bytes_sent / 1e6:,.2f}",
                "MB from the dealer": f"{self.bytes_from_dealer / 1e6:,.2f}",
            }
        parts = [
            section("Training", table((), took.items())),
            section("Parameters", table((), self.params.model_dump().items())),
        ]
        if self.reveals:
            rows = [(r.what, ", ".join(r.to), f"{r.count:,}") for r in self.reveals]
            parts.append(section("Revealed, to whom", table(("what", "to", "how many"), rows)))
        if len(self.losses) > 1:
            parts.append(section("Loss by table", curve(self.losses)))
        if self.model is not None:
            parts.append(model_in_html(view_of_model(self.model)))
        return f"<div>{''.join(parts)}</div>"
