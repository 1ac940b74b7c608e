"""What a protocol can do of what a job says."""

from __future__ import annotations

from collections.abc import Mapping

from privet.boosting.training import SUITES
from privet.errors import ParameterError
from privet.protocols.protocol import ABILITIES, refuse_lacks
from privet.spec.params import Params
from privet.spec.sampling import check_patience

PROTOCOL_TERMS = tuple(key for key in ABILITIES if key not in ("validation", "shards"))
"""Terms of a job that not every protocol has."""


def check_abilities(protocol: str, said: Mapping[str, object], params: Params) -> None:
    """Raise ValueError for what a protocol has not, or what goes with validation rows alone."""
    suite = SUITES[protocol]
    refuse_lacks(suite, protocol, {key: said[key] for key in PROTOCOL_TERMS})
    refuse_lacks(suite, protocol, {"validation": params.validation}, "params.")
    if suite.one_output and params.objective.outputs > 1:
        raise ValueError(f"classes: the protocol {protocol} has two, not {params.classes}")
    if said["reveal_validation"] and not params.validation:
        raise ValueError("reveal_validation: there are no validation rows; set validation")
    if said["reveal_importances"] and not (said["explain"] and params.validation):
        raise ValueError(
            "reveal_importances: are means of what `explain` derives, over validation rows; say "
            "explain, and set validation in params"
        )
    try:
        check_patience(params, int(params.validation > 0))
    except ParameterError as error:
        raise ValueError(f"params.{error}") from None
