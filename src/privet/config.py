"""Configuration as values: frozen, typed, unknown keys refused, every complaint with its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from privet.errors import ParameterError

Task: TypeAlias = Literal["regression", "classification"]


class Config(BaseModel):
    """The base of everything a person configures."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Make one from `values`, or raise ParameterError that names every bad key."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ParameterError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """Say in one line which keys are wrong, how, and what was given."""
    complaints = []
    for detail in error.errors(include_url=False):
        where = ".".join(str(part) for part in detail["loc"]) or "the whole"
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        if detail["type"] == "extra_forbidden":
            complaints.append(f"{where}: there is no such parameter")
        elif detail["type"] == "missing":
            complaints.append(f"{where}: is required")
        else:
            complaints.append(f"{where}: {message}, got {_brief(detail['input'])}")
    return "; ".join(complaints)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
