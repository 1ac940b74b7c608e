"""What somebody asks for, from JSON, and what it is told, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from pydantic import Field, ValidationError

from privet.config import Checked, quoted
from privet.config import explain as complaint
from privet.data.description import DataDescription
from privet.data.encoder import Encoder
from privet.data.given_rows import Cell, GivenRows
from privet.errors import ParameterError
from privet.federation.classes import ByClass
from privet.federation.explanations import by_name
from privet.federation.request_queue import Id, Request
from privet.files.records import Name

ID = "id"
"""What the id of a row is called that comes with a request."""
_PIECE = 10_000
"""Rows of which JSON is made in one go."""


class TooManyRowsError(ParameterError):
    """More rows than a request may have."""


class _Ask(Checked):
    ids: list[Name] | None = Field(default=None, min_length=1)
    rows: list[dict[Name, Cell | list[Name]]] | None = Field(default=None, min_length=1)
    explain: bool = False


class _AskByParts(_Ask):
    ids: list[list[Name]] | None = Field(default=None, min_length=1)  # type: ignore[assignment]


@dataclass(frozen=True)
class Reader:
    """Reads requests to one service."""

    parts: Sequence[str]
    """Of an id."""
    most_rows: int
    explains: bool
    """Whether explanations may be asked for."""
    described: DataDescription
    """How the cells of our table are written, and so those of rows that come with a request."""
    encoders: Callable[[], Sequence[Encoder]]
    """What makes features of our columns."""

    def read(self, body: bytes) -> Request:
        """Return what is asked for; raise InputError that says what is wrong with it."""
        try:
            kind = _Ask if len(self.parts) == 1 else _AskByParts
            asked = kind.model_validate_json(body)
        except ValidationError as error:
            raise ParameterError(self._of_a_cell(error) or complaint(error)) from None
        if (asked.ids is None) == (asked.rows is None):
            raise ParameterError("ids, rows: one of them is required, and not both")
        if asked.explain and not self.explains:
            raise ParameterError("explain: the job has no explanations")
        if asked.rows is None:
            assert asked.ids is not None
            self._check_ids(asked.ids)
            return Request(asked.ids, asked.explain)
        return self._read_rows(asked.rows, asked.explain)

    def _read_rows(self, rows: Sequence[dict[str, Cell | list[str]]], explain: bool) -> Request:
        """Return a request for rows of which our own columns are given, beside their ids."""
        ids: list[Any] = []
        for number, row in enumerate(rows, start=1):
            identity = row.pop(ID, None)
            one = isinstance(identity, str) and identity != "" and len(self.parts) == 1
            several = isinstance(identity, list) and len(self.parts) > 1
            if not (one or several):
                raise ParameterError(self._no_id(number))
            odd = next((name for name, cell in row.items() if isinstance(cell, list)), None)
            if odd is not None:
                raise ParameterError(f"rows: row {number}: {odd!r} is a list, and not one cell")
            ids.append(identity)
        self._check_ids(ids)
        given = GivenRows(self.described, cast("Sequence[dict[str, Cell]]", rows))
        given.features(self.encoders())
        return Request(ids, explain, given)

    def _no_id(self, number: int) -> str:
        what = "text" if len(self.parts) == 1 else f"a list of {', '.join(self.parts)}"
        return f"rows: row {number} has no {ID!r}, which is {what}"

    def _of_a_cell(self, error: ValidationError) -> str | None:
        """Say in one sentence what is wrong with a cell, of all the things that it could be."""
        detail = error.errors(include_url=False)[0]
        if len(detail["loc"]) < 4 or detail["loc"][0] != "rows" or detail["loc"][3] == "[key]":
            return None
        _, row, column, *_ = detail["loc"]
        if column == ID:
            return self._no_id(int(row) + 1)
        found = f"{quoted(column)!r} is {quoted(repr(detail['input']))}"
        return (
            f"rows: row {int(row) + 1}: {found}: write text, a number that is finite, true or "
            "false, or null where it is missing"
        )

    def _check_ids(self, ids: Sequence[Id]) -> None:
        if len(ids) > self.most_rows:
            raise TooManyRowsError(
                f"{len(ids):,} rows are more than {self.most_rows:,}: ask for fewer at a time"
            )
        if len(self.parts) > 1 and any(len(identity) != len(self.parts) for identity in ids):
            raise ParameterError(f"ids: each is a list of {', '.join(self.parts)}")


def told(request: Request) -> dict[str, Any]:
    """Return the answer to a request whose ids all have; `encoded` makes JSON of it."""
    classes = request.classes
    answer: dict[str, Any] = {"predictions": request.predictions}
    if classes:
        found = ByClass.of(classes, request.predictions)
        answer = {
            "classes": list(classes),
            "predictions": found.likeliest(),
            "probabilities": found.probabilities,
        }
    if request.explain and request.explained is not None:
        answer |= by_name(request.explained)
    return answer


def encoded(answer: Any) -> Iterator[bytes]:
    """Yield JSON in pieces, of dictionaries, lists and arrays.

    Nothing else of this process goes on while a piece is made, not even signs of life: whole, the
    explanations of millions of rows would take so long that we were given up.
    """
    if isinstance(answer, dict):
        yield b"{"
        for number, (key, value) in enumerate(answer.items()):
            yield (b"," if number else b"") + _dumped(key) + b":"
            yield from encoded(value)
        yield b"}"
    elif isinstance(answer, list | np.ndarray) and len(answer) > _PIECE:
        for start in range(0, len(answer), _PIECE):
            yield (b"," if start else b"[") + _dumped(answer[start : start + _PIECE])[1:-1]
        yield b"]"
    else:
        yield _dumped(answer)


def _dumped(value: Any) -> bytes:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
