"""What a model of another format cannot say of its inputs, as a note that goes with it.

Other formats see numbers. The note says which number each of their inputs is: how a column's dates
and categories become numbers, as `data.encoder` makes them.
"""

from __future__ import annotations

import json
from typing import Any

from privet.boosting.model import Feature, Model
from privet.data.encoder import Encoder
from privet.data.kinds import NUMBER

KEY = "privet.inputs"
"""What the note is called in a model's metadata."""
_UNITS = {
    "boolean": "0 or 1",
    "date": "days since 1970-01-01",
    "time": "seconds since 1970-01-01",
}


def input_note(model: Model) -> str:
    """Return what every input of a model is, in order, as JSON. Missing values are NaN."""
    made = [(encoder, rank) for encoder in model.encoders for rank in range(len(encoder.features))]
    if not made:
        made = [(Encoder(feature.name, NUMBER), 0) for feature in model.features]
    inputs = zip(model.features, made, strict=True)
    return json.dumps([_input(feature, *how) for feature, how in inputs])


def _input(feature: Feature, encoder: Encoder, rank: int) -> dict[str, Any]:
    kind = encoder.kind
    note: dict[str, Any] = {"name": feature.name, "owner": feature.owner, "kind": kind.name}
    if kind.one_hot:
        # A category that no test asks for may have no name here (`Encoder.needed_for`).
        note |= {"column": encoder.column, "one_for": encoder.categories[rank] or None}
        note["otherwise"] = "0, for missing values, too"
    elif kind.name == "category":
        note["numbers"] = {text: number for number, text in enumerate(encoder.categories)}
        note["others"] = len(encoder.categories)
    elif kind.name in _UNITS:
        note["number"] = _UNITS[kind.name]
    return note
