"""What somebody asks for, from JSON, and what it is told, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from privet.config import Checked
from privet.config import explain as complaint
from privet.errors import ParameterError
from privet.federation.classes import ByClass
from privet.federation.explanations import as_json
from privet.federation.request_queue import Id, Request
from privet.files.records import Name


class TooManyRowsError(ParameterError):
    """More rows than a request may have."""


class _Ask(Checked):
    ids: list[Name] | None = Field(default=None, min_length=1)
    explain: bool = False


class _AskByParts(Checked):
    ids: list[list[Name]] | None = Field(default=None, min_length=1)
    explain: bool = False


@dataclass(frozen=True)
class Reader:
    """Reads requests to one service."""

    parts: Sequence[str]
    """Of an id."""
    most_rows: int
    explains: bool
    """Whether explanations may be asked for."""

    def read(self, body: bytes) -> Request:
        """Return what is asked for; raise ParameterError that says what is wrong with it."""
        try:
            kind = _Ask if len(self.parts) == 1 else _AskByParts
            asked = kind.model_validate_json(body)
        except ValidationError as error:
            raise ParameterError(complaint(error)) from None
        if asked.ids is None:
            raise ParameterError("ids: is required")
        self._check_ids(asked.ids)
        if asked.explain and not self.explains:
            raise ParameterError("explain: the job has no explanations")
        return Request(asked.ids, asked.explain)

    def _check_ids(self, ids: Sequence[Id]) -> None:
        if len(ids) > self.most_rows:
            raise TooManyRowsError(
                f"{len(ids):,} rows are more than {self.most_rows:,}: ask for fewer at a time"
            )
        if len(self.parts) > 1 and any(len(identity) != len(self.parts) for identity in ids):
            raise ParameterError(f"ids: each is a list of {', '.join(self.parts)}")


def told(request: Request) -> dict[str, Any]:
    """Return the answer to a request whose ids all have."""
    classes = request.classes
    answer: dict[str, Any] = {"predictions": request.predictions.tolist()}
    if classes:
        found = ByClass.of(classes, request.predictions)
        answer = {
            "classes": list(classes),
            "predictions": found.likeliest(),
            "probabilities": found.probabilities.tolist(),
        }
    if request.explain and request.explained is not None:
        answer |= as_json(request.explained)
    return answer
