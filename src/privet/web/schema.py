"""Requests and responses of the HTTP endpoint in JSON, and its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast

import numpy as np
from pydantic import Field, ValidationError

from privet.config.party import Endpoint
from privet.config.table import DataDescription
from privet.data.encoding import Encoder
from privet.data.reader import Cell, GivenRows
from privet.errors import ParameterError
from privet.federation.prediction.prediction import ByClass, by_name
from privet.federation.serving.request_queue import Id, Request
from privet.schema import Checked, quoted
from privet.schema import explain as complaint
from privet.storage.json_records import Name
from privet.version import __version__

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


_ERRORS = {
    "400": "What was asked for cannot be understood.",
    "401": "The token is missing or wrong.",
    "403": "The host name or the page that asks is not one of ours.",
    "404": "Ids that not all participants have.",
    "408": "The request took too long to arrive.",
    "413": "Too many bytes or rows.",
    "415": "Not JSON.",
    "429": "Too many requests, or too many that wait. See Retry-After.",
    "503": "The other participants are not there. See Retry-After.",
    "504": "Not answered before the deadline.",
}


def document(reader: Reader, endpoint: Endpoint, about: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of one service."""
    secured = endpoint.token is not None
    paths: dict[str, Any] = {
        "/predict": {
            "post": {
                "summary": "Predictions of the rows with these ids",
                "requestBody": {"required": True, "content": _json(_asked(reader))},
                "responses": {"200": _answer("Predictions, in order.", _told(reader)), **_errors()},
            }
        }
    }
    for path, summary, unready in (
        ("/live", "Whether the process answers", False),
        ("/ready", "Whether predictions are to be had", True),
        ("/health", "The same, with numbers", True),
        ("/metrics", "Metrics in Prometheus' text format", False),
        ("/openapi.json", "This document", False),
    ):
        answers = {"200": {"description": "Yes." if unready else "The answer."}}
        if unready:
            answers["503"] = {"description": "Not now. See Retry-After."}
        paths[path] = {"get": {"summary": summary, "responses": answers}}
        if secured and path in ("/live", "/ready"):
            paths[path]["get"]["security"] = []
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"Predictions of {about.get('job', 'a job')}", "version": __version__},
        "paths": paths,
    }
    if secured:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": _json(schema)}


def _errors() -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {"type": "string"},
            "unknown": {
                "type": "object",
                "description": "Ids that are not known to all, and who lacks them, if it shows.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        },
    }
    return {code: _answer(text, schema) for code, text in _ERRORS.items()}


def _id(reader: Reader) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if len(reader.parts) == 1:
        return text
    count = len(reader.parts)
    return {
        "type": "array",
        "description": ", ".join(reader.parts),
        "items": text,
        "minItems": count,
        "maxItems": count,
    }


def _asked(reader: Reader) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "ids": {"type": "array", "items": _id(reader), "minItems": 1, "maxItems": reader.most_rows}
    }
    columns = {encoder.column: _cell(encoder) for encoder in reader.encoders()}
    properties["rows"] = {
        "type": "array",
        "description": "Instead of ids: rows with our own columns, which are not in our table yet.",
        "minItems": 1,
        "maxItems": reader.most_rows,
        "items": {
            "type": "object",
            "required": [ID, *columns],
            "additionalProperties": False,
            "properties": {ID: _id(reader), **columns},
        },
    }
    if reader.explains:
        properties["explain"] = {
            "type": "boolean",
            "default": False,
            "description": "Whether to tell, too, what contributes to each prediction.",
        }
    return {
        "type": "object",
        "oneOf": [{"required": ["ids"]}, {"required": ["rows"]}],
        "additionalProperties": False,
        "properties": properties,
    }


def _cell(encoder: Encoder) -> dict[str, Any]:
    """Return what a cell of a column may be."""
    kind = encoder.kind
    if kind.name == "number":
        return {"type": ["number", "string", "null"]}
    if kind.name == "boolean":
        return {"type": ["boolean", "null"]}
    written = kind.form or {"date": "2020-12-31", "time": "2020-12-31 23:59:59"}.get(kind.name)
    return {"type": ["string", "null"], **({"description": written} if written else {})}


def _told(reader: Reader) -> dict[str, Any]:
    numbers = {"type": "array", "items": {"type": "number"}}
    properties: dict[str, Any] = {
        "predictions": {
            "type": "array",
            "description": "The likeliest class of each row, or a number.",
            "items": {"type": ["string", "number"]},
        },
        "classes": {"type": "array", "items": {"type": "string"}},
        "probabilities": {
            "type": "array",
            "description": "Of each row, those of all classes.",
            "items": numbers,
        },
    }
    if reader.explains:
        properties["contributions"] = {
            "type": "object",
            "description": "Of each feature or participant, to the scores of all rows.",
        }
        properties["base"] = {"description": "What they are added to."}
    return {"type": "object", "required": ["predictions"], "properties": properties}


_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em;color:#222}"
    "pre{background:#f4f4f4;padding:.8em;overflow:auto;font-size:13px}"
    "code{background:#f4f4f4}dt{font-weight:bold}h2{border-top:1px solid #ccc;padding-top:.6em}"
)


def page(described: dict[str, Any]) -> str:
    """Return a page for people that says what an OpenAPI document says."""
    info = described["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(info['title'])}</h1>",
        f"<p>Privet {escape(info['version'])}. For programs: <code>/openapi.json</code>.</p>",
    ]
    if "security" in described:
        parts.append("<p>Show the token: <code>Authorization: Bearer TOKEN</code>.</p>")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} <code>{escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation['summary'])}.</p>")
            if "requestBody" in operation:
                parts += ["<h3>Request</h3>", _schema(operation["requestBody"])]
            parts.append("<h3>Answers</h3><dl>")
            for code, answer in operation["responses"].items():
                parts.append(f"<dt>{code}</dt><dd>{escape(answer['description'])}")
                if code == "200" and "content" in answer:
                    parts.append(_schema(answer))
                parts.append("</dd>")
            parts.append("</dl>")
    return "\n".join(parts) + "\n</html>\n"


def _schema(body: dict[str, Any]) -> str:
    schema = body["content"]["application/json"]["schema"]
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
