"""Configuration as values: frozen, typed, unknown keys refused, every complaint with its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from privet.errors import ParameterError

Task: TypeAlias = Literal["regression", "classification"]

_MOST_COMPLAINTS = 5


class Config(BaseModel):
    """The base of everything a person configures."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ParameterError(explain(error)) from None

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Make one from values whose types are not known."""
        return cls(**values)


def printable(text: str) -> bool:
    """Tell whether a name can stand in a message, a table and another participant's terminal."""
    return text.isprintable() and bool(text.strip())


def explain(error: ValidationError) -> str:
    """Say in one line which keys are wrong, how, and what was given."""
    complaints = []
    details = error.errors(include_url=False)
    for detail in details[:_MOST_COMPLAINTS]:
        where = ".".join(str(part) for part in detail["loc"]) or "the whole"
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        if detail["type"] == "extra_forbidden":
            complaints.append(f"{where}: is not known")
        elif detail["type"] == "missing":
            complaints.append(f"{where}: is required")
        else:
            complaints.append(f"{where}: {message}, got {_brief(detail['input'])}")
    if len(details) > _MOST_COMPLAINTS:
        complaints.append(f"and {len(details) - _MOST_COMPLAINTS} more")
    return "; ".join(complaints)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
