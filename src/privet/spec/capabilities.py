"""Check that a protocol supports the settings of a job."""

from __future__ import annotations

from collections.abc import Mapping

from privet.boosting.training import PROTOCOL_TYPES
from privet.errors import ParameterError
from privet.protocols.protocol import CAPABILITIES, require_capabilities
from privet.spec.params import Params
from privet.spec.sampling import check_patience

PROTOCOL_SETTINGS = tuple(key for key in CAPABILITIES if key not in ("validation", "shards"))
"""The settings of a job that not every protocol supports."""


def check_capabilities(protocol: str, settings: Mapping[str, object], params: Params) -> None:
    """Raise ValueError for a setting that the protocol, or a run without validation rows, lacks."""
    suite = PROTOCOL_TYPES[protocol]
    require_capabilities(suite, protocol, {key: settings[key] for key in PROTOCOL_SETTINGS})
    require_capabilities(suite, protocol, {"validation": params.validation}, "params.")
    if suite.has_single_output and params.objective.n_outputs > 1:
        raise ValueError(f"classes: the protocol {protocol} has two, not {params.classes}")
    if settings["reveal_validation"] and not params.validation:
        raise ValueError("reveal_validation: there are no validation rows; set validation")
    if settings["reveal_importances"] and not (settings["explain"] and params.validation):
        raise ValueError(
            "reveal_importances: are means of what `explain` derives, over validation rows; say "
            "explain, and set validation in params"
        )
    try:
        check_patience(params, int(params.validation > 0))
    except ParameterError as error:
        raise ValueError(f"params.{error}") from None
