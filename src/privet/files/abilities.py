"""What a protocol can do of what a job says."""

from __future__ import annotations

from collections.abc import Mapping

from privet.boosting.federation import SUITES
from privet.errors import ParameterError
from privet.terms.params import Params
from privet.terms.validation import check_patience

PROTOCOL_TERMS = {
    "reveal_loss": ("has_loss", "has no loss"),
    "reveal_gain": ("has_gain", "tells no gains"),
    "weighted": ("has_weights", "has no weights"),
    "explain": ("explains", "derives no contributions"),
    "keep_indicators": ("publishes", "publishes none"),
    "monotone": ("has_constraints", "has no constraints"),
}
"""Terms of a job that not every protocol has: what a suite says of it, and what is said if not."""


def check_abilities(protocol: str, said: Mapping[str, object], params: Params) -> None:
    """Raise ValueError for what a protocol has not, or what goes with validation rows alone."""
    suite = SUITES[protocol]
    for key, (ability, lack) in PROTOCOL_TERMS.items():
        if said[key] and not getattr(suite, ability):
            raise ValueError(f"{key}: the protocol {protocol} {lack}; use masked")
    if suite.one_output and params.objective.outputs > 1:
        raise ValueError(f"classes: the protocol {protocol} has two, not {params.classes}")
    if said["reveal_validation"] and not params.validation:
        raise ValueError("reveal_validation: there are no validation rows; set validation")
    if said["reveal_importances"] and not (said["explain"] and params.validation):
        raise ValueError(
            "reveal_importances: are means of what `explain` derives, over validation rows; say "
            "explain, and set validation in params"
        )
    if params.validation and not suite.has_validation:
        raise ValueError(f"params.validation: the protocol {protocol} has no loss; use masked")
    try:
        check_patience(params, int(params.validation > 0))
    except ParameterError as error:
        raise ValueError(f"params.{error}") from None
